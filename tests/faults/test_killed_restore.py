"""The restore of one processor is killed, at each of its steps and anywhere, while the others run: each order counts once, in each output."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable

from support.cli import LIMIT_S, Cli
from support.plain import values

from penstock.transport import Outgoing
from penstock.transport.kafka import KafkaBus

KILLS = 3
APP = """
from datetime import timedelta

import penstock as ps


class Order(ps.Record, frozen=True):
    number: int
    user: str
    item: str
    amount: int
    at: int


class Spent(ps.Record, frozen=True):
    number: int
    item: str
    amount: int
    total: int
    at: int


class Sold(ps.Record, frozen=True):
    item: str
    count: int
    amount: int
    totals: int
    at: int


orders = ps.Category("PREFIX.orders", Order, key="user", event_time="at", buckets=2)
spent = ps.Category("PREFIX.spent", Spent, key="item", event_time="at", buckets=2)
EVERY = ps.CheckpointInterval(time=timedelta(seconds=0.3))


class Users(ps.Stateful):
    name = "PREFIX.users"
    reads, writes, state = orders, spent, int
    state_semantics = output_semantics = ps.Semantics.EXACTLY_ONCE
    checkpoint = EVERY

    def process(self, order, state, context):
        total = (state or 0) + order.amount
        return total, [Spent(order.number, order.item, order.amount, total, order.at)]


class Items(ps.Stateful):
    name = "PREFIX.items"
    reads, state = spent, Sold
    writes = ps.Category("PREFIX.sold", Sold, key="item", event_time="at", buckets=2)
    state_semantics = output_semantics = ps.Semantics.EXACTLY_ONCE
    checkpoint = EVERY

    def process(self, one, state, context):
        before = state or Sold(one.item, 0, 0, 0, 0)
        after = Sold(one.item, before.count + 1, before.amount + one.amount, before.totals + one.total, one.at)
        return after, [after]
"""
KILLED_RESTORES = """
import os, signal, sys
from itertools import count
from pathlib import Path

from penstock.ops.change.maintenance.environment import MaintenanceEnvironment
from penstock.ops.change.maintenance.reset import perform_reset
from penstock.ops.change.snapshots.restoring import plan_restore_alone
from penstock.ops.change.snapshots.snapshot import SnapshotStore
from penstock.processors.apps.apps import load_app
from penstock.state.files.local_files import LocalFileStore
from penstock.transport.kafka import KafkaBus, KafkaSettings

kafka, snapshot = sys.argv[1:]
app, place = load_app(Path("app.py")), LocalFileStore(Path("place"))


def restore(kill_at):
    passed = count()

    def at_gap(gap):
        if next(passed) == kill_at:
            print(gap.before.name, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    environment = MaintenanceEnvironment(KafkaBus(KafkaSettings(kafka)), Path(".penstock/state"), place)
    plan = plan_restore_alone(SnapshotStore(place).read("app", snapshot), app.processor("Users"), environment)
    perform_reset(plan, environment, at_gap)


for kill_at in count():
    child = os.fork()
    if not child:
        restore(kill_at)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != -signal.SIGKILL:
        sys.exit(status)
"""
"""Repeats a restore that is killed before its first step, then before its second one, and so on, until it comes to its end."""
STEPS = [
    "RECORD_START",
    "CHANGE_TOPICS",
    *(step for step in ("INSTALL_STATE", "STORE_BACKUP", "REWRITE_CHANGELOG") for _ in range(2)),
    "RETRACT_WATERMARKS",
    "MOVE_POSITIONS",
    "RECORD_END",
]


class Orders(threading.Thread):
    """Writes orders without a pause until it is stopped.

    Args:
        bus: receives them.
        category: their category.
    """

    def __init__(self, bus: KafkaBus, category: str) -> None:
        super().__init__()
        self._bus, self._category = bus, category
        self._stopping = threading.Event()
        self.written: list[dict[str, int | str]] = []

    def run(self) -> None:
        """Write some every few hundredths of a second."""
        writer = self._bus.writer()
        while not self._stopping.wait(0.03):
            new = [_order(len(self.written) + more) for more in range(20)]
            writer.send(self._category, [Outgoing(str(one["user"]).encode(), json.dumps(one).encode()) for one in new])
            self.written += new
        writer.flush()
        writer.close()

    def stop(self) -> None:
        """Stop, when all are written."""
        self._stopping.set()
        self.join()


def _order(number: int) -> dict[str, int | str]:
    return {
        "number": number,
        "user": f"u{number % 17}",
        "item": f"i{number * 7 % 11}",
        "amount": number % 5 + 1,
        "at": number,
    }


def stop(*workers: subprocess.Popen[str]) -> None:
    """Stop workers."""
    for worker in workers:
        worker.send_signal(signal.SIGTERM)
    for worker in workers:
        worker.communicate(timeout=LIMIT_S)


def test_a_killed_restore_of_one_processor_loses_and_repeats_nothing(
    cli: Cli, kafka: str, kafka_bus: KafkaBus, prefix: str, wait_until: Callable[..., None]
) -> None:
    """It is killed at each step and at any moment, and its worker while it catches up. Its readers and writers continue."""
    rng = random.Random(7)
    (cli.folder / "app.py").write_text(APP.replace("PREFIX", prefix))
    (cli.folder / "impatient.toml").write_text(
        "[kafka-settings]\nsession.timeout.ms = 2000\nheartbeat.interval.ms = 500\ntransaction.timeout.ms = 2000\n"
    )
    run = ("run", "--backup", "place", "--config", "impatient.toml")
    cli.ok("category", "create", "app.py")
    orders = Orders(kafka_bus, f"{prefix}.orders")
    orders.start()
    users, items = cli.start(*run, "app.py:Users"), cli.start(*run, "app.py:Items")
    taken = json.loads(cli.ok("snapshot", "take", "app.py", "--backup", "place", "--json"))
    at_cut = kafka_bus.catalog.stable_ends(f"{prefix}.spent")
    wait_until(lambda: sum(kafka_bus.catalog.stable_ends(f"{prefix}.spent").values()) > sum(at_cut.values()) + 200)
    stop(users)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_RESTORES, kafka, taken["id"]],
        cwd=cli.folder,
        timeout=LIMIT_S,
        check=False,
        capture_output=True,
        text=True,
    )
    assert killed.returncode == 0, killed.stderr
    assert sorted(killed.stdout.split()) == sorted(STEPS)

    before = kafka_bus.catalog.stable_ends(f"{prefix}.spent")
    users = cli.start(*run, "app.py:Users")
    wait_until(lambda: kafka_bus.catalog.stable_ends(f"{prefix}.spent") != before)
    stop(users)
    restore = ("snapshot", "restore", "app.py:Users", taken["id"], "--backup", "place", "--yes")
    for _ in range(KILLS):
        restoring = cli.start(*restore)
        time.sleep(rng.uniform(0.5, 1.5))
        restoring.kill()
        restoring.communicate()
    cli.ok(*restore)
    users = cli.start(*run, "app.py:Users")
    time.sleep(rng.uniform(0.5, 2.5))
    users.kill()
    orders.stop()
    cli.ok(*run, "app.py:Users", "--until-end")
    stop(items)
    cli.ok(*run, "app.py", "--until-end")

    found = Counter((one["number"], one["total"]) for one in values(kafka, f"{prefix}.spent"))
    sold: dict[str, tuple[int, int, int]] = {}
    for one in values(kafka, f"{prefix}.sold"):
        sold[one["item"]] = one["count"], one["amount"], one["totals"]
    assert (found, sold) == expected(orders.written)


def expected(orders: list[dict[str, int | str]]) -> tuple[Counter[tuple[int, int]], dict[str, tuple[int, int, int]]]:
    """Return the number and the user's total of each order, and the last sum of each item."""
    totals: dict[str, int] = defaultdict(int)
    spent = Counter[tuple[int, int]]()
    sold: dict[str, tuple[int, int, int]] = {}
    for order in orders:
        user, item, number, amount = str(order["user"]), str(order["item"]), int(order["number"]), int(order["amount"])
        totals[user] += amount
        spent[number, totals[user]] += 1
        count, sum_, of_totals = sold.get(item, (0, 0, 0))
        sold[item] = count + 1, sum_ + amount, of_totals + totals[user]
    return spent, sold
