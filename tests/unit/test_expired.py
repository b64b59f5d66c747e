"""Expired positions of a group that had no worker for a week: a processor that has run is not treated as a new one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

import pytest
from support.machines import Machine, create_categories, read, write

import penstock as ps
from penstock.backfill import BackfillRefused
from penstock.backfill.run.bootstrap import refuse_if_started
from penstock.ops.kernel import Crash, Driver
from penstock.ops.kernel.shards.backups import WorkerBackups
from penstock.ops.kernel.shards.resume_checks import PositionsExpired
from penstock.processors.shard import Step
from penstock.processors.shard.resume_point import AmbiguousTransaction
from penstock.state.files import LocalFileStore
from penstock.transport import CategoryState, OffsetOutOfRange
from penstock.transport.memory import MemoryBus
from penstock.transport.tables import forget_registration, registration_of

LEAST, MOST, EXACT = ps.Semantics.AT_LEAST_ONCE, ps.Semantics.AT_MOST_ONCE, ps.Semantics.EXACTLY_ONCE


class Reading(ps.Record, frozen=True):
    """A reading of a meter."""

    meter: str
    at: ps.EventTime
    litres: int


readings = ps.Category("readings", Reading, key="meter", event_time="at", buckets=1)
totals = ps.Category("totals", Reading, key="meter", event_time="at", buckets=1)


class Copies(ps.Stateless):
    """Copies the readings."""

    reads, writes = readings, totals
    output_semantics: ClassVar[ps.Semantics] = LEAST

    def process(self, event: Reading) -> Iterable[Reading]:
        """Copy a reading."""
        yield event


class CopiesAtMost(Copies):
    """Copies with at-most-once outputs."""

    output_semantics = MOST


class CopiesOnce(Copies):
    """Copies with exactly-once outputs."""

    output_semantics = EXACT


class Totals(ps.Stateful):
    """Adds the readings up."""

    reads, writes, state = readings, totals, int
    state_semantics: ClassVar[ps.Semantics] = EXACT
    output_semantics: ClassVar[ps.Semantics] = LEAST

    def process(self, event: Reading, state: int | None, context: ps.Context) -> tuple[int, list[Reading]]:
        """Add a reading."""
        total = (state or 0) + event.litres
        return total, [Reading(event.meter, event.at, total)]


class TotalsLeast(Totals):
    """Totals with at-least-once state."""

    state_semantics = LEAST


class TotalsMost(Totals):
    """Totals with at-most-once state and outputs."""

    state_semantics, output_semantics = MOST, MOST


class TotalsToldOnce(Totals):
    """Totals with exactly-once state and at-most-once outputs."""

    output_semantics = MOST


class TotalsOnce(Totals):
    """Totals with exactly-once state and outputs."""

    output_semantics = EXACT


class TotalsLogged(TotalsOnce):
    """Totals with a changelog."""

    deterministic = False


class TotalsShared(ps.Aggregator):
    """Totals in a store that all workers share."""

    reads, writes, monoid = readings, totals, ps.monoids.Sum()
    output_semantics, store = EXACT, ps.RemoteStore()

    def observe(self, event: Reading) -> int:
        """Add a reading."""
        return event.litres

    def result(self, key: str, window: ps.windows.Window, value: int) -> Reading:
        """Return the sum."""
        return Reading(key, 0, value)


STATELESS = (Copies, CopiesAtMost, CopiesOnce)
LOCAL = (TotalsLeast, Totals, TotalsMost, TotalsToldOnce, TotalsOnce, TotalsLogged)
REPEATING = (TotalsLeast, Totals)


class Trimmed(MemoryBus):
    """A bus that may drop the first readings."""

    start = 0

    def describe(self, name: str) -> CategoryState:
        """Return a category's current offsets."""
        found = super().describe(name)
        return replace(found, starts=dict.fromkeys(found.starts, self.start)) if name == readings.name else found


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with its own bus."""
    machine = Machine(tmp_path / "one", Trimmed(), LocalFileStore(tmp_path / "place"))
    create_categories(machine.bus, [*STATELESS, *LOCAL])
    write(machine.bus, readings, made(0, 60))
    return machine


def made(begin: int, end: int) -> list[Reading]:
    """Return readings of one meter, one litre each."""
    return [Reading("m", 1_000 * n, 1) for n in range(begin, end)]


def expired(machine: Machine, processor: type[ps.Processor]) -> None:
    """Run a processor over sixty events, and let its positions expire; forty more events follow."""
    machine.run(processor)
    machine.bus.forget_group(processor.name)
    write(machine.bus, readings, made(60, 100))


def elsewhere(machine: Machine) -> Machine:
    """Return another machine on the same bus."""
    return Machine(machine.folder.with_name("two"), machine.bus, machine.place)


def backups(machine: Machine) -> WorkerBackups:
    """Return a worker's backups."""
    return WorkerBackups(machine.place, machine.states, timedelta(hours=1))


def written(machine: Machine) -> list[int]:
    """Return the number of outputs for each event, in order of the events."""
    found = Counter(one.at // 1_000 for one in read(machine.bus, totals))
    return [found[n] for n in range(100)]


def last(machine: Machine) -> int:
    """Return the newest total."""
    newest: Reading = read(machine.bus, totals)[-1]
    return newest.litres


ONCE, AGAIN = [1] * 100, [2] * 60 + [1] * 40


@pytest.mark.parametrize("processor", [CopiesAtMost, CopiesOnce])
def test_a_worker_without_state_does_not_start_from_the_beginning(
    machine: Machine, processor: type[ps.Processor]
) -> None:
    """Its outputs would be repeated, unless the user accepts that."""
    expired(machine, processor)
    with pytest.raises(PositionsExpired, match=r"has run before.* write existing outputs again"):
        machine.run(processor)
    before = written(machine)
    machine.run(processor, from_earliest=True)

    assert before == [1] * 60 + [0] * 40
    assert written(machine) == AGAIN


def test_outputs_are_repeated_only_if_allowed_and_all_events_are_retained(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    """The log reports the repetition. If the bus has dropped events, their processing is unknown."""
    expired(machine, Copies)
    machine.bus.start = 1  # type: ignore[attr-defined]
    with pytest.raises(PositionsExpired, match="skip expired events, processed or not"):
        machine.run(Copies)
    machine.bus.start = 0  # type: ignore[attr-defined]
    machine.run(Copies)

    assert written(machine) == AGAIN
    assert "positions have expired on the bus" in caplog.text


@pytest.mark.parametrize("start", [0, 50])
@pytest.mark.parametrize("processor", LOCAL)
def test_the_last_worker_continues_with_its_state(machine: Machine, processor: type[ps.Processor], start: int) -> None:
    """No other worker can be ahead of it: no output is missing or repeated, for any semantics."""
    expired(machine, processor)
    machine.bus.start = start  # type: ignore[attr-defined]
    machine.run(processor)

    assert (written(machine), last(machine)) == (ONCE, 100)


@pytest.mark.parametrize("processor", LOCAL)
def test_another_machine_restores_the_backup(machine: Machine, processor: type[ps.Processor]) -> None:
    """It continues from its position if outputs may repeat; changelog entries since then count; otherwise the user must choose."""
    machine.run(processor)
    machine.back_up(processor)
    write(machine.bus, readings, made(60, 80))
    machine.run(processor)
    machine.bus.forget_group(processor.name)
    write(machine.bus, readings, made(80, 100))
    machine.bus.start = 50  # type: ignore[attr-defined]
    other = elsewhere(machine)
    if processor in REPEATING:
        other.run(processor, backups(other))
        assert (written(other), last(other)) == ([1] * 60 + [2] * 20 + [1] * 20, 100)
    elif processor is TotalsLogged:
        other.run(processor, backups(other))
        assert (written(other), last(other)) == (ONCE, 100)
    else:
        with pytest.raises(PositionsExpired, match=r"Its state here is at readings 60.*(at most|exactly) once"):
            other.run(processor, backups(other))
        assert written(other) == [1] * 80 + [0] * 20
        other.run(processor, backups(other), from_earliest=True)
        assert last(other) == 100


@pytest.mark.parametrize("processor", LOCAL)
def test_without_any_state_it_is_rebuilt_or_refused(machine: Machine, processor: type[ps.Processor]) -> None:
    """The state is rebuilt from all events if outputs may repeat, or from the changelog. Otherwise the worker refuses to start."""
    expired(machine, processor)
    other = elsewhere(machine)
    if processor in REPEATING:
        machine.bus.start = 1  # type: ignore[attr-defined]
        with pytest.raises(PositionsExpired):
            other.run(processor)
        machine.bus.start = 0  # type: ignore[attr-defined]
        other.run(processor)
        assert (written(other), last(other)) == (AGAIN, 100)
    elif processor is TotalsLogged:
        other.run(processor)
        assert (written(other), last(other)) == (ONCE, 100)
    else:
        with pytest.raises(PositionsExpired, match="There is no state"):
            other.run(processor)
        assert written(other) == [1] * 60 + [0] * 40


def test_a_state_that_others_may_have_continued_is_not_the_last(machine: Machine) -> None:
    """Another worker owned the bucket since; its outputs would be repeated."""
    machine.run(TotalsOnce)
    other = elsewhere(machine)
    write(machine.bus, readings, made(60, 80))
    other.run(TotalsOnce)
    machine.bus.forget_group(TotalsOnce.name)
    write(machine.bus, readings, made(80, 100))
    with pytest.raises(PositionsExpired, match="readings 60"):
        machine.run(TotalsOnce)
    other.run(TotalsOnce)

    assert (written(machine), last(machine)) == (ONCE, 100)


def test_a_backup_that_is_newer_than_the_local_state_is_restored(machine: Machine) -> None:
    """The positions that would show that the state is outdated have expired."""
    machine.run(Totals)
    other = elsewhere(machine)
    write(machine.bus, readings, made(60, 80))
    other.run(Totals)
    other.back_up(Totals)
    machine.bus.forget_group(Totals.name)
    write(machine.bus, readings, made(80, 100))
    machine.run(Totals, backups(machine))

    assert (written(machine), last(machine)) == (ONCE, 100)


@pytest.mark.parametrize("processor", [TotalsOnce, TotalsLogged])
def test_a_prepared_checkpoint_is_decided_or_refused(processor: type[ps.Processor]) -> None:
    """It was prepared, and the positions that would show its commit have expired; the same holds for its changelog."""
    driver = Driver(processor)
    driver.send(readings, made(0, 60))
    driver._discard_worker(processor)
    worker = driver._worker(processor, die_before_applying)
    driver._write(readings, made(60, 100))
    for _ in range(3):
        worker.run_once()
    with pytest.raises(Died):
        worker.save()
    driver._discard_worker(processor)
    driver.bus.forget_group(processor.name)
    if processor is TotalsOnce:
        with pytest.raises(AmbiguousTransaction):
            driver.run()
    else:
        driver.run()

    assert [one.litres for one in driver.read(totals)] == list(range(1, 101))


class Died(ps.PenstockError):
    """The process was killed."""


def die_before_applying(gap: object) -> None:
    """Fail when the transaction is committed."""
    if getattr(gap, "before", None) is Step.APPLY_STATE:
        raise Died


def test_a_shared_store_contains_its_position() -> None:
    """Any worker that continues finds the position there."""
    driver = Driver(TotalsShared)
    driver.send(readings, made(0, 60))
    driver._discard_worker(TotalsShared)
    driver.bus.forget_group(TotalsShared.name)
    driver.send(readings, made(60, 100))

    assert [one.litres for one in driver.read(totals)] == [60, 100]


@pytest.mark.parametrize("crash", [None, Step.COMMIT_TRANSACTION])
def test_a_processor_that_never_committed_starts_from_the_beginning(crash: Step | None) -> None:
    """Only the first commit leaves a record, so a worker that died earlier leaves none."""
    driver = Driver(CopiesOnce)
    driver.send(readings, [*made(0, 60), *([Crash(before=crash)] if crash else [])])
    record = registration_of(driver.bus, CopiesOnce.name).shards[0]

    assert record.has_committed
    assert [one.litres for one in driver.read(totals)] == [1] * 60


def test_a_purged_processor_starts_from_the_beginning(machine: Machine) -> None:
    """No record of it remains."""
    expired(machine, CopiesOnce)
    forget_registration(machine.bus, CopiesOnce.name)
    machine.run(CopiesOnce)

    assert written(machine) == AGAIN


def test_a_bootstrap_does_not_treat_an_expired_processor_as_new(machine: Machine) -> None:
    """Its state would be replaced without the user's consent."""
    expired(machine, Totals)

    with pytest.raises(BackfillRefused, match="has run already"):
        refuse_if_started(Totals, machine.bus)


def test_a_state_before_the_first_retained_event_is_refused(machine: Machine) -> None:
    """The worker skips no event, as with expired positions."""
    expired(machine, Totals)
    machine.bus.start = 61  # type: ignore[attr-defined]

    with pytest.raises(OffsetOutOfRange, match="1 event expired"):
        machine.run(Totals)
