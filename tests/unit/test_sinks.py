"""Processors with sinks: their declarations, where rows go, and from which position a worker continues."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.machines import Machine, create_categories, write
from support.replays import ALL, ReplayRequest
from support.resets import Reading, Total, readings, reset, totals

import penstock as ps
from penstock.backfill import BackfillRefused
from penstock.backfill.run import Written
from penstock.backfill.run.backfill import _expect_all_outputs, _expect_folders
from penstock.ops.change.maintenance.reset_target import Edge
from penstock.ops.deploy.environment import required_variables
from penstock.ops.kernel import node_of
from penstock.ops.kernel.shards.sink_writers import RowsLost
from penstock.processors.apps import App
from penstock.processors.declare import dead_letters_of, plan_of
from penstock.state.files import LocalFileStore
from penstock.testing import Crash, Driver, Step
from penstock.transport.memory import MemoryBus

LEAST, MOST, EXACT = ps.Semantics.AT_LEAST_ONCE, ps.Semantics.AT_MOST_ONCE, ps.Semantics.EXACTLY_ONCE


class Copy(ps.Stateless):
    """Copies each reading."""

    reads = readings

    def process(self, event: Reading) -> list[Any]:
        return [Total(event.meter, event.at, event.litres)]


class Counting(ps.Stateful):
    """Sums readings."""

    reads, state, output_semantics = readings, int, EXACT

    def process(self, event: Reading, state: int | None, context: ps.Context) -> tuple[int, list[Total]]:
        after = (state or 0) + event.litres
        return after, [Total(event.meter, event.at, after)]


class Hours(ps.Aggregator):
    """Sums readings per hour."""

    reads, monoid, output_semantics = readings, ps.monoids.Sum(), EXACT
    window = ps.windows.Tumbling(timedelta(hours=1))

    def observe(self, event: Reading) -> int:
        return event.litres

    def result(self, key: str, window: ps.windows.Window, value: int) -> Total:
        return Total(key, window.start, value)


def generate_readings(begin: int, end: int) -> list[Reading]:
    """Return readings with different numbers of litres."""
    return [Reading(f"m{n % 5}", 1_000 * n, n) for n in range(begin, end)]


def sink(name: str = "rows") -> ps.sinks.MemorySink:
    """Return an empty sink."""
    return ps.sinks.MemorySink(Total, name)


def of(base: type[ps.Processor], **declared: Any) -> type[ps.Processor]:
    """Return a processor with further attributes."""
    return type(base.__name__, (base,), {"writes": sink(), **declared})


class AppendOnly(ps.sinks.Sink):
    """A sink of a user, at least once."""

    name, record = "my store", Total
    semantics = frozenset({LEAST})

    def __init__(self) -> None:
        self.batches: list[ps.sinks.SinkBatch] = []

    def open(self) -> AppendOnly:
        return self

    def claim(self, processor: str, bucket: int) -> str:
        return ""

    def write(self, batch: ps.sinks.SinkBatch) -> None:
        self.batches.append(batch)

    def close(self) -> None:
        """Do nothing."""


class Forbidden(ps.sinks.MemorySink):
    """A sink that nothing may open."""

    def open(self) -> Any:
        raise AssertionError("the sink was opened")


def test_a_sink_is_written_at_the_first_checkpoint_after_a_claim_also_without_rows() -> None:
    """The sink can then remove the remains of an interrupted checkpoint of an earlier worker."""
    store = AppendOnly()
    nothing = of(Copy, writes=store, process=lambda _, __: [])
    driver = Driver(nothing, sinks=[store])
    driver.send(readings, generate_readings(0, 20))
    driver.send(readings, generate_readings(20, 40))
    buckets = {batch.bucket for batch in store.batches}

    assert len(buckets) > 1
    assert Counter(batch.bucket for batch in store.batches) == dict.fromkeys(buckets, 1)
    assert all(batch.first == {readings.name: 0} and not batch.rows for batch in store.batches)
    reached = {number: end for number, end in driver.bus.describe(readings.name).ends.items() if number in buckets}
    driver.send(readings, [*generate_readings(40, 60), Crash(before=Step.WRITE_SINKS)])
    assert {batch.bucket: batch.first for batch in store.batches[len(buckets) :]} == {
        number: {readings.name: end} for number, end in reached.items()
    }
    assert len(store.batches) == 2 * len(buckets)


class Picky(AppendOnly):
    """Refuses every third row before it writes anything."""

    name, semantics = "picky", frozenset({LEAST, EXACT})

    def claim(self, processor: str, bucket: int) -> str:
        return next((batch.position for batch in reversed(self.batches) if batch.bucket == bucket), "")

    def write(self, batch: ps.sinks.SinkBatch) -> None:
        if bad := [ps.sinks.RefusedRow(row, f"no {row.litres}") for row in batch.rows if row.litres % 3 == 0]:
            raise ps.sinks.RowsRefused(bad)
        super().write(batch)


@pytest.mark.parametrize("semantics", [LEAST, EXACT])
def test_refused_rows_are_dead_letters_before_the_others_are_written(semantics: ps.Semantics) -> None:
    """A crash after the rows are written would otherwise lose the letters, also exactly once."""
    store = Picky()
    picky = of(Copy, writes=store, output_semantics=semantics)
    driver = Driver(picky, sinks=[store])
    driver.send(readings, [*generate_readings(0, 20), Crash(before=Step.COMMIT_OFFSETS)])

    assert sorted({row.litres for batch in store.batches for row in batch.rows}) == [n for n in range(20) if n % 3]
    letters = [letter for letter in driver.read(dead_letters_of(picky)) if letter.category == "picky"]
    assert {letter.reason for letter in letters} == {f"no {n}" for n in range(0, 20, 3)}
    if semantics is EXACT:
        assert sum(len(batch.rows) for batch in store.batches) == len([n for n in range(20) if n % 3])


@pytest.mark.parametrize(
    ("processor", "reason"),
    [
        (of(Copy, writes=AppendOnly(), output_semantics=EXACT), r"my store cannot guarantee that.*AT_LEAST_ONCE"),
        (of(Copy, writes=(sink(), totals), output_semantics=EXACT), r"rows, totals exactly once.*no transaction"),
        (of(Copy, writes=(sink(), sink("others")), output_semantics=EXACT), r"rows, others exactly once"),
        (of(Copy, writes=(sink(), sink())), r"declares an output twice: rows, rows"),
        (of(Counting, late=readings), r"exactly once, but no transaction"),
        (of(Counting, deterministic=False), r"more than the events of one input.*changelog"),
        (of(Counting, watermark=ps.watermarks.UpstreamWatermark()), r"more than the events of one input"),
        (of(Hours, emit=ps.AtWatermark(early=timedelta(seconds=1)), late=ps.OnLate.DROP), r"more than the events"),
        (of(Hours, store=ps.RemoteStore()), r"remote store, and writes rows exactly once"),
        (of(Hours, writes=(sink(), readings), output_semantics=LEAST), r"several categories or sinks"),
        (of(ps.Repartition, reads=readings), r"one category of the input's record type"),
        (of(ps.Pipe, reads=readings, command=("cat",)), r"lines are messages of a category"),
    ],
)
def test_combinations_that_cannot_hold_are_refused(processor: type[ps.Processor], reason: str) -> None:
    """The declaration fails before the first event; the message names an alternative."""
    with pytest.raises(ps.errors.DeclarationError, match=reason):
        plan_of(processor).check()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"key": "meters"}, r"'meters' is not a field of the record \(meter, at, litres\)"),
        ({"key": ("meter", "meter")}, r"names a field twice"),
        ({"record": Total | Reading}, r"one record type"),
    ],
)
def test_unfit_tables_are_refused_at_their_declaration(arguments: dict[str, Any], reason: str) -> None:
    """The key consists of fields of one record type."""
    with pytest.raises(ps.errors.DeclarationError, match=reason):
        ps.sinks.PostgresSink(**{"table": "totals", "record": Total, **arguments})


def test_an_output_goes_to_the_sink_of_its_type_or_of_its_name() -> None:
    """Categories and sinks share the rules of routing; a driver keeps rows in memory."""
    large, small = Forbidden(Total, "large"), Forbidden(Total, "small")

    class Sort(Copy):
        writes = (large, small, ps.Category("seen", Reading, key="meter", event_time="at"))

        def process(self, event: Reading) -> list[Any]:
            total = Total(event.meter, event.at, event.litres)
            return [ps.To(large if event.litres > 10 else "small", total), event]

    driver = Driver(Sort)
    events = generate_readings(0, 40)
    driver.send(readings, events)

    assert Counter(one.litres for one in driver.rows(large)) == Counter(e.litres for e in events if e.litres > 10)
    assert Counter(one.litres for one in driver.rows(small)) == Counter(e.litres for e in events if e.litres <= 10)
    assert len(driver.read(Sort.writes[2])) == len(events)


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (Reading("a", 1, 2), r"returned a Reading, but writes only Total to rows"),
        (ps.To("rows", Total("a", 1, 2), key="b"), r"a sink has no message keys"),
        (ps.Tombstone("a"), r"tombstone of 'a' cannot be written to table totals"),
        (Total("a", 1, 2**70), r"Total"),
    ],
)
def test_an_output_that_no_sink_accepts_stops_the_worker(output: Any, reason: str) -> None:
    """Nothing of its batch is written."""
    table = sink() if "table" not in reason else ps.sinks.PostgresSink("totals", Total)

    class Wrong(Copy):
        writes = table

        def process(self, event: Reading) -> list[Any]:
            return [Total("good", 1, 1), output]

    driver = Driver(Wrong)
    with pytest.raises(ps.PenstockError, match=reason):
        driver.send(readings, generate_readings(0, 1))

    assert driver.rows(table) == []


def test_a_sink_of_a_user_gets_batches_with_their_first_offsets() -> None:
    """Batches of a bucket follow each other without gaps, and contain rows."""
    mine = AppendOnly()
    driver = Driver(of(Copy, writes=mine, checkpoint=ps.CheckpointInterval(events=7)), sinks=[mine])
    events = generate_readings(0, 50)
    for start in range(0, 50, 10):
        driver.send(readings, events[start : start + 10])

    assert sum(len(batch.rows) for batch in mine.batches) == 50
    for bucket in range(2):
        read = 0
        for batch in mine.batches:
            if batch.bucket == bucket:
                assert batch.first.get("readings", 0) == read
                assert batch.rows
                assert batch.position == ""
                read += len(batch.rows)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with the categories of readings."""
    bus = MemoryBus()
    create_categories(bus, [of(Copy, writes=totals)])
    return Machine(tmp_path / "machine", bus, LocalFileStore(tmp_path / "backups"))


def rows_of(table: ps.sinks.MemorySink) -> list[tuple[str, int]]:
    """Return rows without their times, sorted."""
    return sorted((row.meter, row.litres) for row in table.rows)


@pytest.mark.parametrize("base", [Copy, Counting])
def test_after_a_reset_the_group_decides_again(machine: Machine, base: type[ps.Processor]) -> None:
    """A reset to the first event writes all rows again, once."""
    table = sink()
    processor = of(base, writes=table, output_semantics=EXACT)
    write(machine.bus, readings, generate_readings(0, 30))
    machine.run(processor)
    once = rows_of(table)
    reset(machine, processor, Edge.EARLIEST, backups=False)
    machine.run(processor)

    assert len(once) == 30
    assert rows_of(table) == sorted(once * 2)
    machine.run(processor)
    assert rows_of(table) == sorted(once * 2)


def test_a_sink_that_has_lost_rows_stops_the_worker(machine: Machine) -> None:
    """A database that was restored from a backup has an older position than the group; a reset resolves it."""
    table = sink()
    processor = of(Copy, writes=table, output_semantics=EXACT)
    write(machine.bus, readings, generate_readings(0, 30))
    machine.run(processor)
    older_rows, older_shards = list(table.rows), dict(table.store._shards)
    write(machine.bus, readings, generate_readings(30, 60))
    machine.run(processor)
    table.store.rows, table.store._shards = older_rows, older_shards
    with pytest.raises(RowsLost, match=r"rows has the rows of the events up to .* but the group has committed"):
        machine.run(processor)
    reset(machine, processor, Edge.LATEST)
    machine.run(processor)

    assert len(table.rows) == 30


def test_a_new_sink_of_an_old_processor_gets_the_rows_of_new_events(machine: Machine) -> None:
    """It continues at the group's position, like a new category. A change from at least once does the same."""
    first, second = sink(), sink()
    write(machine.bus, readings, generate_readings(0, 30))
    machine.run(of(Counting, writes=first, output_semantics=LEAST))
    write(machine.bus, readings, generate_readings(30, 40))
    machine.run(of(Counting, writes=first))
    write(machine.bus, readings, generate_readings(40, 60))
    machine.run(of(Counting, writes=second))

    assert (len(first.rows), len(second.rows)) == (40, 20)


def test_events_that_the_processor_rejects_become_dead_letters() -> None:
    """A processor with only a sink still writes dead letters to the bus."""

    class Picky(Copy):
        writes, output_semantics, on_error = sink(), EXACT, ps.ErrorPolicy.DEAD_LETTER

        def process(self, event: Reading) -> list[Any]:
            if event.litres % 5 == 0:
                raise ValueError("a multiple of five")
            return super().process(event)

    driver, events = Driver(Picky), generate_readings(0, 50)
    driver.send(readings, events)
    bad = sum(event.litres % 5 == 0 for event in events)

    assert 0 < bad == len(driver.dead_letters(Picky))
    assert len(driver.rows(Picky.writes)) == 50 - bad


def test_a_replay_shows_rows_and_never_opens_a_sink(machine: Machine) -> None:
    """The rows of a replay are its outputs, under the name of the sink."""
    processor = of(Copy, writes=Forbidden(Total, "table"))
    events = generate_readings(0, 20)
    write(machine.bus, readings, events)
    replayed = ReplayRequest(processor, machine.bus, ALL).run()

    assert {output.category.name for output in replayed.outputs} == {"table"}
    assert sorted(row.litres for row in replayed.records) == sorted(event.litres for event in events)


def test_a_backfill_refuses_outputs_that_it_would_write_in_part() -> None:
    """The run must write the sinks, too."""
    beside, alone = (App.of("app", [of(Copy, writes=writes)]) for writes in ((sink(), totals), sink()))
    with pytest.raises(BackfillRefused, match=r"Copy writes rows beside totals.*--output sinks"):
        _expect_all_outputs(beside, Written.CATEGORIES)
    with pytest.raises(
        BackfillRefused, match=r"Copy writes rows, and this run would only write categories.*--output sinks"
    ):
        _expect_all_outputs(alone, Written.CATEGORIES)
    for app in (beside, alone):
        _expect_all_outputs(app, Written.ALL)


def test_a_backfill_leaves_out_a_processor_with_sinks_only() -> None:
    """Another processor of the app must have results. The report names the omitted one."""
    other = type("Other", (Copy,), {"writes": totals})
    _expect_all_outputs(App.of("app", [of(Copy, writes=sink()), other]), Written.CATEGORIES)


def test_sinks_of_a_backfill_have_folders_of_their_own() -> None:
    """Their names in the output have other characters."""
    spaced, dashed = (of(Copy, writes=sink(name)) for name in ("our rows", "our-rows"))
    _expect_folders([spaced, spaced], Written.ALL)
    with pytest.raises(BackfillRefused, match="our rows and our-rows would have the same folder"):
        _expect_folders([spaced, dashed], Written.ALL)


def test_deployments_and_reports_name_the_sinks() -> None:
    """A deployment stores the variable with the address for its workers; `status` and the dashboard show the sink."""
    processor = of(Copy, writes=(ps.sinks.PostgresSink("totals", Total, at="TEAM_DATABASE"), readings))

    assert required_variables(processor) == ("TEAM_DATABASE",)
    assert required_variables(of(Copy, writes=ps.sinks.PostgresSink("t", Total, at="postgresql://h/d"))) == ()
    assert node_of(processor).sinks == ("table totals of PostgreSQL",)
    assert node_of(processor).outputs == ("readings",)
