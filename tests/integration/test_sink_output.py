"""Batch output in sinks: as often as the sink can guarantee, wherever the writer dies."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.batches import write_batch

import penstock as ps
from penstock.backfill import BackfillFailed, BackfillRefused
from penstock.backfill.outputs import FilledSink, expect_writable, must_compute_rows, stored_batch, write_rows
from penstock.backfill.warehouse import Days, Warehouse, open_warehouse
from penstock.processors.declare import RefusedRow, Sink, SinkBatch, SinkUnreachable, SinkWriter
from penstock.state.sinks import MemorySink
from penstock.transport.memory import MemoryBus

DAYS = Days(date(2013, 1, 1), date(2013, 1, 2))
LATER = Days(date(2013, 1, 3), date(2013, 1, 3))


class Total(ps.Record, frozen=True):
    """A row."""

    meter: str
    litres: int


def totals(count: int) -> list[Total]:
    """Return rows, each of them different."""
    return [Total(f"m{n % 5}", n) for n in range(count)]


class Killed(Exception):
    """The process died."""


@dataclass
class Death:
    """The process dies at one of its steps: before or after a part is written, or before or after its mark."""

    at: int

    def step(self) -> None:
        """Die, or go on."""
        self.at -= 1
        if self.at < 0:
            raise Killed


class MortalWriter:
    """A writer whose process may die."""

    def __init__(self, writer: SinkWriter, death: Death) -> None:
        self._writer, self._death = writer, death
        self.claim, self.close = writer.claim, writer.close

    def write(self, batch: SinkBatch) -> Sequence[RefusedRow] | None:
        """Write, and die before or after it."""
        self._death.step()
        refused = self._writer.write(batch)
        self._death.step()
        return refused


@dataclass(frozen=True)
class MortalSink(Sink):
    """A sink whose writer's process may die."""

    sink: Sink
    death: Death

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sink, name)

    name = property(lambda self: self.sink.name)
    record = property(lambda self: self.sink.record)
    semantics = property(lambda self: self.sink.semantics)
    replaces_rows = property(lambda self: self.sink.replaces_rows)

    def open(self) -> MortalWriter:
        """Open the sink."""
        return MortalWriter(self.sink.open(), self.death)


class MortalBus:
    """A bus whose process may die at a mark."""

    def __init__(self, bus: MemoryBus, death: Death) -> None:
        self._bus, self._death = bus, death

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    def writer(self, limit_s: float | None = None) -> Any:
        """Return a writer whose messages are lost if it dies."""
        writer, death = self._bus.writer(), self._death

        class MortalMarks:
            close = staticmethod(writer.close)
            flush = staticmethod(writer.flush)

            @staticmethod
            def send(category: str, messages: Any) -> None:
                death.step()
                writer.send(category, messages)
                death.step()

        return MortalMarks()


@dataclass(frozen=True)
class Posted(Sink):
    """A sink without positions, at most once, which lists its rows."""

    name = "posted"
    record = Total
    semantics = frozenset({ps.Semantics.AT_MOST_ONCE})
    rows: list[Any] = field(default_factory=list, compare=False)

    def open(self) -> Posted:
        """Return itself."""
        return self

    def claim(self, processor: str, bucket: int) -> str:
        """Return no position."""
        return ""

    def write(self, batch: SinkBatch) -> Sequence[RefusedRow]:
        """List rows."""
        assert batch.semantics is ps.Semantics.AT_MOST_ONCE
        self.rows.extend(batch.rows)
        return ()

    def close(self) -> None:
        """Do nothing."""


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> MemoryBus:
    """A bus for the marks, and small parts."""
    monkeypatch.setattr(stored_batch, "PART_RECORDS", 7)
    return MemoryBus()


def batch_of(folder: Path, sink: Sink, rows: Sequence[Total]) -> Warehouse:
    """Write a batch to files."""
    shutil.rmtree(folder, ignore_errors=True)
    write_batch(folder, sink, rows)
    return open_warehouse(folder)


def fill(bus: MemoryBus, batch: Warehouse, sink: Sink, days: Days = DAYS) -> FilledSink:
    """Write the batch."""
    return write_rows(bus, batch, sink, days, lambda *_: None)


def fill_with_deaths(bus: MemoryBus, batch: Warehouse, sink: Sink) -> int:
    """Write the batch, and die once at each step, each time after one step more. Return the number of deaths."""
    for deaths in range(1000):
        death = Death(deaths % 9)
        with suppress(Killed):
            write_rows(MortalBus(bus, death), batch, MortalSink(sink, death), DAYS, lambda *_: None)
            return deaths
    raise AssertionError("It never came to an end.")


def test_each_row_is_written_once_in_a_table_with_positions(bus: MemoryBus, tmp_path: Path) -> None:
    """Rows have the order of the batch."""
    table = MemorySink(Total)
    batch = batch_of(tmp_path, table, totals(80))
    assert fill_with_deaths(bus, batch, table) > 10

    assert list(table.rows) == totals(80)


def test_each_row_is_in_one_parquet_file(bus: MemoryBus, tmp_path: Path) -> None:
    """An interrupted file is replaced, and the rows of other days stay."""
    files = ps.sinks.ParquetSink(str(tmp_path / "rows"), Total)
    (tmp_path / "rows").mkdir()
    batch = batch_of(tmp_path / "batch", files, totals(80))
    assert fill_with_deaths(bus, batch, files) > 10
    later = batch_of(tmp_path / "later", files, [Total("later", 9)])
    fill(bus, later, files, LATER)

    found = pq.read_table(tmp_path / "rows", partitioning=None).to_pylist()
    assert Counter(row["litres"] for row in found if row["meter"] != "later") == Counter(range(80))
    assert [row["meter"] for row in found].count("later") == 1


def test_no_row_is_written_twice_at_most_once(bus: MemoryBus, tmp_path: Path) -> None:
    """A part whose outcome is unknown is not repeated."""
    posted = Posted()
    batch = batch_of(tmp_path, posted, totals(80))
    fill_with_deaths(bus, batch, posted)

    assert 0 < len(posted.rows) < 80
    assert max(Counter(posted.rows).values()) == 1


def test_rows_of_the_same_days_are_not_appended_again(bus: MemoryBus, tmp_path: Path) -> None:
    """Other days are appended. A batch that has begun must be finished first."""
    table = MemorySink(Total)
    batch = batch_of(tmp_path / "batch", table, totals(10))
    assert must_compute_rows(bus, batch, [table], DAYS)
    death = Death(6)
    with pytest.raises(Killed):
        write_rows(MortalBus(bus, death), batch, MortalSink(table, death), DAYS, lambda *_: None)
    assert not must_compute_rows(bus, batch, [table], DAYS)
    with pytest.raises(BackfillRefused, match=r"it contains 7 of 10 records of an earlier batch"):
        fill(bus, batch_of(tmp_path / "another", table, totals(12)), table)
    assert fill(bus, batch, table) == FilledSink("memory", 10, 7, 0, "")
    with pytest.raises(
        BackfillRefused, match=r"memory: the batch of .* is written already, with 10 records.*only appended"
    ):
        must_compute_rows(bus, batch, [table], DAYS)
    with pytest.raises(BackfillRefused, match="2013-01-01 to 2013-01-02 is written already"):
        fill(bus, batch_of(tmp_path / "another", table, totals(12)), table)
    fill(bus, batch_of(tmp_path / "later", table, totals(3)), table, LATER)

    assert len(table.rows) == 13


def test_a_sink_that_cannot_be_written_is_told_before_anything_is_computed(tmp_path: Path) -> None:
    """A missing folder or address is reported as by a worker."""
    expect_writable([MemorySink(Total)])
    with pytest.raises(BackfillRefused, match="None of the processors writes to a sink"):
        expect_writable([])
    with pytest.raises(BackfillRefused, match=r"NO_SUCH_URL, which is not set here.*Nothing was started\."):
        expect_writable([ps.sinks.HttpSink("NO_SUCH_URL", Total)])
    with pytest.raises(BackfillRefused, match=r"postgresql|PostgreSQL"):
        expect_writable([ps.sinks.PostgresSink("totals", Total, at="mysql://127.0.0.1/team")])


def test_rows_are_not_computed_again_if_none_could_be_written(bus: MemoryBus, tmp_path: Path) -> None:
    """The sink may have failed while they were computed."""
    table = MemorySink(Total)
    batch = batch_of(tmp_path, table, totals(10))
    death = Death(2)
    with pytest.raises(Killed):
        write_rows(MortalBus(bus, death), batch, MortalSink(table, death), DAYS, lambda *_: None)

    assert not table.rows
    assert not must_compute_rows(bus, batch, [table], DAYS)
    assert fill(bus, batch, table).written_before == 0
    assert list(table.rows) == totals(10)


class Replacing(MemorySink):
    """A table with a key."""

    replaces_rows = True


def test_rows_with_a_key_may_be_written_again(bus: MemoryBus, tmp_path: Path) -> None:
    """The processor may have been corrected, or a batch may be incomplete."""
    table = Replacing(Total)
    batch = batch_of(tmp_path / "batch", table, totals(10))
    death = Death(6)
    with pytest.raises(Killed):
        write_rows(MortalBus(bus, death), batch, MortalSink(table, death), DAYS, lambda *_: None)
    corrected = batch_of(tmp_path / "corrected", table, [Total(one.meter, -one.litres) for one in totals(12)])
    assert must_compute_rows(bus, corrected, [table], DAYS)
    for _ in range(2):
        fill(bus, corrected, table)
        assert must_compute_rows(bus, corrected, [table], DAYS)

    assert [row.litres for row in table.rows] == [*range(7), *(-n for n in range(12))]


class Refusing(Posted):
    """A sink that refuses a row, and does not answer at another one."""

    semantics = frozenset({ps.Semantics.AT_LEAST_ONCE})

    def write(self, batch: SinkBatch) -> Sequence[RefusedRow]:
        """List the other rows."""
        if Total("m0", 20) in batch.rows and Total("again", 0) not in self.rows:
            self.rows.append(Total("again", 0))
            raise SinkUnreachable("It does not answer.")
        self.rows.extend(batch.rows)
        return [RefusedRow(row, "too small") for row in batch.rows if row.litres == 3]


def test_refused_rows_are_counted_and_an_outage_says_how_to_continue(bus: MemoryBus, tmp_path: Path) -> None:
    """The next run continues after the rows that were written."""
    sink = Refusing()
    batch = batch_of(tmp_path, sink, totals(30))
    with pytest.raises(BackfillFailed, match=r"posted: It does not answer\. Run the same backfill again"):
        fill(bus, batch, sink)
    done = fill(bus, batch, sink)

    assert (done.rows, done.written_before, done.refused) == (30, 14, 0)
    assert sorted(row.litres for row in sink.rows if row.meter != "again") == list(range(30))
    again = fill(MemoryBus(), batch, Refusing([Total("again", 0)]))
    assert (again.refused, again.reason) == (1, "too small")
