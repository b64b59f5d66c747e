"""Windows that end: each is written when it is complete, contains its events, and is then removed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.disks import Disk, copy_of, restart

import penstock as ps
from penstock.ops.kernel import Crash, Driver
from penstock.processors import DeclarationError
from penstock.processors.declare import plan_of
from penstock.processors.keyed_state import EARLY_RESULTS
from penstock.processors.operators import entry_key_reader, open_operator
from penstock.processors.shard import Overlay, Step, steps_of
from penstock.state import MemoryShardState
from penstock.transport.tables import watermarks_on


class Reading(ps.Record, frozen=True):
    """A meter's reading."""

    meter: str
    at: ps.EventTime
    litres: int


class Other(Reading, frozen=True):
    """Another record."""


class Sum(ps.Record, frozen=True):
    """A meter's litres in a window."""

    meter: str
    begin: ps.EventTime
    litres: int


def ms(count: int) -> timedelta:
    """Return milliseconds."""
    return timedelta(milliseconds=count)


readings = ps.Category("readings", Reading, key="meter", event_time="at", buckets=1)
late_readings = ps.Category("late_readings", Reading, key="meter", event_time="at", buckets=1)
others = ps.Category("others", Other, key="meter", event_time="at", buckets=1)
sums = ps.Category("sums", Sum, key="meter", event_time="begin", buckets=1)


class Complete(ps.Aggregator):
    """Sums litres per ten milliseconds, writes complete windows, and drops late readings."""

    reads, writes = readings, sums
    monoid: ClassVar[ps.monoids.Monoid[Any]] = ps.monoids.Sum()
    window: ClassVar[ps.windows.WindowAssigner] = ps.windows.Tumbling(ms(10))
    watermark: ClassVar[ps.watermarks.Watermark] = ps.watermarks.BoundedOutOfOrderness(ms(5))
    emit: ClassVar[ps.AtCheckpoint | ps.AtWatermark] = ps.AtWatermark()
    late: ClassVar[ps.OnLate | ps.Category[Any]] = ps.OnLate.DROP

    def observe(self, event: Reading) -> int:
        return event.litres

    def result(self, key: str, window: ps.windows.Window, value: int) -> Sum:
        return Sum(key, window.start, value)


class Patient(Complete):
    """The same with allowed lateness."""

    allowed_lateness = ms(15)


class Hops(Complete):
    """The same over overlapping windows."""

    window = ps.windows.Hopping(ms(10), ms(4))


class Forever(Complete):
    """The same, but keeps every window."""

    late = ps.OnLate.INTO_WINDOW


class Patiently(Patient):
    """Writes differences, which add up to the sums."""

    emit = ps.AtWatermark(differences=True)


class Puma(Complete):
    """Writes changed windows at each checkpoint, and removes complete windows."""

    emit = ps.AtCheckpoint()


class Flow(Complete):
    """Writes differences at each checkpoint."""

    emit = ps.AtCheckpoint(differences=True)
    late = ps.OnLate.INTO_WINDOW


EVENTS = st.lists(
    st.builds(Reading, st.sampled_from(["a", "b"]), st.integers(-40, 120), st.integers(1, 9)), max_size=80
)
CUTS = st.lists(st.tuples(st.integers(0, 80), st.booleans()), max_size=6)


def outputs_of(
    processor: type[ps.Aggregator], events: Sequence[Reading], cuts: Sequence[tuple[int, bool]]
) -> list[Any]:
    """Return a shard's outputs for batches that end at these cuts, with a checkpoint and perhaps a restart at each."""
    saved, outputs = MemoryShardState(), list[Any]()
    overlay = Overlay(saved, lambda _, later: later)
    operator = open_operator(processor(), overlay)
    for (begin, restarts), (end, _) in pairwise([(0, False), *sorted(cuts), (len(events), False)]):
        if restarts:
            operator = open_operator(processor(), overlay)
        outputs += operator.feed(readings, events[begin:end], stop_at_error=True).outputs
        drained = operator.drain()
        outputs += drained.outputs
        overlay.add(drained.changes)
        saved.save(overlay.snapshot())
        overlay.finish({})
    return outputs


def expected_of(
    processor: type[ps.Aggregator], events: Sequence[Reading], lateness: int | None
) -> Counter[tuple[str, int]]:
    """Return the litres of each meter and window from readings within the lateness; None accepts all."""
    truth: Counter[tuple[str, int]] = Counter()
    newest = None
    for event in events:
        for start in processor.window.assign([event.at]).starts:
            end = processor.window.window(start).end
            if lateness is None or newest is None or end + lateness > newest - 5:
                truth[event.meter, start] += event.litres
        newest = event.at if newest is None else max(newest, event.at)
    return truth


@pytest.mark.parametrize("processor", [Complete, Hops])
@given(events=EVENTS, cuts=CUTS)
def test_a_complete_window_is_written_once(
    processor: type[ps.Aggregator], events: list[Reading], cuts: list[tuple[int, bool]]
) -> None:
    """Exactly the windows before the watermark are written; batches and restarts change nothing."""
    found = outputs_of(processor, events, cuts)
    truth = expected_of(processor, events, 0)
    low = max((event.at for event in events), default=0) - 5

    complete = {slot: litres for slot, litres in truth.items() if processor.window.window(slot[1]).end <= low}
    assert {(one.meter, one.begin): one.litres for one in found} == complete
    assert len(found) == len(complete)
    assert found == outputs_of(processor, events, [])
    assert [one.begin for one in found] == sorted(one.begin for one in found)


@given(events=EVENTS, cuts=CUTS)
def test_allowed_lateness_causes_updates(events: list[Reading], cuts: list[tuple[int, bool]]) -> None:
    """The last update of each window includes all events within the allowed lateness."""
    found = outputs_of(Patient, events, cuts)
    truth = expected_of(Patient, events, 15)
    low = max((event.at for event in events), default=0) - 5

    last = {(one.meter, one.begin): one.litres for one in found}
    assert last == {slot: litres for slot, litres in truth.items() if slot[1] + 10 <= low}


@given(events=EVENTS, cuts=CUTS)
def test_into_window_counts_every_late_event(events: list[Reading], cuts: list[tuple[int, bool]]) -> None:
    """No window is removed, so no event is too late."""
    found = outputs_of(Forever, events, cuts)
    low = max((event.at for event in events), default=0) - 5

    last = {(one.meter, one.begin): one.litres for one in found}
    assert last == {slot: litres for slot, litres in expected_of(Forever, events, None).items() if slot[1] + 10 <= low}


@pytest.mark.parametrize(("processor", "lateness", "complete_only"), [(Patiently, 15, True), (Flow, None, False)])
@given(events=EVENTS, cuts=CUTS)
def test_differences_add_up_to_the_windows(
    processor: type[ps.Aggregator],
    lateness: int | None,
    complete_only: bool,
    events: list[Reading],
    cuts: list[tuple[int, bool]],
) -> None:
    """They are written at the watermark and at checkpoints."""
    low = max((event.at for event in events), default=0) - 5
    added: Counter[tuple[str, int]] = Counter()
    for one in outputs_of(processor, events, cuts):
        added[one.meter, one.begin] += one.litres

    truth = expected_of(processor, events, lateness)
    assert added == {slot: litres for slot, litres in truth.items() if not complete_only or slot[1] + 10 <= low}


@given(events=EVENTS, cuts=CUTS)
def test_windows_at_checkpoints_exclude_late_events(events: list[Reading], cuts: list[tuple[int, bool]]) -> None:
    """The last update of each window contains all events in time, whether it is complete or not."""
    last = {(one.meter, one.begin): one.litres for one in outputs_of(Puma, events, cuts)}

    assert last == expected_of(Puma, events, 0)


@given(order=st.permutations(range(40)), data=st.data())
@settings(max_examples=50)
def test_any_order_within_the_bound_gives_the_same_windows(order: list[int], data: st.DataObject) -> None:
    """Events that are delayed by no more than the bound are in time."""
    held = sorted((n + data.draw(st.integers(0, 5)), place, n) for place, n in enumerate(order))
    end = Reading("end", 1_000, 1)
    arrived = [Reading("a", n, n) for _, _, n in held]

    in_order = outputs_of(Complete, [Reading("a", n, n) for n in range(40)] + [end], [])
    assert outputs_of(Complete, [*arrived, end], []) == in_order


def test_state_stays_small_over_a_long_stream() -> None:
    """The state contains only the newest windows and the event time."""
    saved = MemoryShardState()
    overlay = Overlay(saved, lambda _, later: later)
    operator = open_operator(Patient(), overlay)
    sizes = []
    for begin in range(0, 100_000, 500):
        operator.feed(readings, [Reading(f"m{n % 7}", n, 1) for n in range(begin, begin + 500)], stop_at_error=True)
        saved.save(operator.drain().changes)
        sizes.append(len(saved.scan(b"", b"\xff\xff", 10**6)))

    assert max(sizes[10:]) <= max(sizes[:10]) <= 5 * 7 + 1


def test_late_events_are_counted_and_sent_to_their_category() -> None:
    """Events within the allowed lateness count as late, but are not dropped."""

    class WithLateCategory(Patient):
        late = late_readings

    driver = Driver(WithLateCategory)
    too_late = Reading("a", 3, 7)
    driver.send(readings, [Reading("a", 0, 1), Reading("a", 26, 1), Reading("a", 5, 1), Reading("a", 40, 1), too_late])

    assert driver.read(late_readings) == [too_late]
    assert (driver.metrics(WithLateCategory).late, driver.metrics(WithLateCategory).dropped) == (2, 1)
    assert driver.read(sums)[-1] == Sum("a", 20, 1)
    assert Sum("a", 0, 2) in driver.read(sums)


def test_early_results_follow_their_interval() -> None:
    """The interval is in wall-clock time, for windows with changes. The complete window follows."""

    class Early(Complete):
        emit = ps.AtWatermark(early=timedelta(seconds=10))

    driver = Driver(Early, start_ms=10**12)
    driver.send(readings, [Reading("a", 0, 1)])
    driver.advance(9)
    assert driver.read(sums) == []
    driver.advance(1)
    driver.advance(20)
    driver.send(readings, [Reading("a", 1, 2)])
    driver.advance(20)
    driver.send(readings, [Reading("a", 30, 2)])

    assert driver.read(sums) == [Sum("a", 0, 1), Sum("a", 0, 3), Sum("a", 0, 3)]


LEAST, MOST, EXACT = ps.Semantics.AT_LEAST_ONCE, ps.Semantics.AT_MOST_ONCE, ps.Semantics.EXACTLY_ONCE
ROWS = [(LEAST, LEAST), (MOST, MOST), (EXACT, LEAST), (EXACT, MOST), (EXACT, EXACT)]


def early_of(state: ps.Semantics, output: ps.Semantics) -> type[ps.Aggregator]:
    """Return an aggregator with early results every ten seconds and these semantics."""
    return type(
        "Early",
        (Patient,),
        {
            "emit": ps.AtWatermark(early=timedelta(seconds=10)),
            "state_semantics": state,
            "output_semantics": output,
        },
    )


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_early_results_are_committed_without_further_events(row: tuple[ps.Semantics, ps.Semantics]) -> None:
    """Readers see them although no other event is written."""
    driver = Driver(early_of(*row), start_ms=10**12)
    driver.send(readings, [Reading("a", 0, 1), Reading("b", 1, 2)])
    driver.advance(10)
    driver.advance(10)

    assert driver.read(sums) == [Sum("a", 0, 1), Sum("b", 0, 2)]


@pytest.mark.parametrize("row", ROWS, ids=str)
@pytest.mark.parametrize("disk", Disk)
def test_pending_early_results_survive_a_restart(disk: Disk, row: tuple[ps.Semantics, ps.Semantics]) -> None:
    """Their interval includes the time before the restart; with at-most-once semantics they may be missing."""
    processor = early_of(*row)
    driver = Driver(processor, start_ms=10**12)
    driver.run()
    older = copy_of(driver, processor)
    driver.send(readings, [Reading("a", 0, 1)])
    driver.advance(6)
    restart(driver, processor, disk, older)
    driver.advance(4)
    if disk is not Disk.SAME:
        driver.advance(6)  # an interval that was lost with the disk starts again

    assert driver.read(sums) == [Sum("a", 0, 1)]


@pytest.mark.parametrize("row", [row for row in ROWS if row[1] is not LEAST], ids=str)
@pytest.mark.parametrize("disk", Disk)
def test_early_results_are_written_once_after_a_lost_disk(disk: Disk, row: tuple[ps.Semantics, ps.Semantics]) -> None:
    """Neither an older state nor a replay repeats them."""
    processor = early_of(*row)
    driver = Driver(processor, start_ms=10**12)
    driver.send(readings, [Reading("a", 0, 1), Reading("b", 1, 2)])
    older = copy_of(driver, processor)
    driver.advance(10)
    driver.send(readings, [Reading("b", 2, 5)])
    restart(driver, processor, disk, older)
    driver.advance(10)
    driver.advance(10)
    driver.send(readings, [Reading("z", 100, 1)])
    restart(driver, processor, disk, older)
    driver.advance(10)

    found = [one for one in driver.read(sums) if one.meter != "z"]
    assert found == [Sum("a", 0, 1), Sum("b", 0, 2), Sum("b", 0, 7), Sum("a", 0, 1), Sum("b", 0, 7)]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_early_results_keep_their_guarantee_after_a_crash(row: tuple[ps.Semantics, ps.Semantics]) -> None:
    """The crash may be at each step of the checkpoint that writes them, with the disk and without."""
    processor = early_of(*row)
    for step in (*steps_of(processor), None):
        for disk in Disk:
            driver = Driver(processor, start_ms=10**12)
            driver.send(readings, [Reading("a", 0, 1), Reading("b", 1, 2)])
            older = copy_of(driver, processor)
            driver.clock.advance(10)
            driver.send(readings, [Crash(step)])
            restart(driver, processor, disk, older)
            driver.advance(10)
            driver.advance(10)

            expect_guarantee(row[1], Counter(driver.read(sums)), Counter([Sum("a", 0, 1), Sum("b", 0, 2)]))


def expect_guarantee(semantics: ps.Semantics, found: Counter[Sum], truth: Counter[Sum]) -> None:
    """Compare outputs with the expected outputs under these semantics."""
    if semantics is not MOST:
        assert found >= truth
    if semantics is not LEAST:
        assert found <= truth
    assert set(found) <= set(truth)


def test_a_pending_early_result_belongs_to_its_key() -> None:
    """A resize moves it together with its key."""
    processor, saved = early_of(EXACT, EXACT), MemoryShardState()
    operator = open_operator(processor(), saved)
    operator.feed(readings, [Reading("b", 3, 1), Reading("a", 12, 1)], stop_at_error=True)
    saved.save(operator.drain().changes)
    pending = saved.scan(EARLY_RESULTS, EARLY_RESULTS + b"\xff" * 9, 10)

    assert [entry_key_reader(processor)(*entry) for entry in pending] == [b"b", b"a"]


@pytest.mark.parametrize(
    "step", [Step.FLUSH_OUTPUTS, Step.PREPARE_STATE, Step.COMMIT_TRANSACTION, Step.APPLY_STATE, None]
)
def test_complete_windows_are_written_once_after_a_crash(step: Step | None) -> None:
    """The crash may be after any reading and at any step."""

    class Exact(Patiently):
        output_semantics = ps.Semantics.EXACTLY_ONCE

    events = [Reading("ab"[n % 2], n * 3 - 12 * (n % 5 == 4), n) for n in range(30)]
    whole = Driver(Exact)
    whole.send(readings, events)
    for at in range(1, len(events), 4):
        driver = Driver(Exact)
        driver.send(readings, [*events[:at], Crash(before=step), *events[at:]])
        added: dict[tuple[str, int], int] = defaultdict(int)
        for one in driver.read(sums):
            added[one.meter, one.begin] += one.litres

        assert added == {(one.meter, one.begin): 0 for one in whole.read(sums)} | _added(whole.read(sums))


def _added(found: Sequence[Sum]) -> dict[tuple[str, int], int]:
    added: Counter[tuple[str, int]] = Counter()
    for one in found:
        added[one.meter, one.begin] += one.litres
    return dict(added)


@given(
    times=st.lists(st.integers(-(10**6), 10**6), min_size=1), length=st.integers(1, 1_000), step=st.integers(1, 1_000)
)
def test_each_time_is_in_its_hopping_windows(times: list[int], length: int, step: int) -> None:
    """Their number is the length divided by the step, rounded up or down."""
    assigner = ps.windows.Hopping(ms(max(length, step)), ms(step))
    assign = assigner.assign(times)
    found = defaultdict(list)
    for row, start in zip(*assign, strict=True):
        found[row].append(start)
        window = assigner.window(start)
        assert window.start <= times[row] < window.end
        assert start % step == 0

    for row in range(len(times)):
        assert len(found[row]) in {max(length, step) // step, -(-max(length, step) // step)}


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"window": ps.windows.GlobalWindow()}, "global window never ends"),
        ({"allowed_lateness": ms(-1)}, "must not be negative"),
        ({"allowed_lateness": ms(1), "late": ps.OnLate.INTO_WINDOW}, "accepts later events as well"),
        ({"store": ps.RemoteStore()}, "several shards share"),
        ({"writes": ()}, "Declare `writes`"),
        ({"late": others}, "the record type of the input"),
    ],
)
def test_unsupported_aggregator_declarations_are_refused(attributes: dict[str, Any], message: str) -> None:
    """The error explains what to change."""
    wrong: type[ps.Aggregator] = type("Wrong", (Complete,), attributes)

    with pytest.raises(DeclarationError, match=message):
        plan_of(wrong).check()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ps.windows.Hopping(ms(5), ms(6)), "would be lost"),
        (lambda: ps.windows.Hopping(ms(5), timedelta()), "at least 1"),
        (lambda: ps.windows.Tumbling(timedelta()), "at least 1"),
        (lambda: ps.AtWatermark(early=timedelta()), "greater than zero"),
    ],
)
def test_invalid_windows_are_refused(make: Any, message: str) -> None:
    """The error explains what to change."""
    with pytest.raises(DeclarationError, match=message):
        make()


def test_ten_events_complete_windows_by_default() -> None:
    """A quiet category has them, too. Until then, the watermark reports how many events it waits for."""

    class ByDefault(Complete):
        watermark = ps.watermarks.Confidence()

    driver = Driver(ByDefault)
    driver.send(readings, [Reading("a", 10 * n, 1) for n in range(3)])
    driver.advance(1)
    few = watermarks_on(driver.bus)["by_default", 0]
    driver.send(readings, [Reading("a", 10 * n, 1) for n in range(3, 10)])

    assert few.held_by == "readings/0, which has had 3 of the 8 events after which its watermark begins"
    assert [one.begin for one in driver.read(sums)] == list(range(0, 90, 10))


def test_a_worker_that_stops_at_once_reports_no_earlier_reason() -> None:
    """The reason belongs to the watermark beside it; the one from before the first event is outdated."""

    class ByDefault(Complete):
        watermark = ps.watermarks.Confidence()

    driver = Driver(ByDefault)
    driver.send(readings, [Reading("a", 10 * n, 1) for n in range(3)])
    driver.advance(1)
    driver.send(readings, [Reading("a", 10 * n, 1) for n in range(3, 20)])

    last = watermarks_on(driver.bus)["by_default", 0]
    assert (last.low_ms, last.held_by) == (190, "")
