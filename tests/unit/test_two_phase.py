"""Aggregators in two phases have the results of one phase, however the events of a group are spread."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.ops.kernel import Crash, Driver
from penstock.processors import DeclarationError
from penstock.processors.apps.clones import cloned
from penstock.processors.declare import in_phases, plan_of
from penstock.processors.declare.phases import PartialsOf
from penstock.processors.monoids import check_laws
from penstock.processors.shard import Step

CLOSING_MS = 1_000


class Click(ps.Record, frozen=True):
    """A click of a user on a page."""

    user: str
    page: str
    at: ps.EventTime
    spent: int


class Summary(ps.Record, frozen=True):
    """The clicks on a page in a window."""

    page: str
    begin: ps.EventTime
    clicks: int
    spent: int
    longest: int
    users: int


def ms(count: int) -> timedelta:
    """Return milliseconds."""
    return timedelta(milliseconds=count)


CLICKS = ps.Category("clicks", Click, key="user", event_time="at", buckets=3)
BY_PAGE = ps.Category("by_page", Click, key="page", event_time="at", buckets=2)
SUMMARIES = ps.Category("summaries", Summary, key="page", event_time="begin", buckets=2)


class Summarized(ps.Aggregator):
    """Summarizes the clicks on each page in two phases."""

    reads: ClassVar[Any] = CLICKS
    writes = SUMMARIES
    monoid: ClassVar[ps.monoids.Monoid[Any]] = ps.monoids.TupleOf(
        ps.monoids.Count(), ps.monoids.Sum(), ps.monoids.Max(), ps.monoids.MapOf(ps.monoids.Count())
    )
    window: ClassVar[ps.windows.WindowAssigner] = ps.windows.Tumbling(ms(10))
    watermark: ClassVar[ps.watermarks.Watermark] = ps.watermarks.BoundedOutOfOrderness(ms(5))
    two_phase: ClassVar[ps.TwoPhase | None] = ps.TwoPhase("page", buckets=2)

    def observe(self, event: Click) -> tuple[Any, ...] | None:
        return (1, event.spent, event.spent, {event.user: 1}) if event.spent else None

    def result(self, key: str, window: ps.windows.Window, value: tuple[Any, ...]) -> Summary:
        clicks, spent, longest, users = value
        begin = 0 if isinstance(self.window, ps.windows.GlobalWindow) else window.start
        return Summary(key, begin, clicks, spent, longest, len(users))


class Complete(Summarized):
    """Writes complete windows once, and drops late clicks."""

    emit: ClassVar[ps.AtCheckpoint | ps.AtWatermark] = ps.AtWatermark()
    late: ClassVar[ps.OnLate | ps.Category[Any]] = ps.OnLate.DROP
    output_semantics = ps.Semantics.EXACTLY_ONCE


class InHops(Complete):
    """The same over overlapping windows."""

    window = ps.windows.Hopping(ms(10), ms(4))


class Ever(Summarized):
    """Summarizes all clicks on each page."""

    window = ps.windows.GlobalWindow()


class Early(Complete):
    """Also writes early results."""

    emit = ps.AtWatermark(early=timedelta(seconds=1))


class Ordered(Summarized):
    """Has a monoid that depends on the order."""

    monoid = ps.monoids.FirstArrived()


class InSessions(Complete):
    """Has windows that depend on the events."""

    window = ps.windows.Session(ms(10))


class LateAside(Complete):
    """Writes late clicks to a category."""

    late = ps.Category("late_clicks", Click, key="user", event_time="at")


class OwnKey(Summarized):
    """Groups by the key of its input."""

    two_phase = ps.TwoPhase("user")


CLICK = st.builds(
    Click, st.sampled_from("abcdef"), st.sampled_from(["/", "/", "/cart"]), st.integers(0, 90), st.integers(0, 9)
)
BATCHES = st.lists(st.tuples(st.lists(CLICK, max_size=12), st.sampled_from([None, *Step])), min_size=1, max_size=4)


def results(processor: type[ps.Aggregator], batches: Iterable[tuple[Sequence[Click], Step | None]]) -> list[Summary]:
    """Return the results for batches, each of which ends in a crash, without the results of the events that close the windows."""
    driver = Driver(processor)
    [read] = plan_of(processor).inputs
    for clicks, step in batches:
        try:
            driver.send(read, [*clicks, Crash(step)])
        except DeclarationError:  # no checkpoint has this step
            driver.send(read, [*clicks, Crash()])
    driver.send(read, [Click(f"closing {n}", f"closing {n}", CLOSING_MS, 1) for n in range(12)])
    driver.advance(120)
    return [found for found in driver.read(SUMMARIES) if not found.page.startswith("closing")]


def last_updates(found: Iterable[Summary]) -> set[Summary]:
    return set({(one.page, one.begin): one for one in found}.values())


def expected(processor: type[ps.Aggregator], clicks: Iterable[Click]) -> set[Summary]:
    """Return the summaries of all clicks, computed by other code."""
    slots = defaultdict[tuple[str, int], list[Click]](list)
    for click in filter(lambda one: one.spent, clicks):
        for start in starts(processor, click.at):
            slots[click.page, start].append(click)
    return {
        Summary(
            page,
            start,
            len(found),
            sum(one.spent for one in found),
            max(one.spent for one in found),
            len({one.user for one in found}),
        )
        for (page, start), found in slots.items()
    }


def starts(processor: type[ps.Aggregator], at: int) -> list[int]:
    match processor.window:
        case ps.windows.GlobalWindow():
            return [0]
        case ps.windows.Hopping():
            return [start for start in range(-8, at + 1, 4) if at - start < 10]
        case _:
            return [at // 10 * 10]


@pytest.mark.parametrize("processor", [Summarized, Ever])
@settings(max_examples=20)
@given(batches=BATCHES)
def test_updates_are_those_of_one_phase(
    processor: type[ps.Aggregator], batches: list[tuple[list[Click], Step | None]]
) -> None:
    """Each window ends with the result of all its events, also of late ones, although workers crash in every step of checkpoints."""
    found = results(processor, batches)

    assert last_updates(found) == expected(processor, [click for clicks, _ in batches for click in clicks])


@pytest.mark.parametrize("processor", [Complete, InHops, Early])
@settings(max_examples=20)
@given(clicks=st.lists(CLICK, max_size=40), crash=st.sampled_from([None, *Step]))
@example(
    clicks=[
        *(
            Click(user, "/", at, 1)
            for user, at in (("a", 55), ("d", 57), ("d", 52), ("f", 36), ("f", 20), ("c", 5), ("c", 7))
        ),
        *(
            Click(user, "/", at, 1)
            for user, at in (("a", 85), ("b", 71), ("b", 69), ("a", 88), ("c", 61), ("c", 55), ("d", 46))
        ),
    ],
    crash=Step.FLUSH_OUTPUTS,
)
def test_complete_windows_are_those_of_one_phase(
    processor: type[ps.Aggregator], clicks: list[Click], crash: Step | None
) -> None:
    """With events in order of time, each window is written once, with all its events."""
    ordered = sorted(clicks, key=lambda click: click.at)
    half = len(ordered) // 2
    found = results(processor, [(ordered[:half], crash), (ordered[half:], None)])

    assert last_updates(found) == expected(processor, clicks)
    assert len(found) == len(expected(processor, clicks)) or processor is Early


def one_bucket_of(processor: type[ps.Aggregator]) -> type[ps.Aggregator]:
    """Return an aggregator whose input has one bucket, so that the order of its events is known."""
    return type(processor.__name__, (processor,), {"reads": ps.Category("single", Click, "user", "at", buckets=1)})


@pytest.mark.parametrize("late", [ps.OnLate.DROP, ps.OnLate.INTO_WINDOW])
@pytest.mark.parametrize("lateness", [0, 20])
def test_late_events_have_the_fate_of_one_phase(late: ps.OnLate, lateness: int) -> None:
    """An event after the end of its window, and after the allowed lateness, is dropped or added."""
    allowed = lateness if late is ps.OnLate.DROP else 0
    members = {"late": late, "allowed_lateness": ms(allowed)}
    phased = type("Phased", (one_bucket_of(Complete),), members)
    direct = type("Direct", (Complete,), {**members, "two_phase": None, "reads": BY_PAGE_1})
    batches = [([Click("a", "/", at, 1)], None) for at in (1, 8, 17, 3, 29, 2, 31, 33, 4, 60, 5, 35)]

    assert Counter(results(phased, batches)) == Counter(results(direct, batches))


BY_PAGE_1 = ps.Category("by_page_1", Click, key="page", event_time="at", buckets=1)


def test_partials_are_fewer_than_events() -> None:
    """Each group, window and checkpoint of a bucket has one partial, so a large group is cheap."""
    driver = Driver(Summarized)
    driver.send(CLICKS, [Click(f"u{n}", "/", n % 10, 1) for n in range(600)])
    [first, _] = driver.app.processors

    assert len(driver.read(plan_of(first).outputs[0])) == 3  # one for each bucket of the input
    assert [one.clicks for one in driver.read(SUMMARIES)][-1] == 600


def test_partials_are_exactly_once_whatever_the_results_are() -> None:
    """A repeated partial would count its events twice."""
    [first, second] = Driver(Summarized).app.processors

    assert (first.state_semantics, first.output_semantics) == (ps.Semantics.EXACTLY_ONCE, ps.Semantics.EXACTLY_ONCE)
    assert second.output_semantics is ps.Semantics.AT_LEAST_ONCE


def test_the_states_of_one_and_two_phases_do_not_fit_each_other() -> None:
    """They have other inputs: a state that was kept would count events twice."""
    direct: type[ps.Aggregator] = type("Summarized", (Summarized,), {"two_phase": None, "reads": BY_PAGE})
    phases = Driver(Summarized).app.processors

    assert len({plan_of(direct).state_shape, *(plan_of(phase).state_shape for phase in phases)}) == 3


def test_a_clone_has_both_phases_under_its_own_names() -> None:
    """The partials of a clone are its own; both read the same clicks."""
    driver = Driver([*cloned(in_phases([Summarized]), "staging"), Summarized])
    driver.send(CLICKS, [Click(f"u{n}", "/", n % 10, 1) for n in range(30)])

    for name in ("summaries", "staging.summaries"):
        [category] = [one for one in driver.app.categories() if one.name == name]
        assert [found.clicks for found in driver.read(category)] == [30]


@pytest.mark.parametrize(
    ("processor", "reason"),
    [
        (Ordered, "depends on the order of events"),
        (InSessions, "These windows depend on all events of a group"),
        (LateAside, "A partial no longer contains its events"),
        (OwnKey, "this is the key of clicks"),
    ],
)
def test_what_two_phases_cannot_do_is_refused(processor: type[ps.Aggregator], reason: str) -> None:
    """It is refused before anything is read, with the reason and an alternative."""
    with pytest.raises(DeclarationError, match=reason):
        Driver(processor)


def test_partials_obey_the_laws_of_monoids() -> None:
    """Their observations are encoded partials of the inner monoid."""
    inner = ps.monoids.MapOf[str, int](ps.monoids.Count())
    check_laws(PartialsOf(inner), [inner.encode(inner.lift({name: 1})) for name in "abac"])
