"""Laser tables of a warehouse: the newest complete day, never a mix of two."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis
from rocksdict import DbClosedError, Rdict
from support.laser_site import redis_server, wait_for

from penstock.ops.deploy import (
    DayTable,
    DeployedProcessor,
    DeployedServer,
    DeploymentFiles,
    DeploymentRequest,
    DeploymentSettings,
    Version,
    databases_folder,
    observed_deployments,
    plan_deployment,
    stand_in_for,
)
from penstock.ops.deploy.process_supervisor import ProcessState, ProcessStatus
from penstock.ops.deploy.registry import DesiredState
from penstock.ops.serve.latest import daily_pairs
from penstock.ops.serve.latest.daily_pairs import DailyPairs
from penstock.ops.serve.latest.days import SUCCESS, DailyTable, DaysUnreadable, TableDays
from penstock.ops.serve.latest.pairs import NotServed
from penstock.ops.shell import SteeredClock
from penstock.ops.status import Alerts, ClusterStatus
from penstock.ops.status.alerts.evaluation import evaluate
from penstock.ops.status.alerts.rules import DEFAULTS
from penstock.ops.status.metrics import metric_values
from penstock.ops.status.servers import ServerStatus, server_findings, servers_of
from penstock.processors.apps import AppName
from penstock.state.files import LocalFileStore
from penstock.transport.memory import MemoryBus

DECEMBER_MS = int(datetime(2026, 12, 1, tzinfo=UTC).timestamp() * 1000)
KEYS = [f"k{number}".encode() for number in range(300)]


def write_day(root: Path, day: str, rows: list[dict[str, Any]], *, files: int = 2, is_marked: bool = True) -> None:
    """Write the rows of a day as Parquet files."""
    folder = root / f"ds={day}"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        pq.write_table(pa.Table.from_pylist(rows[number::files] or rows[:1]), folder / f"{number}.parquet")
    if is_marked:
        (folder / SUCCESS).touch()


def rows_of(day: str) -> list[dict[str, Any]]:
    """Return a row for each key with the day as its value."""
    return [{"key": key.decode(), "value": day} for key in KEYS]


@contextmanager
def days_served(
    root: Path, state: Path, key: tuple[str, ...] = ("key",), value: tuple[str, ...] = ("value",)
) -> Iterator[DailyPairs]:
    """Serve the newest day of a table."""
    table, clock = DailyTable("t", LocalFileStore(root), key, value), SteeredClock(DECEMBER_MS)
    with closing(DailyPairs(table, state, look_every_s=0.01, clock=clock)) as pairs:
        pairs.start()
        yield pairs


def test_a_new_day_replaces_the_one_before_at_once(tmp_path: Path) -> None:
    """Each MGET has the values of one day, and no later one returns to an earlier day. Only the newest database remains."""
    days = [f"2026-11-{number:02d}" for number in range(1, 9)]
    write_day(tmp_path / "w", days[0], rows_of(days[0]))
    mixed, order, stopped = list[Any](), list[str](), Event()
    with days_served(tmp_path / "w", tmp_path / "s") as pairs, redis_server("t", pairs) as port:
        wait_for(lambda: pairs.is_complete)

        def read() -> None:
            with closing(redis.Redis(port=port, decode_responses=True)) as client:
                while not stopped.is_set():
                    found = client.mget(KEYS)
                    if len(set(found)) != 1 or None in found:
                        mixed.append(set(found))
                    order.append(str(found[0]))

        readers = [Thread(target=read) for _ in range(2)]
        for reader in readers:
            reader.start()
        wait_for(lambda: days[0] in order)
        for day in days[1:]:
            write_day(tmp_path / "w", day, rows_of(day))
            wait_for(lambda day=day: day in order)  # type: ignore[misc]  # binds the loop's value
        stopped.set()
        for reader in readers:
            reader.join()

    assert mixed == []
    assert {*order} == {*days}
    assert [path.name for path in (tmp_path / "s").iterdir() if path.is_dir()] == [days[-1]]


def test_an_incomplete_day_is_not_served(tmp_path: Path) -> None:
    """It lacks its mark while other days have one. Without marks, its files are still changing."""
    root = tmp_path / "w"
    write_day(root, "2026-11-01", rows_of("1"))
    write_day(root, "2026-11-02", rows_of("2"), is_marked=False)
    marked = TableDays(LocalFileStore(root))
    assert [marked.newest() and marked.newest().name for _ in range(2)] == ["2026-11-01"] * 2  # type: ignore[union-attr]
    (root / "ds=2026-11-01" / SUCCESS).unlink()
    unmarked = TableDays(LocalFileStore(root))
    assert unmarked.newest() is None
    write_day(root, "2026-11-02", rows_of("2"), files=3, is_marked=False)
    found = unmarked.newest()
    assert found is not None
    assert found.name == "2026-11-01"
    found = unmarked.newest()
    assert found is not None

    assert (found.name, len(found.listing)) == ("2026-11-02", 3)


def test_a_restart_serves_the_last_day_at_once(tmp_path: Path) -> None:
    """The warehouse may be missing. Other columns are loaded again."""
    write_day(tmp_path / "w", "2026-11-01", rows_of("1"))
    with days_served(tmp_path / "w", tmp_path / "s") as pairs:
        wait_for(lambda: pairs.is_complete)
    shutil.rmtree(tmp_path / "w")
    with days_served(tmp_path / "w", tmp_path / "s") as pairs:
        assert (pairs.day, pairs.fetch([b"k1"])[0].value) == ("2026-11-01", b"1")  # type: ignore[union-attr]
        wait_for(lambda: "no folder of a day" in pairs.problem)
    with (
        days_served(tmp_path / "w", tmp_path / "s", value=("key",)) as pairs,
        pytest.raises(NotServed, match="no complete day"),
    ):
        pairs.fetch([b"k1"])


def test_a_day_that_is_written_again_is_loaded_again(tmp_path: Path) -> None:
    """The day may be written again more than once."""
    root = tmp_path / "w"
    with days_served(root, tmp_path / "s") as pairs:
        for version in "abc":
            write_day(root, "2026-11-02", [{"key": "k", "value": version}], files=1)
            wait_for(lambda version=version: pairs.is_complete and pairs.fetch([b"k"])[0].value == version.encode())  # type: ignore[misc,union-attr]


def value_of(pairs: DailyPairs) -> str:
    """Return the day of the values."""
    [pair] = pairs.fetch(KEYS[:1])
    return "" if pair is None else pair.value.decode()


def test_a_removed_day_is_no_longer_served(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The newest remaining day is served, also if it is written again. Without any day, the last one stays."""
    root, days = tmp_path / "w", ("2026-11-01", "2026-11-02")
    for day in days:
        write_day(root, day, rows_of(day))
    with days_served(root, tmp_path / "s") as pairs:
        wait_for(lambda: pairs.day == days[1])
        shutil.rmtree(root / "ds=2026-11-02")
        wait_for(lambda: pairs.day == days[0])
        assert value_of(pairs) == days[0]
        assert "day 2026-11-02 was removed" in caplog.text
        write_day(root, days[0], rows_of("corrected"))
        wait_for(lambda: value_of(pairs) == "corrected")
        shutil.rmtree(root / "ds=2026-11-01")
        wait_for(lambda: "contains no folder of a day" in pairs.problem)

        assert value_of(pairs) == "corrected"


def test_a_day_that_is_missing_for_a_moment_stays(tmp_path: Path) -> None:
    """A job may be replacing it."""
    root, days = tmp_path / "w", ("2026-11-01", "2026-11-02")
    for day in days:
        write_day(root, day, rows_of(day))
    clock = SteeredClock(DECEMBER_MS)
    pairs = DailyPairs(DailyTable("t", LocalFileStore(root), ("key",), ("value",)), tmp_path / "s", clock=clock)
    (tmp_path / "s").mkdir()
    with closing(pairs):
        pairs.load_newest()
        shutil.move(root / "ds=2026-11-02", tmp_path / "aside")
        pairs.load_newest()
        shutil.move(tmp_path / "aside", root / "ds=2026-11-02")
        pairs.load_newest()
        shutil.move(root / "ds=2026-11-02", tmp_path / "aside")
        pairs.load_newest()

        assert pairs.day == days[1]
        pairs.load_newest()
        assert pairs.day == days[0]


@pytest.mark.parametrize("name", ["2099-01-01", "2026-99-99", "2026-12-03"])
def test_a_day_of_the_future_does_not_block_the_others(tmp_path: Path, name: str) -> None:
    """The server names its folder."""
    root = tmp_path / "w"
    write_day(root, name, rows_of(name))
    write_day(root, "2026-11-01", rows_of("2026-11-01"))
    with days_served(root, tmp_path / "s") as pairs:
        wait_for(lambda: pairs.day == "2026-11-01" and f"ds={name}" in pairs.problem)
        write_day(root, "2026-12-02", rows_of("2026-12-02"))  # tomorrow, which is today elsewhere
        wait_for(lambda: pairs.day == "2026-12-02")


@pytest.mark.parametrize("kind", ["date", "unexpected"])
def test_a_day_that_cannot_be_loaded_does_not_end_the_loading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The last day is served with the reason, and the next good day replaces it."""
    root = tmp_path / "w"
    write_day(root, "2026-11-01", rows_of("2026-11-01"))
    with days_served(root, tmp_path / "s") as pairs:
        wait_for(lambda: pairs.day == "2026-11-01")
        if kind == "date":
            bad = root / "ds=2026-11-02"
            bad.mkdir()
            pq.write_table(pa.table({"key": ["a"], "value": pa.array([2**52], pa.timestamp("ms"))}), bad / "0.parquet")
            (bad / SUCCESS).touch()
            wait_for(lambda: "after the year 9999" in pairs.problem)
        else:
            with monkeypatch.context() as patches:
                patches.setattr(TableDays, "newest", lambda _: 1 // 0)
                wait_for(lambda: "ZeroDivisionError" in pairs.problem)
        assert value_of(pairs) == "2026-11-01"
        write_day(root, "2026-11-03", rows_of("2026-11-03"))

        wait_for(lambda: pairs.day == "2026-11-03" and not pairs.problem)


@pytest.mark.parametrize("seed", range(3))
def test_the_last_row_of_a_key_wins(tmp_path: Path, seed: int) -> None:
    """Archives order rows by event time. Keys of several columns are joined, and several values are one object."""
    dice = random.Random(seed)
    times = dice.sample(range(10_000), 400)
    rows: list[dict[str, Any]] = [
        {"a": f"a{dice.randrange(5)}", "b": dice.randrange(5), "v": at * 2, "w": None, "_event_time": at}
        for at in times
    ]
    write_day(tmp_path / "w", "2026-11-01", [*rows, {"a": None, "b": 1, "v": 1, "w": None, "_event_time": 1}], files=3)
    expected = {f"{row['a']}:{row['b']}": row["v"] for row in sorted(rows, key=lambda row: row["_event_time"])}
    with days_served(tmp_path / "w", tmp_path / "s", ("a", "b"), ("v", "w")) as pairs:
        wait_for(lambda: pairs.is_complete)
        keys, following = pairs.scan(0, b"", 7)
        while following is not None:
            page, following = pairs.scan(*following, 7)
            keys += page
        found = [pair and json.loads(pair.value) for pair in pairs.fetch(keys)]

    assert sorted(keys) == sorted(key.encode() for key in expected)
    assert found == [{"v": expected[key.decode()], "w": None} for key in keys]


def test_a_day_may_have_subfolders_and_hives_names(tmp_path: Path) -> None:
    """Spark's unfinished attempts, hidden files and files of other kinds are not read. Texts may be encoded as a dictionary."""
    day = tmp_path / "w" / "ds=2026-11-01"
    kept = {"000000_0": "a", "hour=01/part-0.parquet": "b"}
    skipped = ("_temporary/0/part-1.parquet", ".part-0.parquet.crc", "notes.txt")
    for path, key in [*kept.items(), *((path, "skipped") for path in skipped)]:
        (day / path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"key": pa.array([key]).dictionary_encode(), "value": ["x"]}), day / path)
    (day / SUCCESS).touch()
    with days_served(tmp_path / "w", tmp_path / "s") as pairs:
        wait_for(lambda: pairs.is_complete)

        assert pairs.scan(0, b"", 10) == ([b"a", b"b"], None)
        assert pairs.is_text


class _RewrittenWhileRead(LocalFileStore):
    """Files of which one is written again as soon as the other has been read."""

    is_rewritten = False

    def read(self, path: str, start: int = 0) -> Iterator[bytes]:
        yield from super().read(path, start)
        if not self.is_rewritten:
            self.is_rewritten = True
            write_day(Path(self.location), "2026-11-01", rows_of("again"))


def test_a_day_that_is_written_again_while_it_is_read_is_not_served_half(tmp_path: Path) -> None:
    """Its first file would be of one version, and its second of another one."""
    write_day(tmp_path / "w", "2026-11-01", rows_of("1"))
    files = _RewrittenWhileRead(tmp_path / "w")
    pairs = DailyPairs(DailyTable("t", files, ("key",), ("value",)), tmp_path / "s")
    (tmp_path / "s").mkdir()
    with pytest.raises(DaysUnreadable, match="written again while it was read"):
        pairs.load_newest()
    assert not pairs.is_complete
    pairs.load_newest()

    assert {pair and pair.value for pair in pairs.fetch(KEYS)} == {b"again"}


class _Killed(BaseException):
    """The process is killed."""


class _Steps:
    """The steps that a load makes on the disk. In place of the n-th one, and of all later ones, the process is killed."""

    def __init__(self, patches: pytest.MonkeyPatch, number: int) -> None:
        self._left = number
        self.databases: list[Any] = []
        steps = ((daily_pairs, "_opened"), (daily_pairs, "replace_file"), (shutil, "rmtree"), (DailyPairs, "_keys"))
        for owner, name in steps:
            patches.setattr(owner, name, self._step(getattr(owner, name)))

    @property
    def are_over(self) -> bool:
        """Whether there were fewer steps."""
        return self._left >= 1

    def _step(self, call: Any) -> Any:
        def step(*arguments: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left <= 0:
                raise _Killed
            found = call(*arguments, **options)
            self.databases.append(found)
            return found

        return step

    def end(self) -> None:
        """Give the databases up, as the end of a process does."""
        for database in self.databases:
            if isinstance(database, Rdict):
                with suppress(DbClosedError):
                    database.close()


@pytest.mark.parametrize("number", range(1, 8))
def test_a_kill_at_any_step_of_a_load_leaves_one_whole_day(tmp_path: Path, number: int) -> None:
    """The next process serves it at once, the day before or the new one, and then the new one."""
    root, state, away = tmp_path / "w", tmp_path / "s", tmp_path / "away"
    write_day(root, "2026-11-01", rows_of("1"))
    with days_served(root, state) as pairs:
        wait_for(lambda: pairs.is_complete)
    write_day(root, "2026-11-02", rows_of("2"))
    killed = DailyPairs(DailyTable("t", LocalFileStore(root), ("key",), ("value",)), state)
    with pytest.MonkeyPatch.context() as patches:
        steps = _Steps(patches, number)
        with suppress(_Killed):
            killed.load_newest()
        steps.end()
    assert steps.are_over == (number == 7)  # each step of the load is a parameter
    shutil.move(root, away)
    with days_served(root, state) as pairs:
        at_once = {pair and pair.value for pair in pairs.fetch(KEYS)}
        shutil.move(away, root)
        wait_for(lambda: pairs.day == "2026-11-02")

        assert at_once in ({b"1"}, {b"2"})
        assert {pair and pair.value for pair in pairs.fetch(KEYS)} == {b"2"}


def test_a_scan_does_not_continue_on_another_day(tmp_path: Path) -> None:
    """Its keys would be of two days."""
    write_day(tmp_path / "w", "2026-11-01", rows_of("1"))
    with days_served(tmp_path / "w", tmp_path / "s") as pairs:
        wait_for(lambda: pairs.is_complete)
        _, following = pairs.scan(0, b"", 7)
        write_day(tmp_path / "w", "2026-11-02", rows_of("2"))
        wait_for(lambda: pairs.day == "2026-11-02")

        assert following is not None
        with pytest.raises(NotServed, match="new day"):
            pairs.scan(*following, 7)


@pytest.mark.parametrize(
    ("key", "value", "reason"), [("x", "value", "no column 'x'"), ("number", "key", "cannot be part")]
)
def test_a_day_without_the_columns_is_refused(tmp_path: Path, key: str, value: str, reason: str) -> None:
    """The error names the file, its columns and what to do."""
    write_day(tmp_path / "w", "2026-11-01", [{"key": "k", "value": "v", "number": 0.5}])
    pairs = DailyPairs(DailyTable("t", LocalFileStore(tmp_path / "w"), (key,), (value,)), tmp_path / "s")

    with pytest.raises(DaysUnreadable, match=reason):
        pairs.load_newest()
    assert not pairs.is_complete


LOCATION = "/w/category=tops"
DAY_MS = 86_400_000


def server_with(newest_day: str | None, now_ms: int = DECEMBER_MS) -> tuple[ServerStatus, ...]:
    """Return the status of a server of a table, deployed at the begin of November."""
    deployed = DeployedProcessor(
        "laser.tops.1@1",
        1,
        urls=("redis://127.0.0.1:8720",),
        deployed_ms=DECEMBER_MS - 30 * DAY_MS,
        day_table=DayTable(LOCATION, newest_day),
    )
    return servers_of({"laser.tops.1": deployed}, now_ms)


@pytest.mark.parametrize(
    ("newest_day", "age_days"),
    [("2026-12-01", 0), ("2026-11-30", 0), ("2026-11-29", 1), ("2026-11-28", 2), ("2026-11-27", 3), (None, 30)],
)
def test_a_table_without_a_new_day_is_a_finding_and_an_alert(newest_day: str | None, age_days: int) -> None:
    """The finding names the table, the served day, its age and what to do. A delay of some hours is not a finding."""
    servers = server_with(newest_day)
    found = tuple(server_findings(servers))
    changes = evaluate(DEFAULTS, ClusterStatus(DECEMBER_MS, (), found, servers), Alerts())

    assert servers[0].day_age_s == age_days * DAY_MS / 1000
    assert [finding.kind for finding in found] == ["old day"] * (age_days > 2)
    assert [change.key for change in changes] == [("old day", "laser.tops.1")] * (age_days > 2)
    for finding, change in zip(found, changes, strict=True):
        assert change.after is not None
        assert change.after.firing
        assert finding.message in change.after.message
        assert LOCATION in finding.message
        assert f"{age_days} days" in finding.message
        assert "`penstock logs laser.tops.1`" in finding.message
        assert newest_day is None or f"is {newest_day}, which ended" in finding.message


def test_only_servers_of_day_tables_have_an_age() -> None:
    """The other servers, and processors, have no finding, no alert and no metric."""
    other = servers_of({"scuba.c": DeployedProcessor("scuba.c@1", 1, urls=("http://h:1",), deployed_ms=0)}, DECEMBER_MS)
    cluster = ClusterStatus(DECEMBER_MS, (), (), other)
    values = {metric.name: metric.values for metric in metric_values(cluster)}
    served = {metric.name: metric.values for metric in metric_values(replace(cluster, servers=server_with(None)))}

    assert [*server_findings(other), *evaluate(DEFAULTS, cluster, Alerts())] == []
    assert values["penstock_served_day_age_seconds"] == []
    assert served["penstock_served_day_age_seconds"] == [(("laser.tops.1",), 30 * 86_400.0)]


def test_the_files_of_a_server_name_its_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They name it while the server does not answer, too."""
    monkeypatch.setattr(observed_deployments, "local_workers", lambda *_: Idle())
    settings = DeploymentSettings("broker:9092", str(tmp_path), str(tmp_path))
    server = DeployedServer(
        ("serve", "laser", "tops.1"), ("--parquet", LOCATION, "--key", "key"), ("redis://h:1",), has_worker=False
    )
    request = DeploymentRequest(
        AppName(tmp_path), stand_in_for("laser.tops.1", ()), settings, 1, take_over=True, server=server
    )
    plan = plan_deployment(request, MemoryBus(), {}, print)
    files = DeploymentFiles(tmp_path, "laser.tops.1")
    files.add_version(plan.version, plan.code)
    files.save_desired_state(DesiredState(1, (1,)))
    before = observed_deployments.observed_deployment(tmp_path, "laser.tops.1")
    write_day(tmp_path / "w", "2026-11-01", rows_of("1"))
    with days_served(tmp_path / "w", databases_folder(tmp_path / "state", "laser.tops.1")) as pairs:
        wait_for(lambda: pairs.is_complete)
    after = observed_deployments.observed_deployment(tmp_path, "laser.tops.1")

    assert before is not None
    assert after is not None
    assert [before.day_table, after.day_table] == [DayTable(LOCATION, None), DayTable(LOCATION, "2026-11-01")]


class Idle:
    """Workers without a process."""

    def process(self, worker: int) -> ProcessStatus:
        """Return the status of a worker."""
        return ProcessStatus(ProcessState.STOPPED)

    def restarts_ms(self, worker: int, version: Version) -> list[int]:
        """Return no restart."""
        return []
