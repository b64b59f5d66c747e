"""`close_after_silence`: while all inputs are silent, event time goes on with the clock, and the last sessions and unmatched rows come."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import ClassVar, NoReturn

import pytest
from support.machines import write

import penstock as ps
from penstock.errors import DeclarationError
from penstock.ops.kernel import Crash, Driver, Worker, ends_of
from penstock.ops.kernel.loop import WorkerConfig
from penstock.ops.kernel.loop.until_end import UntilEnd
from penstock.ops.kernel.testing import InlineExecutor
from penstock.processors.declare import plan_of
from penstock.state import MemoryStateFolder
from penstock.transport import Bucket, BusUnreachable

MINUTE = 60_000


class Click(ps.Record, frozen=True):
    """A click."""

    user: str
    at: ps.EventTime


class Buy(Click, frozen=True):
    """A purchase."""


class Visit(ps.Record, frozen=True):
    """A visit: its last click, and the number of clicks or purchases."""

    user: str
    at: ps.EventTime
    clicks: int


clicks = ps.Category("clicks", Click, key="user", event_time="at", buckets=1)
buys = ps.Category("buys", Buy, key="user", event_time="at", buckets=1)
visits = ps.Category("visits", Visit, key="user", event_time="at", buckets=1)


class Visits(ps.Aggregator):
    """Counts the clicks of each visit, which ends after ten minutes without a click."""

    reads, writes, monoid = clicks, visits, ps.monoids.Count()
    window, emit, late = ps.windows.Session(timedelta(minutes=10)), ps.AtWatermark(), ps.OnLate.DROP
    watermark: ClassVar[ps.watermarks.Watermark | None] = ps.watermarks.BoundedOutOfOrderness()
    close_after_silence: ClassVar[timedelta | None] = timedelta(minutes=5)

    def result(self, key: str, window: ps.windows.Window, value: int) -> Visit:
        return Visit(key, window.end, value)


class Bought(ps.Join):
    """Finds the purchase within ten minutes after a click."""

    left, right, writes = clicks, buys, visits
    join_type, after = ps.JoinType.LEFT, timedelta(minutes=10)
    watermark, close_after_silence = ps.watermarks.BoundedOutOfOrderness(), timedelta(minutes=5)

    def join(self, left: Click, right: Buy | None, context: ps.Context) -> Iterable[Visit]:
        yield Visit(left.user, left.at, 0 if right is None else 1)


class Copy(ps.Stateless):
    """Copies clicks, and lets event time go on."""

    reads, writes = clicks, ps.Category("copies", Buy, key="user", event_time="at", buckets=1)
    watermark, close_after_silence = ps.watermarks.BoundedOutOfOrderness(), timedelta(minutes=5)

    def process(self, event: Click) -> Iterable[Buy]:
        yield Buy(event.user, event.at)


class CopiedVisits(Visits):
    """The visits behind another processor, without a setting of their own."""

    reads, watermark, close_after_silence = Copy.writes, None, None


class Hasty(Visits):
    """Its silence is shorter than idleness."""

    close_after_silence = timedelta(seconds=5)


class Never(Visits):
    """Its inputs are never idle."""

    idle_after = None


@pytest.mark.parametrize("app", [[Visits], [Bought], [Copy, CopiedVisits]], ids=str)
@pytest.mark.parametrize("crash", [False, True])
def test_the_last_results_come_while_all_inputs_are_silent(app: list[type[ps.Processor]], *, crash: bool) -> None:
    """They come as if events had continued, plus the silence. A restart and another processor in front change nothing."""
    driver = Driver(app)
    driver.send(clicks, [Click("ann", 0), Click("ann", MINUTE)])
    driver.send(clicks, [Crash()] if crash else [])
    driver.advance(14 * 60)
    early = driver.read(visits)
    driver.advance(5 * 60)

    assert early == []
    assert sum(row.clicks for row in driver.read(visits)) == (0 if app == [Bought] else 2)
    assert {row.user for row in driver.read(visits)} == {"ann"}


def test_an_event_with_a_time_that_silence_has_passed_is_late() -> None:
    """Event time does not go back, also after a restart."""
    driver = Driver(Visits)
    driver.send(clicks, [Click("ann", 0)])
    driver.advance(20 * 60)
    driver.send(clicks, [Crash(), Click("ann", MINUTE)])

    assert [row.clicks for row in driver.read(visits)] == [1]
    assert driver.metrics(Visits).dropped == 1


def test_an_outage_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the bus does not answer, events may wait there."""
    driver = Driver(Visits)
    driver.send(clicks, [Click("ann", 0)])

    def away(_: Collection[Bucket]) -> NoReturn:
        raise BusUnreachable("no broker")

    monkeypatch.setattr(driver.bus, "ends_of", away)
    driver.advance(60 * 60)

    assert driver.read(visits) == []


def test_without_the_setting_the_last_results_wait() -> None:
    """They wait for the next event."""
    driver = Driver(type("Waiting", (Visits,), {"close_after_silence": None}))
    driver.send(clicks, [Click("ann", 0)])
    driver.advance(24 * 60 * 60)

    assert driver.read(visits) == []


class Runs:
    """Runs to the end of the input, of processors whose states stay on this machine."""

    def __init__(self, *app: type[ps.Processor]) -> None:
        self.driver = Driver(list(app))
        self.dropped = 0
        self._app = app
        self._states: dict[str, MemoryStateFolder] = {}

    def worker(self, processor: type[ps.Processor], name: str = "one") -> Worker:
        """Return a worker with the states of its name."""
        folder = self._states.setdefault(f"{processor.name} {name}", MemoryStateFolder())
        config = WorkerConfig(self.driver.bus, folder, name)
        return Worker(processor(), config, InlineExecutor(), InlineExecutor(), clock=self.driver.clock)

    def to_end(self) -> None:
        """Run each processor until the present end of its input, one after the other."""
        for processor in self._app:
            worker = self.worker(processor)
            worker.run(self.end_of(processor))
            self.dropped += worker.metrics.dropped

    def end_of(self, processor: type[ps.Processor]) -> UntilEnd:
        """Return the present end of the input."""
        return UntilEnd(ends_of(plan_of(processor).sources, self.driver.bus), processor.name, self.driver.bus)


@pytest.mark.parametrize("gap_min", [4, 10])
def test_a_run_to_the_end_closes_what_ends_within_the_silence(gap_min: int) -> None:
    """It does not wait for the clock. Longer windows stay in the state for the next run."""
    processor: type[ps.Processor] = type(
        "Ending", (Visits,), {"window": ps.windows.Session(timedelta(minutes=gap_min))}
    )
    runs = Runs(processor)
    write(runs.driver.bus, clicks, [Click("ann", 0)])
    runs.to_end()

    assert len(runs.driver.read(visits)) == (1 if gap_min == 4 else 0)


class Spread(Copy):
    """Copies the clicks of several buckets."""

    reads = ps.Category("spread", Click, key="user", event_time="at", buckets=4)
    writes = ps.Category("spread_copies", Buy, key="user", event_time="at", buckets=4)


class SpreadVisits(CopiedVisits):
    """Visits of four minutes behind it."""

    reads, window = Spread.writes, ps.windows.Session(timedelta(minutes=4))


class ClosingVisits(Visits):
    """The same, with a setting of its own."""

    reads, watermark, window = Spread.writes, None, SpreadVisits.window


@pytest.mark.parametrize("last", [SpreadVisits, ClosingVisits])
@pytest.mark.parametrize("users", [1, 12], ids=["empty buckets", "buckets that ended earlier"])
def test_a_run_to_the_end_closes_what_waits_for_quiet_buckets(last: type[Visits], users: int) -> None:
    """Empty buckets of the first processor do not hold back the visits. Each click is a visit, and the next run has its own visits."""
    runs = Runs(Spread, last)
    found = []
    for day in range(2):
        minutes = {f"user {number}": 1_000 * day + 20 * number for number in range(users)}
        write(runs.driver.bus, Spread.reads, [Click(user, minute * MINUTE) for user, minute in minutes.items()])
        runs.to_end()
        found.append([len(runs.driver.read(visits)), runs.dropped])

    assert found == [[users, 0], [2 * users, 0]]


class BoughtCopies(ps.Join):
    """Finds the click within ten minutes after a copied one."""

    left, right, writes = Copy.writes, ps.Category("others", Click, key="user", event_time="at", buckets=1), visits
    join_type, after = ps.JoinType.LEFT, timedelta(minutes=10)
    watermark, close_after_silence = {right: ps.watermarks.BoundedOutOfOrderness()}, timedelta(minutes=5)

    def join(self, left: Buy, right: Click | None, context: ps.Context) -> Iterable[Visit]:
        yield Visit(left.user, left.at, 0 if right is None else 1)


def test_a_run_to_the_end_closes_rows_of_a_processor_and_another_program() -> None:
    """The input of the other program has no event, and the input of the processor has ended."""
    runs = Runs(Copy, BoughtCopies)
    write(runs.driver.bus, clicks, [Click("ann", 0), Click("bob", 2 * MINUTE), Click("eve", 8 * MINUTE)])
    runs.to_end()

    assert {row.user for row in runs.driver.read(visits)} == {"ann", "bob"}


def test_a_run_to_the_end_waits_for_a_writer_that_has_stopped_before_it() -> None:
    """The writer may have unread input, so its empty buckets hold back what is behind it."""
    runs = Runs(Spread, ClosingVisits)
    write(runs.driver.bus, Spread.reads, [Click("ann", 0), Click("ann", 20 * MINUTE)])
    ends = ends_of([Spread.reads], runs.driver.bus)
    runs.worker(Spread).run(lambda worker: worker.has_reached(ends))
    runs.worker(ClosingVisits).run(runs.end_of(ClosingVisits))

    assert runs.driver.read(visits) == []


def test_a_bucket_taken_over_at_the_end_has_not_ended() -> None:
    """Its unread events are on time, although this worker has reached the end of its own buckets."""
    processor: type[ps.Processor] = type("Shared", (Visits,), {"reads": Spread.reads, "window": SpreadVisits.window})
    runs = Runs(processor)
    users = [f"user {number}" for number in range(12)]
    write(runs.driver.bus, Spread.reads, [Click(user, 0) for user in users])
    one, other = runs.worker(processor), runs.worker(processor, "other")
    ends = ends_of([Spread.reads], runs.driver.bus)
    while not (one.has_reached(ends) and other.has_reached(ends) and one.owned and other.owned):
        one.run_once()
        other.run_once()
    one.assume_silence()
    of_other = next(user for user in users if Spread.reads.bucket_of(user) in other.owned)
    write(runs.driver.bus, Spread.reads, [Click(of_other, 2 * MINUTE)] * 12_000)  # more than a worker polls at once
    other.run(lambda _: True)
    one.run(runs.end_of(processor))

    assert one.metrics.dropped == 0


def test_a_silence_shorter_than_idleness_is_refused() -> None:
    """Inputs are idle first."""
    with pytest.raises(DeclarationError, match=r"Declare an `idle_after` that is not longer\."):
        plan_of(Hasty).check()
    with pytest.raises(DeclarationError, match="idle_after = None"):
        plan_of(Never).check()
