"""`penstock state` in its own process, on real states and backups."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.cli import Cli
from support.meters import readings

from penstock.ops.start.dev_services.services import running_hdfs
from penstock.processors.declare import Aggregator, Processor, Stateful, plan_of
from penstock.processors.keyed_state import encode_window_key
from penstock.processors.shard import StatePosition
from penstock.processors.time import BoundedOutOfOrderness, Clock, ShardTime, Timers
from penstock.state import Delta, ShardIdentity
from penstock.state.backups import Manifest, ShardBackups, claim
from penstock.state.files import FileStore, LocalFileStore, open_file_store
from penstock.state.local import RocksShardState, RocksStateFolder, current, shard_folder

HOUR = 3_600_000
APP = """
from datetime import timedelta
import penstock as ps

class Reading(ps.Record, frozen=True):
    meter: str
    at: ps.EventTime
    litres: int

class Total(ps.Record, frozen=True):
    litres: int
    readings: int

readings = ps.Category("readings", Reading, key="meter", event_time="at", buckets=2)

class Large(ps.Stateless):
    reads = readings
    def process(self, event):
        return []

class Totals(ps.Stateful):
    reads, state = readings, Total
    def process(self, event, state, context):
        return state, []

class Hours(ps.Aggregator):
    reads = readings
    monoid = ps.monoids.Mean()
    window = ps.windows.Tumbling(timedelta(hours=1))
"""
OPEN_AND_WRITE = """
import sys
from pathlib import Path
from penstock.state.local.folder import RocksStateFolder
from penstock.processors.shard.position import StatePosition
from penstock.state.protocols import ShardIdentity
root, processor, bucket, shape = sys.argv[1:]
state = RocksStateFolder(Path(root)).open(ShardIdentity(processor, int(bucket), shape))
state.save_together({}, StatePosition({"readings": 99}))
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def command(tmp_path: Path) -> Cli:
    """The command line, in a folder with an app, without a broker."""
    (tmp_path / "app.py").write_text(APP)
    return Cli("127.0.0.1:1", tmp_path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder in which the command line looks for states."""
    return tmp_path / ".penstock" / "state"


@pytest.fixture
def place(tmp_path: Path) -> LocalFileStore:
    """The backup store of `--backup place`."""
    return LocalFileStore(tmp_path / "place")


def declared(folder: Path, name: str) -> type[Any]:
    """Return a processor of the app."""
    spec = importlib.util.spec_from_file_location("states_app", folder / "app.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: type[Any] = getattr(module, name)
    return found


def identity_of(processor: type[Processor], bucket: int) -> ShardIdentity:
    shape = plan_of(processor).state_shape
    assert shape is not None
    return ShardIdentity(processor.name, bucket, shape)


@contextmanager
def opened(root: Path, processor: type[Processor], bucket: int) -> Iterator[RocksShardState]:
    state = RocksStateFolder(root).open(identity_of(processor, bucket))
    try:
        yield state
    finally:
        state.close()


def fill_totals(root: Path, totals: type[Stateful], bucket: int = 0, offset: int = 5) -> None:
    """Save the state of three meters."""
    with opened(root, totals, bucket) as state:
        totals_by_meter = {b"m%d" % n: msgspec.msgpack.encode({"litres": n * 10, "readings": n}) for n in range(3)}
        state.save_together(dict(totals_by_meter), StatePosition({"readings": offset}))


def back_up(place: FileStore, root: Path, processor: type[Processor], bucket: int = 0) -> Manifest:
    """Add one backup of a shard."""
    me = identity_of(processor, bucket)
    owner = claim(ShardBackups(place, me.processor, bucket), me)
    with opened(root, processor, bucket) as state:
        snapshot = root.parent / "snapshots" / f"{bucket}-{owner._epoch}"
        state.snapshot(snapshot)
        return owner.save(snapshot, state.position())


@contextmanager
def worker(root: Path, me: ShardIdentity) -> Iterator[None]:
    """Have another process open a shard's state, as a worker does."""
    command = [sys.executable, "-c", OPEN_AND_WRITE, str(root), me.processor, str(me.bucket), me.shape]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield
        process.kill()


def damage(place: LocalFileStore, folder: Path, manifest: Manifest, name: str = ".sst") -> str:
    """Change one byte of a file in a backup; return the file's name there."""
    file = next(file for file in manifest.files if file.name.endswith(name) or file.name.startswith(name))
    path = (
        folder
        / "place"
        / ShardBackups(place, manifest.identity.processor, manifest.identity.bucket).file_path(file.stored)
    )
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    return file.stored


# list


def test_list_shows_states_and_backups(command: Cli, root: Path, place: LocalFileStore) -> None:
    """They are a table or JSON. Shards without a local state or without a backup are listed, too."""
    totals = declared(command.folder, "Totals")
    fill_totals(root, totals, 0)
    manifest = back_up(place, root, totals, 0)
    fill_totals(root, totals, 0, offset=8)
    fill_totals(root, totals, 1, offset=1234)
    table = command.ok("state", "show", "--backup", "place")
    first, second = json.loads(command.ok("state", "show", "totals", "--backup", "place", "--json"))
    here = json.loads(command.ok("state", "show", "--json"))

    assert "readings 1,234" in table
    assert (first["local"]["position"], first["local"]["in_use"]) == ({"offsets": {"readings": 8}}, False)
    assert second["local"]["keys"] == 3
    assert first["local"]["size_bytes"] > 1000
    assert (first["backups"]["count"], first["backups"]["newest"]) == (1, str(manifest.id))
    assert first["backups"]["position"] == {"offsets": {"readings": 5}}
    assert {name: value for name, value in second["backups"].items() if value is not None} == {
        "count": 0,
        "size_bytes": 0,
    }
    assert [shard["backups"] for shard in here] == [None, None]


def back_up_long_ago(place: FileStore, root: Path, totals: type[Stateful], bucket: int) -> None:
    """Make a backup, three days ago, of a worker that makes one per minute."""
    manifest = back_up(place, root, totals, bucket)
    aged = msgspec.structs.replace(manifest, time_ms=manifest.time_ms - 72 * HOUR, interval_s=60.0)
    place.write(ShardBackups(place, totals.name, bucket).manifest_path(manifest.id), [aged.encode()])


def test_list_shows_the_age_of_backups(command: Cli, root: Path, place: LocalFileStore) -> None:
    """A backup is late if the state has changed since; a state without an intact backup is reported."""
    totals = declared(command.folder, "Totals")
    for bucket in range(4):
        fill_totals(root, totals, bucket)
    began_s = time.monotonic()
    for bucket in (0, 1):
        back_up_long_ago(place, root, totals, bucket)
    fill_totals(root, totals, 1, offset=8)
    lost = next(file for file in back_up(place, root, totals, 3).files if file.name.endswith(".sst"))
    place.delete(ShardBackups(place, "totals", 3).file_path(lost.stored))
    shown = command("state", "show", "--backup", "place")
    found = json.loads(command.ok("state", "show", "--backup", "place", "--json"))
    took_s = time.monotonic() - began_s
    rows = [line for line in shown.stdout.splitlines() if line.startswith("totals")]

    assert [("3 days ago" in row, "late" in row) for row in rows] == [
        (True, False),
        (True, True),
        (False,) * 2,
        (False,) * 2,
    ]
    assert "never" in rows[2]
    assert "none intact" in rows[3]
    assert "the newest backup of totals, bucket 1 is more than 3 intervals old" in shown.stderr
    assert "totals, bucket 2; totals, bucket 3 has a local state and no intact backup" in shown.stderr
    assert [shard["late"] for shard in found] == [False, True, False, False]
    assert 0 <= found[0]["backups"]["age_s"] - 72 * HOUR / 1000 < took_s + 1
    assert [shard["backups"]["age_s"] for shard in found[2:]] == [None, None]


def test_list_says_what_it_has_not_found(command: Cli, root: Path) -> None:
    """It names the place without backups and the folder without states."""
    empty = command("state", "show", "--backup", "nosuch")
    fill_totals(root, declared(command.folder, "Totals"))
    local = command("state", "show", "--backup", "nosuch")

    assert empty.stderr == "There are no backups at nosuch.\nThere are no states in .penstock/state.\n"
    assert local.stderr.startswith("There are no backups at nosuch.\n")
    assert local.stdout.splitlines()[1].startswith("totals")


def test_a_backup_without_an_interval_is_not_reported_as_late(command: Cli, root: Path, place: LocalFileStore) -> None:
    """Its age is shown."""
    totals = declared(command.folder, "Totals")
    fill_totals(root, totals)
    manifest = back_up(place, root, totals)
    aged = msgspec.structs.replace(manifest, time_ms=manifest.time_ms - 72 * HOUR)
    place.write(ShardBackups(place, "totals", 0).manifest_path(manifest.id), [aged.encode()])
    fill_totals(root, totals, offset=8)
    shown = command("state", "show", "--backup", "place")

    assert "3 days ago" in shown.stdout
    assert "late" not in shown.stdout
    assert shown.stderr == ""


def test_list_reads_the_state_of_a_running_worker(command: Cli, root: Path) -> None:
    """It does not disturb the worker, and shows the position that the worker saved last."""
    me = identity_of(declared(command.folder, "Totals"), 0)
    with worker(root, me):
        first = json.loads(command.ok("state", "show", "--json"))[0]
        table = command.ok("state", "show")

    assert first["local"]["in_use"] is True
    assert first["local"]["position"] == {"offsets": {"readings": 99}}
    assert "a worker" in table


def test_list_shows_a_damaged_state_beside_the_others(command: Cli, root: Path) -> None:
    """It gives advice, and lists the other states."""
    totals = declared(command.folder, "Totals")
    for bucket in (0, 1):
        fill_totals(root, totals, bucket)
    database = current(shard_folder(root, identity_of(totals, 0)))
    assert database is not None
    next(database.glob("MANIFEST-*")).write_bytes(b"nothing of RocksDB's")
    done = command("state", "show")

    assert "readings 5" in done.stdout
    assert "is damaged" in done.stderr
    assert "Move the folder away" in done.stderr


# verify


def test_verify_finds_an_intact_backup_behind_a_damaged_one(command: Cli, root: Path, place: LocalFileStore) -> None:
    """The exit code is 0, since a restore is possible; the damaged file is named, with advice."""
    totals = declared(command.folder, "Totals")
    fill_totals(root, totals)
    back_up(place, root, totals)
    fill_totals(root, totals, offset=8)
    file = damage(place, command.folder, back_up(place, root, totals), name="MANIFEST")
    done = command("state", "verify", "--backup", "place")
    found = json.loads(command.ok("state", "verify", "totals", "--backup", "place", "--json"))

    assert done.returncode == 0
    assert [line.split()[-1] for line in done.stdout.splitlines()] == ["result", "damaged", "intact"]
    assert file in done.stderr
    assert "Remove the damaged files" in done.stderr
    assert [verdict["good"] for verdict in found] == [False, True]


def test_verify_fails_without_an_intact_backup(command: Cli, root: Path, place: LocalFileStore) -> None:
    """The error names the bucket; an incomplete manifest counts as damage."""
    totals = declared(command.folder, "Totals")
    for bucket in (0, 1):
        fill_totals(root, totals, bucket)
    back_up(place, root, totals, 0)
    manifest = back_up(place, root, totals, 1)
    path = command.folder / "place" / ShardBackups(place, "totals", 1).manifest_path(manifest.id)
    path.write_bytes(path.read_bytes()[:100])
    done = command("state", "verify", "--backup", "place")

    assert done.returncode == 1
    assert "No intact backup at" in done.stderr
    assert "totals, bucket 1" in done.stderr
    assert "its manifest cannot be read" in done.stderr
    assert command("state", "verify", "--bucket", "0", "--backup", "place").returncode == 0


# restore


def test_restore_recovers_lost_states(command: Cli, root: Path, place: LocalFileStore) -> None:
    """It restores several buckets in parallel and reports the rate."""
    totals = declared(command.folder, "Totals")
    for bucket in (0, 1):
        fill_totals(root, totals, bucket, offset=bucket + 5)
        back_up(place, root, totals, bucket)
        fill_totals(root, totals, bucket, offset=100)
    done = command("state", "restore", "totals", "--backup", "place")
    positions = []
    for bucket in (0, 1):
        with opened(root, totals, bucket) as state:
            positions.append(state.position())
            assert dict(state.items()).keys() == {b"m0", b"m1", b"m2"}

    assert done.returncode == 0, done.stderr
    assert "totals, bucket 1: backup 00000001-00000001" in done.stderr
    assert "/s)" in done.stderr
    assert positions == [StatePosition({"readings": 5}), StatePosition({"readings": 6})]


def test_restore_uses_the_backup_that_is_named(command: Cli, root: Path, place: LocalFileStore) -> None:
    """It may be older than the newest; a missing one is refused."""
    totals = declared(command.folder, "Totals")
    for offset in (5, 8):
        fill_totals(root, totals, offset=offset)
        back_up(place, root, totals)
    options = ["--backup", "place", "--bucket", "0", "--backup-id"]
    missing = command("state", "restore", "totals", *options, "00000009-00000001")
    wrong = command("state", "restore", "totals", *options, "newest")
    restored = json.loads(command.ok("state", "restore", "totals", *options, "00000001-00000001", "--json"))
    with opened(root, totals, 0) as state:
        position = state.position()

    assert (missing.returncode, wrong.returncode) == (1, 1)
    assert "does not exist" in missing.stderr
    assert "is not a backup id" in wrong.stderr
    assert restored[0]["position"] == msgspec.to_builtins(position) == {"offsets": {"readings": 5}}


def test_restore_is_refused_while_a_worker_has_the_state_open(command: Cli, root: Path, place: LocalFileStore) -> None:
    """No bucket is changed; after the worker has ended, the restore works."""
    totals = declared(command.folder, "Totals")
    for bucket in (0, 1):
        fill_totals(root, totals, bucket)
        back_up(place, root, totals, bucket)
    with worker(root, identity_of(totals, 1)):
        refused = command("state", "restore", "totals", "--backup", "place")
        databases = sorted(path.name for path in root.glob("totals/*/*"))
    restored = command("state", "restore", "totals", "--backup", "place")

    assert refused.returncode == 1
    assert "Stop the worker" in refused.stderr
    assert databases == ["000001", "000001"]
    assert restored.returncode == 0


def test_restore_continues_past_a_bucket_without_an_intact_backup(
    command: Cli, root: Path, place: LocalFileStore
) -> None:
    """The other bucket is restored, this one is unchanged, and the exit code reports the failure."""
    totals = declared(command.folder, "Totals")
    for bucket in (0, 1):
        fill_totals(root, totals, bucket)
        manifest = back_up(place, root, totals, bucket)
        fill_totals(root, totals, bucket, offset=50)
    file = damage(place, command.folder, manifest)
    done = command("state", "restore", "totals", "--backup", "place")
    positions = []
    for bucket in (0, 1):
        with opened(root, totals, bucket) as state:
            positions.append(state.position())

    assert done.returncode == 1
    assert file in done.stderr
    assert "totals, bucket 1 has no intact backup" in done.stderr
    assert positions == [StatePosition({"readings": 5}), StatePosition({"readings": 50})]


# inspect


def test_inspect_decodes_the_state_of_a_running_worker(command: Cli, root: Path) -> None:
    """It shows the values with their declared types and the prepared delta, while another process has the state open."""
    totals = declared(command.folder, "Totals")
    fill_totals(root, totals)
    with opened(root, totals, 0) as state:
        state.prepare(Delta({"readings": 5}, StatePosition({"readings": 7}), {b"m1": None}))
    with worker(root, identity_of(totals, 0)):
        shown = command.ok("state", "show", "app.py:Totals", "--limit", "2")
        found = json.loads(command.ok("state", "show", "app.py:Totals", "--key", "m2", "--json"))

    assert '{"litres": 10, "readings": 1}' in shown
    assert "m2" not in shown
    assert "1 changes from readings 5 to readings 7" in shown
    assert found["position"] == {"offsets": {"readings": 99}}
    assert found["entries"] == [{"key": "m2", "window": None, "value": {"litres": 20, "readings": 2}}]


def test_inspect_decodes_windows(command: Cli, root: Path, place: LocalFileStore) -> None:
    """It shows an aggregator's keys, windows and monoid values, also from an older backup."""
    hours: type[Aggregator] = declared(command.folder, "Hours")
    monoid = hours.monoid
    mean = monoid.encode(monoid.combine(monoid.lift(1), monoid.lift(2)))
    with opened(root, hours, 1) as state:
        state.save_together(
            {encode_window_key(key, n * HOUR): mean for key in "ab" for n in range(2)}, StatePosition({"readings": 4})
        )
    manifest = back_up(place, root, hours, 1)
    with opened(root, hours, 1) as state:
        state.save({encode_window_key("a", 0): None})
    shown = command.ok("state", "show", "app.py:Hours", "--key", "a")
    options = ["--bucket", "1", "--backup", "place", "--backup-id", str(manifest.id), "--json"]
    found = json.loads(command.ok("state", "show", "app.py:hours", "--key", "a", *options))

    assert "1970-01-01 01:00:00 to 1970-01-01 02:00:00  1.5" in shown
    assert "1970-01-01 00:00:00 to" not in shown
    assert [(entry["window"], entry["value"]) for entry in found["entries"]] == [
        ([0, HOUR], 1.5),
        ([HOUR, 2 * HOUR], 1.5),
    ]


def test_inspect_shows_timers_and_watermarks(command: Cli, root: Path) -> None:
    """It shows the next timers in order, optionally of one key, and the watermark of each input."""
    totals = declared(command.folder, "Totals")
    with opened(root, totals, 0) as state:
        pending = Timers(Clock.EVENT, state)
        for at in (3 * HOUR, HOUR):
            pending.set("m1", f"after {at // HOUR}", at)
        pending.set("m2", "", 2 * HOUR)
        time = ShardTime({"readings": BoundedOutOfOrderness()}, state)
        time.observe("readings", [HOUR // 2])
        state.save_together(pending.drain() | time.drain(), StatePosition({"readings": 1}))
    shown = command.ok("state", "show", "app.py:Totals", "--bucket", "0")
    found = json.loads(command.ok("state", "show", "app.py:Totals", "--bucket", "0", "--key", "m1", "--json"))

    assert "readings 1970-01-01 00:30:00" in shown
    assert re.search(r"01:00:00 +m1 +after 1.*02:00:00 +m2.*03:00:00 +m1 +after 3", shown, re.DOTALL)
    assert found["timers"] == [["m1", [HOUR, "after 1", "event time"]], ["m1", [3 * HOUR, "after 3", "event time"]]]
    assert found["watermarks"] == {"readings": HOUR // 2}


def test_inspect_refuses_a_different_state_layout(command: Cli, root: Path) -> None:
    """The error compares the stored type with the declared one."""
    fill_totals(root, declared(command.folder, "Totals"))
    (command.folder / "app.py").write_text(APP.replace("state = readings, Total", "state = readings, int"))
    done = command("state", "show", "app.py:Totals")

    assert done.returncode == 1
    assert "has another type: it contains Total by meter" in done.stderr
    assert "now declares int by meter" in done.stderr


# Errors.


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["verify"], "No backup store is named"),
        (["show", "unknown"], "There is no state of processor 'unknown'"),
        (["verify", "--backup", "s3://bucket/x"], "s3 is not supported"),
        (["verify", "--backup", "place"], "Available: none"),
        (["restore", "unknown", "--backup", "place"], "There is no state of processor 'unknown'"),
        (
            ["restore", "totals", "--backup", "hdfs://127.0.0.1:1/b", "--webhdfs", "http://127.0.0.1:1"],
            "nothing listens at 127.0.0.1:1",
        ),
        (
            ["show", "--backup", "hdfs://127.0.0.1:1/b", "--webhdfs", "http://127.0.0.1:1"],
            "nothing listens at 127.0.0.1:1",
        ),
        (["show", "app.py:Large"], "has no state"),
        (["show", "app.py:Missing"], "has no processor 'Missing'"),
        (["show", "app.py:Totals"], "There is no state of processor 'totals'"),
    ],
)
def test_errors_say_what_to_do(arguments: list[str], expected: str, command: Cli) -> None:
    """Each prints one paragraph on standard error with exit code 1, without a stack trace."""
    done = command("state", *arguments)

    assert done.returncode == 1
    assert expected in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_state_in_another_format_is_named(command: Cli, root: Path) -> None:
    """The error contains the unsupported format."""
    totals = declared(command.folder, "Totals")
    with opened(root, totals, 0) as state:
        state._families["identity"][b"identity"] = json.dumps({"format": 99}).encode()
    done = command("state", "show", "app.py:Totals")

    assert done.returncode == 1
    assert "has format 99" in done.stderr


@pytest.mark.parametrize("name", ["show", "verify", "restore"])
def test_each_command_has_an_example(name: str, command: Cli) -> None:
    """Its help shows one."""
    assert f"Example: penstock state {name}" in command.ok("state", name, "--help")


@pytest.mark.exhaustive
def test_state_commands_work_on_hdfs(command: Cli, root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Backups on a real HDFS are listed, verified, restored and inspected."""
    totals = declared(command.folder, "Totals")
    fill_totals(root, totals)
    with running_hdfs(tmp_path_factory.mktemp("hdfs")) as endpoints:
        where = ["--backup", f"{endpoints['rpc']}/backups", "--webhdfs", endpoints["webhdfs"]]
        manifest = back_up(open_file_store(where[1], where[3]), root, totals)
        fill_totals(root, totals, offset=50)
        listed = json.loads(command.ok("state", "show", "--json", *where))
        verified = json.loads(command.ok("state", "verify", "--json", *where))
        seen = command.ok("state", "show", "app.py:Totals", "--backup-id", str(manifest.id), *where)
        command.ok("state", "restore", "totals", *where)
    with opened(root, totals, 0) as state:
        position = state.position()

    assert listed[0]["backups"]["position"] == {"offsets": {"readings": 5}}
    assert [verdict["good"] for verdict in verified] == [True]
    assert '{"litres": 10, "readings": 1}' in seen
    assert position == StatePosition({"readings": 5})


# Backups in the output of a run.


def test_a_run_reports_the_age_of_its_backups(
    cli: Cli, app: Path, prefix: str, wait_until: Callable[..., None]
) -> None:
    """Its final JSON has the age of the oldest backup and the number of shards without one, or null and 0 without a backup store."""
    cli.ok("category", "create", str(app))
    cli.ok("category", "send", f"{prefix}.large", "--app", str(app), stdin=readings(100))
    bare = json.loads(cli.ok("run", f"{app}:Totals", "--until-end", "--json"))
    began_s = time.monotonic()
    worker = cli.start("run", f"{app}:Totals", "--json", "--backup", "place", "--backup-every", "1")
    shards = [ShardBackups(LocalFileStore(cli.folder / "place"), f"{prefix}.totals", bucket) for bucket in range(4)]
    for count in (1, 2):  # before the second, the run has detected the first
        cli.ok("category", "send", f"{prefix}.large", "--app", str(app), stdin=readings(100))
        wait_until(lambda count=count: all(len(shard.ids()) >= count for shard in shards))
    worker.terminate()
    summary = json.loads(worker.communicate(timeout=60)[0])
    took_s = time.monotonic() - began_s

    assert (bare["backup_age_s"], bare["shards_without_backup"]) == (None, 0)
    assert 0 <= summary["backup_age_s"] < took_s
    assert summary["shards_without_backup"] == 0


def test_a_run_shows_late_backups(cli: Cli, app: Path, prefix: str) -> None:
    """A terminal's progress line shows them; without any backup, the JSON has no age but the number of missing backups."""
    cli.ok("category", "create", str(app))
    cli.ok("category", "send", f"{prefix}.large", "--app", str(app), stdin=readings(100))
    (cli.folder / "file").touch()
    screen, terminal = os.openpty()
    options = ["--json", "--backup", "file/place", "--backup-every", "1"]
    command = [sys.executable, "-m", "penstock", "run", f"{app}:Totals", *options]
    environment = {**cli.environment, "TERM": "xterm"}
    with subprocess.Popen(
        command, cwd=cli.folder, env=environment, stdout=subprocess.PIPE, stderr=terminal, text=True
    ) as worker:
        os.close(terminal)
        try:
            shown = read_until(screen, rb"Totals, \d of 4 shards without a backup for \d+ s")
            worker.terminate()
            read_until(screen, rb"$^")
            summary = json.loads(worker.communicate(timeout=60)[0])
        finally:
            worker.kill()
            os.close(screen)

    assert shown
    assert (summary["backup_age_s"], summary["shards_without_backup"]) == (None, 4)


def test_a_run_to_the_end_backs_up_its_final_state(cli: Cli, app: Path, prefix: str) -> None:
    """No regular backup is due. If the store is unreachable, the run fails, says so, and has saved its results."""
    cli.ok("category", "create", str(app))
    cli.ok("category", "send", f"{prefix}.large", "--app", str(app), stdin=readings(100))
    target = f"{app}:Totals"
    cli.ok("run", target, "--until-end", "--backup", "place")
    listed = json.loads(cli.ok("state", "show", f"{prefix}.totals", "--backup", "place", "--json"))
    cli.ok("category", "send", f"{prefix}.large", "--app", str(app), stdin=readings(100))
    (cli.folder / "file").touch()
    failed = cli("run", target, "--until-end", "--backup", "file/place", "--stop-within", "1")
    again = cli("run", target, "--until-end", "--json", "--backup", "place")

    assert [shard["local"]["position"] for shard in listed] == [shard["backups"]["position"] for shard in listed]
    assert len(listed) == 4
    assert failed.returncode == 1
    assert f"4 of 4 shards have no backup of their final state at {cli.folder / 'file/place'}" in failed.stderr
    assert (again.returncode, json.loads(again.stdout)["events_in"]) == (0, 0)


def read_until(screen: int, pattern: bytes) -> bool:
    """Read a terminal's output up to the given text; return whether the text came before the terminal's end."""
    seen = b""
    while not re.search(pattern, seen):
        assert select.select([screen], [], [], 240.0)[0], seen
        try:
            seen += os.read(screen, 10_000)
        except OSError:  # the last program that wrote to it has ended
            return False
    return True
