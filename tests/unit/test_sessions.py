"""Session windows: nearby events of a key form one session, in any order of arrival."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.ops.kernel import Crash, Driver
from penstock.processors import DeclarationError
from penstock.processors.declare import plan_of
from penstock.processors.operators import open_operator
from penstock.processors.shard import Overlay, Step
from penstock.state import MemoryShardState

GAP, BOUND = 10, 25


class Click(ps.Record, frozen=True):
    """A user clicks."""

    user: str
    at: ps.EventTime
    number: int


class Visit(ps.Record, frozen=True):
    """A user's clicks without a pause."""

    user: str
    begin: int
    end: ps.EventTime
    clicks: int
    numbers: int


clicks = ps.Category("clicks", Click, key="user", event_time="at", buckets=1)
late_clicks = ps.Category("late_clicks", Click, key="user", event_time="at", buckets=1)
visits = ps.Category("visits", Visit, key="user", event_time="end", buckets=1)


class Visits(ps.Aggregator):
    """Counts the clicks of a visit, and adds their numbers up."""

    reads, writes = clicks, visits
    monoid: ClassVar[ps.monoids.Monoid[Any]] = ps.monoids.TupleOf(ps.monoids.Count(), ps.monoids.Sum())
    window = ps.windows.Session(timedelta(milliseconds=GAP))
    watermark: ClassVar[ps.watermarks.Watermark] = ps.watermarks.BoundedOutOfOrderness(timedelta(milliseconds=BOUND))
    emit = ps.AtWatermark()
    late: ClassVar[Any] = ps.OnLate.DROP
    output_semantics = ps.Semantics.EXACTLY_ONCE

    def observe(self, event: Click) -> tuple[int, int]:
        return 1, event.number

    def result(self, key: str, window: ps.windows.Window, value: tuple[int, int]) -> Visit:
        return Visit(key, window.start, window.end, *value)


CLICKS = st.lists(st.builds(Click, st.sampled_from("ab"), st.integers(0, 150), st.integers(0, 9)), max_size=40)
END = Click("end", 1_000, 0)


def expected(given_clicks: Sequence[Click]) -> list[Visit]:
    """Return the visits of clicks, computed from each user's clicks in order of time."""
    found = []
    for user in "ab":
        run: list[Click] = []
        for click in sorted((click for click in given_clicks if click.user == user), key=lambda click: click.at):
            if run and click.at - run[-1].at >= GAP:
                found.append(run)
                run = []
            run.append(click)
        if run:
            found.append(run)
    visits = [
        Visit(run[0].user, run[0].at, run[-1].at + GAP, len(run), sum(click.number for click in run)) for run in found
    ]
    return sorted(visits, key=lambda visit: (visit.end, visit.user))


def visits_of(
    arrived: Sequence[Click], cuts: Sequence[tuple[int, bool]], processor: type[Visits] = Visits
) -> list[Visit]:
    """Return a shard's outputs for batches with a checkpoint, and perhaps a restart, at each cut."""
    saved, outputs = MemoryShardState(), list[Any]()
    overlay = Overlay(saved, lambda _, later: later)
    operator = open_operator(processor(), overlay)
    for (begin, restarts), (end, _) in pairwise([(0, False), *sorted(cuts), (len(arrived), False)]):
        operator = open_operator(processor(), overlay) if restarts else operator
        outputs += operator.feed(clicks, arrived[begin:end], stop_at_error=True).outputs
        overlay.add(operator.drain().changes)
        saved.save(overlay.snapshot())
        overlay.finish({})
    assert set(saved.scan(b"", b"\xff", 100)) == set(saved.scan(b"end", b"ene", 100)), (
        "the state still contains ended sessions"
    )
    return outputs


@given(given_clicks=CLICKS, data=st.data(), cuts=st.lists(st.tuples(st.integers(0, 41), st.booleans()), max_size=4))
def test_sessions_do_not_depend_on_the_order_of_arrival(
    given_clicks: list[Click], data: st.DataObject, cuts: list[tuple[int, bool]]
) -> None:
    """With delays within the bound, any batches and restarts, each session is written once, in order of ends."""
    delays = data.draw(st.lists(st.integers(0, BOUND), min_size=len(given_clicks), max_size=len(given_clicks)))
    delayed = sorted(zip(given_clicks, delays, strict=True), key=lambda held: held[0].at + held[1])

    assert visits_of([*(click for click, _ in delayed), END], cuts) == expected(given_clicks)


SHRINKS_AT = 8


class Shrinking:
    """Allows lateness until it has seen some events, and none from then on: a jump of the watermark, as of an estimate."""

    def bound_ms(self, lateness: Any) -> int:
        return BOUND if lateness.observed < SHRINKS_AT else 0


class ShrinkingVisits(Visits):
    """Visits whose watermark jumps."""

    watermark = Shrinking()


def on_time(arrived: Sequence[Click]) -> list[Click]:
    """Leave out the clicks behind the watermark before them."""
    kept, newest, low = list[Click](), -BOUND, -BOUND
    for click in arrived:
        if click.at >= low:
            kept.append(click)
            newest = max(newest, click.at)
            low = max(low, newest - (BOUND if len(kept) < SHRINKS_AT else 0))
    return kept


CLOSE_CLICKS = st.lists(
    st.builds(Click, st.sampled_from("ab"), st.integers(0, 2 * BOUND), st.integers(0, 9)),
    min_size=SHRINKS_AT,
    max_size=2 * SHRINKS_AT,
)


@given(arrived=CLOSE_CLICKS, cuts=st.lists(st.tuples(st.integers(0, 41), st.booleans()), max_size=4))
def test_an_event_belongs_to_a_session_that_its_own_watermark_ends(
    arrived: list[Click], cuts: list[tuple[int, bool]]
) -> None:
    """An event is on time by the watermark before it, also if the watermark jumps at this event."""
    clicks_on_time = on_time(arrived)
    found = visits_of([*clicks_on_time, END], cuts, ShrinkingVisits)

    assert sorted(found, key=lambda visit: (visit.end, visit.user)) == expected(clicks_on_time)


def test_a_late_event_joins_an_open_session_or_is_dropped() -> None:
    """A category for late events receives dropped events; both events count as late."""

    class WithLateCategory(Visits):
        late = late_clicks
        watermark = ps.watermarks.BoundedOutOfOrderness()

    driver = Driver(WithLateCategory)
    arrived = [Click("a", 0, 1), Click("a", 20, 1), Click("a", 12, 1), Click("a", 1, 5), END]
    driver.send(clicks, arrived)

    assert driver.read(visits) == [Visit("a", 0, 10, 1, 1), Visit("a", 12, 30, 2, 2)]
    assert driver.read(late_clicks) == [Click("a", 1, 5)]
    assert (driver.metrics(WithLateCategory).late, driver.metrics(WithLateCategory).dropped) == (2, 1)


@pytest.mark.parametrize(
    "step", [Step.FLUSH_OUTPUTS, Step.PREPARE_STATE, Step.COMMIT_TRANSACTION, Step.APPLY_STATE, None]
)
def test_sessions_survive_a_crash(step: Step | None) -> None:
    """Open sessions continue, and each session is written once."""
    arrived = [Click("ab"[n % 2], n * 4 + (n // 7) * 9 - (n % 3) * 6, n) for n in range(40)] + [END]
    for at in range(1, len(arrived), 6):
        driver = Driver(Visits)
        driver.send(clicks, [*arrived[:at], Crash(before=step), *arrived[at:]])

        assert driver.read(visits) == expected(arrived)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"emit": ps.AtCheckpoint()}, "known only when it is complete"),
        ({"emit": ps.AtWatermark(differences=True)}, "known only when it is complete"),
        ({"late": ps.OnLate.INTO_WINDOW}, "merge sessions that were already written"),
        ({"allowed_lateness": timedelta(seconds=1)}, "declare a slower `watermark`"),
        ({"store": ps.RemoteStore()}, "several shards share"),
    ],
)
def test_unsupported_session_declarations_are_refused(attributes: dict[str, Any], message: str) -> None:
    """The error explains what to change."""
    wrong: type[ps.Aggregator] = type("Wrong", (Visits,), attributes)

    with pytest.raises(DeclarationError, match=message):
        plan_of(wrong).check()
