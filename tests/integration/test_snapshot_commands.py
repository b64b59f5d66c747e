"""`penstock snapshot` on a real broker: three processors with two shuffles, under load, with a killed worker, restored and run on."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from support import plain
from support.cli import Cli

from penstock.ops.change.snapshots.snapshot import SnapshotStore
from penstock.processors.time import NEVER_MS
from penstock.state.files import LocalFileStore

APP = """
from datetime import timedelta

import penstock as ps

class Order(ps.Record, frozen=True):
    number: int
    user: str
    item: str
    amount: int
    at: int

class Bought(ps.Record, frozen=True):
    number: int
    item: str
    amount: int
    of_user: int
    at: int

class Sum(ps.Record, frozen=True):
    item: str
    orders: int
    amount: int
    of_users: int
    at: int

orders = ps.Category("{prefix}.orders", Order, key="number", event_time="at", buckets=2)
by_user = ps.Category("{prefix}.by_user", Order, key="user", event_time="at", buckets=3)
by_item = ps.Category("{prefix}.by_item", Bought, key="item", event_time="at", buckets=2)
sums = ps.Category("{prefix}.sums", Sum, key="item", event_time="at", buckets=2)
EVERY = ps.CheckpointInterval(time=timedelta(seconds=0.3))

class Split(ps.Stateless):
    name = "{prefix}.split"
    reads, writes, output_semantics, checkpoint = orders, by_user, ps.Semantics.{semantics}, EVERY

    def process(self, order):
        yield order

class Users(ps.Stateful):
    name = "{prefix}.users"
    reads, writes, state = by_user, by_item, int
    watermark = ps.watermarks.Confidence()  # of another processor's, it could not go back alone
    state_semantics = ps.Semantics.EXACTLY_ONCE
    output_semantics, checkpoint = ps.Semantics.{semantics}, EVERY

    def process(self, order, state, context):
        total = (state or 0) + order.amount
        return total, [Bought(order.number, order.item, order.amount, total, order.at)]

class Items(ps.Stateful):
    name = "{prefix}.items"
    reads, writes, state = by_item, sums, Sum
    state_semantics = ps.Semantics.EXACTLY_ONCE
    output_semantics, checkpoint = ps.Semantics.{semantics}, EVERY

    def process(self, bought, state, context):
        before = state or Sum(bought.item, 0, 0, 0, 0)
        after = Sum(
            bought.item, before.orders + 1, before.amount + bought.amount, before.of_users + bought.of_user, bought.at
        )
        return after, [after]
"""
CHUNK, MOST_CHUNKS, SNAPSHOTS = 400, 60, 3
Result = dict[str, tuple[int, int]]


def order_lines(chunk: int) -> str:
    """Return one chunk of orders as JSON lines."""
    return "".join(
        json.dumps({"number": n, "user": f"u{n % 17}", "item": f"i{n * 7 % 11}", "amount": n % 5 + 1, "at": n}) + "\n"
        for n in range(chunk * CHUNK, (chunk + 1) * CHUNK)
    )


def truth(chunks: int) -> Result:
    """Return the orders and amount of each item."""
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for chunk in range(chunks):
        for line in order_lines(chunk).splitlines():
            order = json.loads(line)
            found[order["item"]][0] += 1
            found[order["item"]][1] += order["amount"]
    return {item: (orders, amount) for item, (orders, amount) in found.items()}


def results(kafka: str, prefix: str) -> Result:
    """Return the last sum of each item."""
    last = {one["item"]: one for one in plain.values(kafka, f"{prefix}.sums")}
    return {item: (one["orders"], one["amount"]) for item, one in last.items()}


@pytest.fixture
def make_app(cli: Cli, prefix: str) -> Iterator[Callable[[str], Path]]:
    """Return a function that writes the app with some semantics, and creates its categories."""

    def make(semantics: str) -> Path:
        app = cli.folder / "shop.py"
        app.write_text(APP.replace("{prefix}", prefix).replace("{semantics}", semantics))
        cli.ok("category", "create", str(app))
        return app

    yield make
    cli.end_all()


def have_workers(kafka: str, prefix: str) -> bool:
    """Return whether workers own all buckets of all processors. A snapshot waits for a limited time until one of each answers."""
    wanted = {f"{prefix}.split": 2, f"{prefix}.users": 3, f"{prefix}.items": 2}
    admin = AdminClient({"bootstrap.servers": kafka})  # its futures resolve only while it exists
    try:
        groups = [each.result(timeout=60) for each in admin.describe_consumer_groups(list(wanted)).values()]
    except KafkaException:  # a group without a member yet
        return False
    return all(
        sum(len(member.assignment.topic_partitions) for member in group.members) == wanted[group.group_id]
        for group in groups
    )


class SnapshotsTaken(threading.Thread):
    """Takes snapshots until it is stopped."""

    def __init__(self, cli: Cli, app: Path) -> None:
        super().__init__()
        self._cli, self._app = cli, app
        self.stopping = threading.Event()
        self.taken: list[dict[str, object]] = []
        self.errors: list[str] = []

    def run(self) -> None:
        """Take one after another."""
        while not self.stopping.is_set():
            done = self._cli("snapshot", "take", str(self._app), "--backup", "place", "--json")
            if done.returncode:
                self.errors.append(done.stderr)
            else:
                self.taken.append(json.loads(done.stdout))


def stop(*processes: subprocess.Popen[str]) -> None:
    """Stop workers in order."""
    for process in processes:
        process.send_signal(signal.SIGTERM)
    for process in processes:
        process.communicate(timeout=60)


@pytest.mark.parametrize("semantics", ["EXACTLY_ONCE", pytest.param("AT_LEAST_ONCE", marks=pytest.mark.exhaustive)])
def test_a_restored_app_counts_each_order_once(
    cli: Cli, make_app: Callable[[str], Path], prefix: str, kafka: str, semantics: str
) -> None:
    """It may return to any snapshot, also of an app whose worker was killed, or with messages in flight."""
    app = make_app(semantics)
    run = ("run", "--backup", "place", "--backup-every", "5")
    workers = [cli.start(*run, f"{app}:{name}") for name in ("Split", "Users", "Users", "Items")]
    cli.ok("category", "send", f"{prefix}.orders", "--app", str(app), stdin=order_lines(0))
    snapshots = SnapshotsTaken(cli, app)
    snapshots.start()
    chunks, is_killed = 1, semantics != "EXACTLY_ONCE"
    while len(snapshots.taken) < SNAPSHOTS and chunks < MOST_CHUNKS:
        cli.ok("category", "send", f"{prefix}.orders", "--app", str(app), stdin=order_lines(chunks))
        chunks += 1
        if snapshots.taken and not is_killed:
            is_killed = True
            workers[1].kill()
            workers[1].communicate(timeout=60)
            workers[1] = cli.start(*run, f"{app}:Users")
    snapshots.stopping.set()
    snapshots.join()
    stop(*workers)
    taken = snapshots.taken

    assert len(taken) >= SNAPSHOTS, "".join(snapshots.errors)
    for snapshot in (taken[-1], taken[0]):
        shown = json.loads(
            cli.ok("snapshot", "restore", str(app), str(snapshot["id"]), "--backup", "place", "--dry-run", "--json")
        )
        restored = cli("snapshot", "restore", str(app), str(snapshot["id"]), "--backup", "place", "--yes")
        assert restored.returncode == 0, restored.stderr
        cli.ok("run", str(app), "--until-end", "--backup", "place")
        assert results(kafka, prefix) == truth(chunks), snapshot
        assert shown["reprocessed"][f"{prefix}.orders"] > 0 or snapshot is taken[-1]
    cli.ok("category", "send", f"{prefix}.orders", "--app", str(app), stdin=order_lines(chunks))
    cli.ok("run", str(app), "--until-end", "--backup", "place")
    assert results(kafka, prefix) == truth(chunks + 1)


def test_one_processor_goes_back_while_the_others_run(
    cli: Cli, make_app: Callable[[str], Path], prefix: str, kafka: str, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    """It reads the events since then for its state alone. Each order counts once, also orders that arrive during the restore."""
    app = make_app("EXACTLY_ONCE")
    send = ("category", "send", f"{prefix}.orders", "--app", str(app))
    run = ("run", "--backup", "place")
    cli.ok(*send, stdin=order_lines(0))
    cli.ok(*run, str(app), "--until-end")
    users, *others = [cli.start(*run, f"{app}:{name}") for name in ("Users", "Split", "Items")]
    wait_until(lambda: have_workers(kafka, prefix))
    taken = json.loads(cli.ok("snapshot", "take", str(app), "--backup", "place", "--json"))
    restore = ("snapshot", "restore", f"{app}:Users", taken["id"], "--backup", "place")
    stop(users)
    cli.ok(*send, stdin=order_lines(1))
    wait_until(lambda: len(plain.read(kafka, f"{prefix}.by_user")) == 2 * CHUNK)
    cli.ok(*run, f"{app}:Users", "--until-end")
    cli.ok(*send, stdin=order_lines(2))
    stateless = cli("snapshot", "restore", f"{app}:Split", taken["id"], "--backup", "place", "--yes")
    planned = json.loads(cli.ok(*restore, "--dry-run", "--json"))
    restored = cli(*restore, "--yes")
    cli.ok(*run, f"{app}:Users", "--until-end")
    stop(*others)
    cli.ok(*run, str(app), "--until-end")

    assert (stateless.returncode, "worker" in stateless.stderr, "Traceback" in stateless.stderr) == (1, True, False)
    assert (planned["processor"], planned["repeated"], planned["done"]) == (f"{prefix}.users", 0, False)
    assert planned["caught_up"] >= CHUNK
    assert restored.returncode == 0, restored.stderr
    assert "Its positions stay" in restored.stderr
    assert "without outputs" in restored.stderr
    assert results(kafka, prefix) == truth(3)
    [amount] = {
        entry["value"]
        for state in json.loads(cli.ok("state", "get", f"{app}:Users", "u3", "--json"))
        for entry in state["entries"]
    }
    orders = [json.loads(line) for chunk in range(3) for line in order_lines(chunk).splitlines()]
    assert amount == sum(order["amount"] for order in orders if order["user"] == "u3")


def test_snapshots_are_listed_described_and_deleted(
    cli: Cli, make_app: Callable[[str], Path], prefix: str, kafka: str, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    """They are refused where they are not possible, with what to do."""
    app = make_app("EXACTLY_ONCE")
    nothing = cli("snapshot", "show", "--backup", "place")
    without_store = cli("snapshot", "take", str(app))
    workers = [cli.start("run", "--backup", "place", f"{app}:{name}") for name in ("Split", "Users", "Items")]
    cli.ok("category", "send", f"{prefix}.orders", "--app", str(app), stdin=order_lines(0))
    wait_until(lambda: have_workers(kafka, prefix))
    # A snapshot of workers that have not read anything yet has no event times.
    wait_until(lambda: len(plain.read(kafka, f"{prefix}.by_user")) == CHUNK)
    taken = json.loads(cli.ok("snapshot", "take", str(app), "--backup", "place", "--json"))
    running = cli("snapshot", "restore", str(app), taken["id"], "--backup", "place", "--yes")
    stop(*workers)
    stored = SnapshotStore(LocalFileStore(cli.folder / "place")).read("shop", taken["id"])
    listed = json.loads(cli.ok("snapshot", "show", "--backup", "place", "--json"))
    described = cli.ok("snapshot", "show", str(app), taken["id"], "--backup", "place")
    unknown = cli("snapshot", "show", str(app), "20200101T000000-0000", "--backup", "place")
    app.write_text(app.read_text().replace("state = by_user, by_item, int", "state = by_user, by_item, float"))
    changed = cli("snapshot", "restore", str(app), taken["id"], "--backup", "place", "--yes")
    cli.ok("snapshot", "delete", str(app), taken["id"], "--backup", "place")
    after = json.loads(cli.ok("snapshot", "show", "--backup", "place", "--json"))

    assert "There are no snapshots" in nothing.stderr
    assert "--backup" in without_store.stderr
    assert "has members" in running.stderr
    assert [one["id"] for one in listed] == [taken["id"]]
    assert "all there" in described
    assert {shard.low_ms > NEVER_MS for shard in stored.processors[f"{prefix}.split"].shards.values()} == {True}
    assert "has no snapshot 20200101T000000-0000" in unknown.stderr
    assert f"{prefix}.users did not exist, or had other" in changed.stderr
    assert after == []
    assert not list((cli.folder / "place").glob("*/*/pins/*"))
    assert not any("Traceback" in done.stderr for done in (nothing, without_store, running, unknown, changed))


def test_a_schedule_deletes_only_its_own_snapshots(
    cli: Cli, make_app: Callable[[str], Path], prefix: str, kafka: str, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    """It keeps its newest snapshots, and every manual one."""
    app = make_app("EXACTLY_ONCE")
    for name in ("Split", "Users", "Items"):
        cli.start("run", "--backup", "place", f"{app}:{name}")
    wait_until(lambda: have_workers(kafka, prefix))
    by_hand = json.loads(cli.ok("snapshot", "take", str(app), "--backup", "place", "--json"))
    store = SnapshotStore(LocalFileStore(cli.folder / "place"))
    schedule = cli.start("snapshot", "take", str(app), "--every", "1s", "--keep", "2", "--backup", "place")
    seen: set[str] = set()

    def has_deleted_two() -> bool:
        ids = store.ids("shop")
        seen.update(ids)
        return len(seen) >= 5 and len(ids) == 3

    wait_until(has_deleted_two)
    schedule.send_signal(signal.SIGINT)
    _, said = schedule.communicate(timeout=60)

    assert store.ids("shop")[0] == by_hand["id"]
    assert "is deleted (--keep 2)" in said
    assert "Earlier snapshots remain" in said


def test_a_clone_made_under_load_reaches_the_results_of_the_original(
    cli: Cli, make_app: Callable[[str], Path], prefix: str, kafka: str, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    """It has its own categories, and the original continues. Its removal leaves nothing behind."""
    app = make_app("EXACTLY_ONCE")
    send = ("category", "send", f"{prefix}.orders", "--app", str(app))
    workers = [cli.start("run", "--backup", "place", f"{app}:{name}") for name in ("Split", "Users", "Items")]
    cli.ok(*send, stdin=order_lines(0))
    cli.ok(*send, stdin=order_lines(1))
    wait_until(lambda: have_workers(kafka, prefix))
    taken = json.loads(cli.ok("snapshot", "take", str(app), "--backup", "place", "--json"))
    cli.ok(*send, stdin=order_lines(2))
    never_made = cli("run", f"{app}@staging:Users")
    made = json.loads(cli.ok("clone", str(app), str(taken["id"]), "--as", "staging", "--backup", "place", "--json"))
    staging = cli.start("run", "--backup", "place", f"{app}@staging")
    cli.ok(*send, stdin=order_lines(3))
    stop(*workers, staging)
    for name in (str(app), f"{app}@staging"):
        cli.ok("run", name, "--until-end", "--backup", "place")
    found = {name: results(kafka, name) for name in (prefix, f"staging.{prefix}")}
    compared = json.loads(cli.ok("compare", f"{app}@staging:Split", "--json"))
    with_spark = cli("compare", f"{app}@staging:Split", "--master", "local")
    again = cli("clone", str(app), str(taken["id"]), "--as", "staging", "--backup", "place")
    cli.ok("clone", f"{app}@staging", "--remove", "--yes", "--backup", "place")
    left = json.loads(cli.ok("category", "show", "--json"))

    assert "There is no staging." in never_made.stderr
    assert made["categories"][f"{prefix}.sums"] == f"staging.{prefix}.sums"
    assert found == {prefix: truth(4), f"staging.{prefix}": truth(4)}
    assert [(one["category"], one["agrees"]) for one in compared] == [(f"{prefix}.by_user", True)]
    assert compared[0]["equal"] > CHUNK  # those sent after the snapshot whose event times both apps have passed
    assert "without Spark" in with_spark.stderr
    assert "exists already" in again.stderr
    assert not [one["category"] for one in left if one["category"].startswith(f"staging.{prefix}")]
    assert not [path for path in cli.folder.rglob(f"staging.{prefix}*") if path.is_file()]


def test_bisect_finds_the_event_after_which_a_state_is_wrong(
    cli: Cli, make_app: Callable[[str], Path], prefix: str, kafka: str, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    """It may use snapshots before and after the event, or none. It says if there is no such event."""
    app = make_app("EXACTLY_ONCE")
    send = ("category", "send", f"{prefix}.orders", "--app", str(app))
    take = ("snapshot", "take", str(app), "--backup", "place", "--json")
    cli.ok(*send, stdin=order_lines(0))
    cli.ok("run", str(app), "--until-end", "--backup", "place")
    workers = [cli.start("run", "--backup", "place", f"{app}:{name}") for name in ("Split", "Users", "Items")]
    wait_until(lambda: have_workers(kafka, prefix))
    cli.ok(*take)
    bad = json.dumps({"number": 9_999, "user": "u3", "item": "i1", "amount": 90_000, "at": 500}) + "\n"
    cli.ok(*send, stdin=order_lines(1) + bad + order_lines(2))
    stop(*workers)
    cli.ok("run", str(app), "--until-end", "--backup", "place")
    workers = [cli.start("run", "--backup", "place", f"{app}:{name}") for name in ("Split", "Users", "Items")]
    wait_until(lambda: have_workers(kafka, prefix))
    cli.ok(*take)
    stop(*workers)
    bisect = ("bisect", f"{app}:Users", "--key", "u3")
    with_snapshots = cli(*bisect, "--when", "state > 80000", "--backup", "place")
    found = json.loads(cli.ok(*bisect, "--when", "state > 80000", "--backup", "place", "--json"))
    from_start = json.loads(cli.ok(*bisect, "--when", "state > 80000", "--json"))
    never = cli(*bisect, "--when", "state > 1000000", "--backup", "place")
    misspelt = cli(*bisect, "--when", "stat > 3")
    of_items = json.loads(cli.ok("bisect", f"{app}:Items", "--key", "i1", "--when", "amount > 80000", "--json"))

    at_end = json.loads(cli.ok("state", "get", f"{app}:Users", "u3", "--json", "--backup", "place"))
    changed = cli.ok("state", "diff", f"{app}:Users", "--from", "1h ago", "--key", "u3", "--json", "--backup", "place")
    steps = json.loads(cli.ok("explain", f"{app}:Users", "i1", "--json"))

    [shown] = [entry["value"] for state in at_end for entry in state["entries"]]
    assert shown > 90_000
    assert json.loads(changed) == {"key": "u3", "window": None, "before": None, "after": shown}
    assert [step["processor"] for step in steps] == [f"{prefix}.users", f"{prefix}.split"]
    assert steps[0]["inputs"][0]["event"] == steps[1]["output"]["value"]
    assert steps[1]["inputs"][0]["category"] == f"{prefix}.orders"
    assert with_snapshots.stderr.count("Snapshot ") == 2
    assert "at offset" in with_snapshots.stdout
    for cause in (found, from_start):
        assert cause["event"]["number"] == 9_999
        assert cause["after"] - cause["before"] == 90_000
    assert found["offset"] == from_start["offset"]
    assert found["replayed"] < from_start["replayed"]
    assert of_items["event"]["number"] == 9_999
    assert (never.returncode, "does not hold" in never.stderr) == (1, True)
    assert "There is no column 'stat'" in misspelt.stderr
    assert "Traceback" not in misspelt.stderr
