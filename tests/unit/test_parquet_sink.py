"""Parquet files as a sink: whenever workers die or wake up, the files contain each row once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from support.disks import Disk
from support.faulty import Faults
from support.kinds import KINDS
from support.mortal import Crash
from support.mortals import Trial
from support.subjects import EXACT, LEAST, MEMORY, Subject

import penstock as ps
from penstock.backfill.outputs.parquet_sink import ParquetWriter
from penstock.backfill.warehouse import RecordColumns
from penstock.processors import CallRetry
from penstock.processors.declare import plan_of
from penstock.state import FileStoreUnreachable
from penstock.state.files import LocalFileStore
from penstock.transport import CommitUnconfirmed


class Row(ps.Record, frozen=True):
    """A row."""

    number: int
    tags: list[str] = msgspec.field(default_factory=list)
    at: ps.EventTime = 0


class FaultyFiles(LocalFileStore):
    """Files whose requests may fail, before they happen or before their answer."""

    def __init__(self, root: Path, faults: Faults) -> None:
        super().__init__(root)
        self._faults = faults

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        self._faults.at("files: write")
        super().write(path, chunks)
        self._faults.at("files: written")

    def list_folder(self, folder: str) -> dict[str, int | None]:
        self._faults.at("files: list")
        return super().list_folder(folder)

    def delete(self, path: str) -> None:
        self._faults.at("files: delete")
        super().delete(path)
        self._faults.at("files: deleted")


class FileTrial(Trial):
    """A subject whose rows are in files."""

    def __init__(self, kind: str, root: Path, deaths: Iterable[Crash] = ()) -> None:
        super().__init__(Subject(kind, EXACT if kind == "stateful" else LEAST, LEAST, sink=MEMORY), list(deaths))
        self._root = root
        files = FaultyFiles(root, self.driver._moments)
        columns = RecordColumns(KINDS[kind].written)
        self.driver.open_sink = lambda _: ParquetWriter(files, columns, "files")

    def _read(self, name: str) -> list[dict[str, Any]]:
        return rows_in(self._root)


def rows_in(root: Path) -> list[dict[str, Any]]:
    """Return the rows of all files below a folder, in the order of their names."""
    return [row for path in sorted(root.rglob("*.parquet")) for row in pq.read_table(path).to_pylist()]


def expect_each_row_once(trial: FileTrial) -> None:
    """Expect the guarantees of the subject, and no repeated row."""
    trial.expect_kept()
    assert sorted(row["number"] for row in trial.outputs) == sorted(event.number for event in trial.events)


@pytest.mark.parametrize("kind", ["stateless", "stateful"])
def test_files_contain_each_row_once_whenever_workers_die(kind: str, tmp_path: Path) -> None:
    """Workers die before each sort of operation, and soon after again; successors replace the files of interrupted checkpoints."""
    whole = FileTrial(kind, tmp_path / "whole")
    whole.run()
    expect_each_row_once(whole)
    moments = whole.driver.moments
    third = len(moments) // 3
    places = {label: moments.index(label, third) for label in sorted(set(moments[third:]))}
    places["files: delete"] = places["files: written"]  # only after a death
    for number, at in enumerate(places.values()):
        for disk in (Disk.SAME, Disk.NONE) if kind == "stateful" else (Disk.SAME,):
            deaths = [Crash(at, disk), Crash(at + 4 + number % 9, Disk.SAME)]
            trial = FileTrial(kind, tmp_path / f"{number}-{disk.name}", deaths)
            trial.run()

            assert trial.driver.died
            expect_each_row_once(trial)


def test_rows_of_an_unconfirmed_checkpoint_are_in_the_next_file(tmp_path: Path) -> None:
    """The checkpoint after it begins at the same offset, replaces its file, and so contains its rows."""
    trial = FileTrial("stateless", tmp_path)
    left = [3, 7, 8]

    def fails(name: str, _: int) -> Exception | None:
        if name != "bus: commit":
            return None
        left[:] = [commits - 1 for commits in left]
        return CommitUnconfirmed("no answer") if 0 in left else None

    trial.driver._moments.fails = fails
    trial.run()

    assert max(left) < 0
    expect_each_row_once(trial)


def batch(first: int, *numbers: int, resets: int = 0) -> ps.sinks.SinkBatch:
    """Return the rows of a checkpoint of bucket 0."""
    return ps.sinks.SinkBatch("it", 0, {"clicks": first}, [Row(number) for number in numbers], "", LEAST, resets)


def numbers_in(root: Path) -> list[int]:
    """Return the numbers of all rows."""
    return sorted(row["number"] for row in rows_in(root))


def claimed(sink: ps.sinks.ParquetSink) -> ps.sinks.SinkWriter:
    """Return a writer that has claimed bucket 0."""
    writer = sink.open()
    writer.claim("it", 0)
    return writer


def test_a_first_checkpoint_removes_what_begins_there_or_later(tmp_path: Path) -> None:
    """It may have no rows. Earlier files and those of other buckets, of other writers and from before a reset stay."""
    sink = ps.sinks.ParquetSink(str(tmp_path), Row)
    dead = claimed(sink)
    dead.write(batch(0, 1))
    dead.write(batch(5, 6, 7))
    dead.write(batch(5, 50, resets=1))
    (tmp_path / "clicks" / "00000" / "mine.parquet").write_bytes(min(tmp_path.rglob("*.parquet")).read_bytes())
    successor = claimed(sink)
    successor.write(batch(3))
    successor.write(batch(4, 6, 7))

    assert numbers_in(tmp_path) == [1, 1, 6, 7, 50]


def test_a_worker_that_another_one_has_replaced_writes_nothing(tmp_path: Path) -> None:
    """It paused before its write, or during it."""
    sink = ps.sinks.ParquetSink(str(tmp_path), Row)
    paused = claimed(sink)
    successor = claimed(sink)
    successor.write(batch(5, 5, 6, 7))
    with pytest.raises(ps.sinks.SinkFenced, match=r"it, bucket 0: another worker has claimed"):
        paused.write(batch(5, 5, 6))

    assert numbers_in(tmp_path) == [5, 6, 7]
    faults, columns = Faults(), RecordColumns(Row)
    within = ParquetWriter(FaultyFiles(tmp_path, faults), columns, "files")
    within.claim("it", 0)
    taken: list[ps.sinks.SinkWriter] = []
    faults.fails = lambda name, _: taken.append(claimed(sink)) if name == "files: write" else None
    with pytest.raises(ps.sinks.SinkFenced):
        within.write(batch(8, 8))
    assert numbers_in(tmp_path) == [5, 6, 7]
    taken[0].write(batch(8, 8, 9))
    assert numbers_in(tmp_path) == [5, 6, 7, 8, 9]


def test_rows_have_the_columns_of_their_record(tmp_path: Path) -> None:
    """Lists and records are columns of their own types; the folder reads as one table."""
    writer = ps.sinks.ParquetSink(str(tmp_path), Row).open()
    writer.claim("it", 3)
    writer.write(ps.sinks.SinkBatch("it", 3, {"clicks": 0}, [Row(1, ["a"], 7), Row(2)], "", LEAST))

    assert rows_in(tmp_path) == [{"number": 1, "tags": ["a"], "at": 7}, {"number": 2, "tags": [], "at": 0}]
    assert [path.relative_to(tmp_path).parent for path in tmp_path.rglob("*.parquet")] == [Path("clicks/00003")]


def test_an_unreachable_store_is_an_outage(tmp_path: Path) -> None:
    """The worker returns to its last checkpoint and waits."""
    faults = Faults()
    faults.fails = lambda *_: FileStoreUnreachable("The store does not answer.")
    writer = ParquetWriter(FaultyFiles(tmp_path, faults), RecordColumns(Row), "files", CallRetry(0.05))
    with pytest.raises(ps.sinks.SinkUnreachable, match=r"does not answer.*nothing is lost"):
        writer.claim("it", 0)


def test_a_folder_that_refuses_rows_ends_the_worker_at_once(tmp_path: Path) -> None:
    """A user must correct the path or its rights, so nothing is repeated."""
    (tmp_path / "file").touch()

    def wait(_: float) -> None:
        raise AssertionError("it waits")

    writer = ParquetWriter(
        LocalFileStore(tmp_path / "file" / "rows"), RecordColumns(Row), "files", CallRetry(240, pause=wait)
    )
    with pytest.raises(
        ps.sinks.SinkRefused, match=r"cannot be written.*A file is where a folder should be.*nothing is lost"
    ):
        writer.claim("it", 0)


@pytest.mark.parametrize("kind", ["timers", "closing", "ordered", "merging"])
def test_outputs_without_an_event_of_their_own_are_refused(kind: str, tmp_path: Path) -> None:
    """The first offset would not identify a batch."""
    processor = Subject(kind, EXACT, LEAST).make("x")
    processor.writes = ps.sinks.ParquetSink(str(tmp_path), KINDS[kind].written)
    with pytest.raises(ps.errors.DeclarationError, match=r"name of their first event.*stateless processor copy"):
        plan_of(processor).check()


@pytest.mark.parametrize("location", ["gs://bucket/rows", "s3://bucket", "hdfs://name-only"])
def test_an_unsupported_location_is_refused(location: str) -> None:
    """Nothing is read."""
    with pytest.raises(ps.sinks.SinkRefused, match=r"cannot be written.*Nothing was read or written"):
        ps.sinks.ParquetSink(location, Row).open()


def test_a_folder_that_refuses_access_stops_the_worker(tmp_path: Path) -> None:
    """Waiting would not help; the error names the folder."""
    (tmp_path / "file").touch()
    writer = ps.sinks.ParquetSink(str(tmp_path / "file" / "rows"), Row).open()
    with pytest.raises(ps.sinks.SinkRefused, match=r"cannot be written.*rows.*start again"):
        writer.claim("counter", 0)
