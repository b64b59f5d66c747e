"""Laser tables of a warehouse: the newest complete day, never a mix of two."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis
from rocksdict import DbClosedError, Rdict
from support.laser_site import redis_server, wait_for

from penstock.ops.laser import daily_pairs
from penstock.ops.laser.daily_pairs import DailyPairs
from penstock.ops.laser.days import SUCCESS, DailyTable, Days, DaysUnreadable
from penstock.ops.laser.pairs import NotServed
from penstock.state.files.local_files import LocalFileStore

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
    with closing(DailyPairs(DailyTable("t", LocalFileStore(root), key, value), state, look_every_s=0.01)) as pairs:
        pairs.start()
        yield pairs


def test_a_new_day_replaces_the_one_before_at_once(tmp_path: Path) -> None:
    """Under reads, each MGET has the values of one day, and none goes back to an earlier day. Only the newest database remains."""
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
        for day in days[1:]:
            write_day(tmp_path / "w", day, rows_of(day))
            wait_for(lambda day=day: pairs.day == day)  # type: ignore[misc]  # binds the loop's value
        stopped.set()
        for reader in readers:
            reader.join()

    assert mixed == []
    assert {*order} <= {*days}
    assert len({*order}) > 1
    assert [path.name for path in (tmp_path / "s").iterdir() if path.is_dir()] == [days[-1]]


def test_an_incomplete_day_is_not_served(tmp_path: Path) -> None:
    """Without its mark, if other days have one; otherwise, while its files change."""
    root = tmp_path / "w"
    write_day(root, "2026-11-01", rows_of("1"))
    write_day(root, "2026-11-02", rows_of("2"), is_marked=False)
    marked = Days(LocalFileStore(root))
    assert [marked.newest() and marked.newest().name for _ in range(2)] == ["2026-11-01"] * 2  # type: ignore[union-attr]
    (root / "ds=2026-11-01" / SUCCESS).unlink()
    unmarked = Days(LocalFileStore(root))
    assert unmarked.newest() is None
    write_day(root, "2026-11-02", rows_of("2"), files=3, is_marked=False)
    found = unmarked.newest()
    assert found is not None
    assert found.name == "2026-11-01"
    found = unmarked.newest()
    assert found is not None

    assert (found.name, len(found.listing)) == ("2026-11-02", 3)


def test_a_restart_serves_the_last_day_at_once(tmp_path: Path) -> None:
    """Also if the warehouse is gone. Other columns are loaded anew."""
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
    """Twice, too; a day that disappears is still served."""
    root = tmp_path / "w"
    with days_served(root, tmp_path / "s") as pairs:
        for version in "abc":
            write_day(root, "2026-11-02", [{"key": "k", "value": version}], files=1)
            wait_for(lambda version=version: pairs.is_complete and pairs.fetch([b"k"])[0].value == version.encode())  # type: ignore[misc,union-attr]
        write_day(root, "2026-11-01", [{"key": "k", "value": "earlier"}])
        shutil.rmtree(root / "ds=2026-11-02")
        pairs.load_newest()

        assert pairs.day == "2026-11-02"


@pytest.mark.parametrize("seed", range(3))
def test_the_last_row_of_a_key_wins(tmp_path: Path, seed: int) -> None:
    """By event time, as archives have it. Keys of several columns are joined, and several values are one object."""
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
    """With the file, its columns and what to do."""
    write_day(tmp_path / "w", "2026-11-01", [{"key": "k", "value": "v", "number": 0.5}])
    pairs = DailyPairs(DailyTable("t", LocalFileStore(tmp_path / "w"), (key,), (value,)), tmp_path / "s")

    with pytest.raises(DaysUnreadable, match=reason):
        pairs.load_newest()
    assert not pairs.is_complete
