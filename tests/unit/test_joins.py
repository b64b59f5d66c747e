"""Join guarantees: each pair once, unmatched events when no match can follow, and bounded state."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import groupby
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.ops.kernel import Crash, Driver
from penstock.processors import DeclarationError
from penstock.processors.declare import plan_of
from penstock.processors.operators import open_operator
from penstock.processors.shard import Overlay, Step
from penstock.state import MemoryShardState, MemoryStateFolder

BOUND = 15


class Order(ps.Record, frozen=True):
    """An order."""

    who: str
    at: ps.EventTime
    number: int


class Payment(ps.Record, frozen=True):
    """A payment."""

    who: str
    at: ps.EventTime
    amount: int


class Match(ps.Record, frozen=True):
    """An order with a payment, or one of them alone."""

    who: str
    at: ps.EventTime
    number: int | None
    amount: int | None


orders = ps.Category("orders", Order, key="who", event_time="at", buckets=1)
payments = ps.Category("payments", Payment, key="who", event_time="at", buckets=1)
matches = ps.Category("matches", Match, key="who", event_time="at", buckets=1)


class Inner(ps.Join):
    """Payments from five before an order to ten after it."""

    left, right, writes = orders, payments, matches
    before, after = timedelta(milliseconds=5), timedelta(milliseconds=10)
    watermark = ps.watermarks.BoundedOutOfOrderness(timedelta(milliseconds=BOUND))
    output_semantics = ps.Semantics.EXACTLY_ONCE

    def join(self, left: Order | None, right: Payment | None, context: ps.Context) -> Iterable[Match]:
        yield Match(
            context.key,
            left.at if left else right.at if right else 0,
            left.number if left else None,
            right.amount if right else None,
        )


class Left(Inner):
    """Also unpaid orders."""

    join_type = ps.JoinType.LEFT


class Outer(Inner):
    """Also payments without an order."""

    join_type = ps.JoinType.OUTER


class Matching(Outer):
    """Of those about the same time, an order and a payment that are both even or both odd."""

    def matches(self, left: Order, right: Payment) -> bool:
        return left.number % 2 == right.amount % 2


Event = Order | Payment
EVENTS = st.lists(
    st.one_of(
        st.builds(Order, st.sampled_from("ab"), st.integers(0, 100), st.integers(0, 99)),
        st.builds(Payment, st.sampled_from("ab"), st.integers(0, 100), st.integers(0, 99)),
    ),
    max_size=30,
)
LAST_ORDER, LAST_PAYMENT = Order("end", 10_000, 0), Payment("end", 10_000, 0)


def expected(processor: type[ps.Join], events: Iterable[Event]) -> Counter[Match]:
    """Return all matches, by looking at every pair."""
    placed = list(events)
    lefts = [event for event in placed if isinstance(event, Order)]
    rights = [event for event in placed if isinstance(event, Payment)]
    pairs = [
        (left, right)
        for left in range(len(lefts))
        for right in range(len(rights))
        if lefts[left].who == rights[right].who
        and -5 <= rights[right].at - lefts[left].at <= 10
        and (not issubclass(processor, Matching) or (lefts[left].number - rights[right].amount) % 2 == 0)
    ]
    found = Counter(
        Match(lefts[left].who, lefts[left].at, lefts[left].number, rights[right].amount) for left, right in pairs
    )
    if processor is not Inner:
        met = {left for left, _ in pairs}
        found.update(Match(one.who, one.at, one.number, None) for at, one in enumerate(lefts) if at not in met)
    if issubclass(processor, Outer):
        met = {right for _, right in pairs}
        found.update(Match(one.who, one.at, None, one.amount) for at, one in enumerate(rights) if at not in met)
    return found


def matches_of(processor: type[ps.Join], arrived: Sequence[Event], restarts: set[int]) -> Counter[Match]:
    """Return a shard's outputs for batches of one category, with a checkpoint after each and a restart after some."""
    saved, found = MemoryShardState(), Counter[Match]()
    overlay = Overlay(saved, lambda _, later: later)
    core = open_operator(processor(), overlay)
    batches = groupby(arrived, key=type)
    for number, (record, batch) in enumerate(batches):
        category: Any = orders if record is Order else payments
        found.update(core.feed(category, list(batch), stop_at_error=True).outputs)
        overlay.add(core.drain().changes)
        saved.save(overlay.snapshot())
        overlay.finish({})
        core = open_operator(processor(), overlay) if number in restarts else core
    assert {key for key, _ in saved.scan(b"", b"\xff", 100)} <= {b"end"}, "what is over is still held"
    return Counter({match: times for match, times in found.items() if match.who != "end"})


@pytest.mark.parametrize("processor", [Inner, Left, Outer, Matching])
@given(events=EVENTS, data=st.data(), restarts=st.sets(st.integers(0, 30), max_size=4))
def test_matches_do_not_depend_on_the_order_of_arrival(
    processor: type[ps.Join], events: list[Event], data: st.DataObject, restarts: set[int]
) -> None:
    """Events are delayed within the bound, in any order of the categories, with restarts between batches."""
    delays = data.draw(st.lists(st.integers(0, BOUND), min_size=len(events), max_size=len(events)))
    held_up = sorted(zip(events, delays, strict=True), key=lambda held: held[0].at + held[1])

    assert matches_of(processor, [*map(itemgetter(0), held_up), LAST_ORDER, LAST_PAYMENT], restarts) == expected(
        processor, events
    )


@pytest.mark.parametrize(
    "step", [Step.LOG_CHANGES, Step.PREPARE_STATE, Step.COMMIT_TRANSACTION, Step.APPLY_STATE, None]
)
def test_each_match_is_written_once_although_workers_die(step: Step | None) -> None:
    """Buffered events are part of the state."""
    paid = [Payment("ab"[n % 2], n * 9, n) for n in range(20)]
    ordered = [Order("ab"[n % 2], n * 11, n) for n in range(16)]
    for at in range(1, 16, 5):
        driver = Driver(Outer)
        driver.send(orders, [*ordered[:at], Crash(before=step)])
        driver.send(payments, [*paid[:at], Crash(before=step), *paid[at:]])
        driver.send(orders, [*ordered[at:], LAST_ORDER])
        driver.send(payments, [LAST_PAYMENT])

        found = Counter(match for match in driver.read(matches) if match.who != "end")
        assert found == expected(Outer, [*paid, *ordered])


@pytest.mark.parametrize("first", [orders, payments])
def test_a_match_with_an_earlier_event_is_written_after_a_lost_state(first: ps.Category[Any]) -> None:
    """One of two was read, and the other was not, so the two have not met yet, whichever is read first now."""

    class Repeating(Inner):
        output_semantics = ps.Semantics.AT_LEAST_ONCE

    driver = Driver(Repeating)
    ordered, paid = (orders, [Order("a", 1, 1)]), (payments, [Payment("a", 2, 2)])
    before, after = (ordered, paid) if first is orders else (paid, ordered)
    driver.send(*before)
    driver._discard_worker(Repeating)
    driver._states[Repeating] = MemoryStateFolder(lambda _, later: later)
    driver.send(*after)

    assert driver.read(matches) == [Match("a", 1, 1, 2)]


class Limited(Outer):
    """Returns a record that does not fit for payments of 13, after their matches were found."""

    on_error = ps.ErrorPolicy.DEAD_LETTER

    def join(self, left: Order | None, right: Payment | None, context: ps.Context) -> Iterable[Match]:
        for match in super().join(left, right, context):
            yield match if match.amount != 13 else Match(match.who, match.at, "thirteen", None)  # type: ignore[arg-type]  # the fault under test


def _before_the_thirteen(events: Iterable[Event]) -> list[Event]:
    fitting = [event for event in events if event.at < 50 and getattr(event, "amount", 0) != 13]
    return sorted(fitting, key=lambda event: event.at)


@given(EVENTS.map(_before_the_thirteen))
@settings(deadline=None, max_examples=20)
def test_an_event_that_is_rejected_for_its_outputs_leaves_the_buffers_as_they_were(events: list[Event]) -> None:
    """A dead letter is joined with no later event, and an order that only met dead letters is unmatched."""
    rejected: list[int] = []
    found = Counter[Match]()
    core = open_operator(Limited(), Overlay(MemoryShardState(), lambda _, later: later))
    thirteens: list[Event] = [Order("a", 60, 1), Payment("a", 61, 13), Order("a", 62, 2)]
    arrived = [*events, *thirteens, LAST_ORDER, LAST_PAYMENT]
    for number, event in enumerate(arrived):
        result = core.feed(orders if isinstance(event, Order) else payments, [event], stop_at_error=False)
        found.update(result.outputs)
        rejected += [number for _ in result.rejected]
    kept = [event for number, event in enumerate([*events, *thirteens]) if number not in rejected]

    assert len(events) + 1 in rejected
    assert +found == expected(Outer, [*kept, LAST_ORDER, LAST_PAYMENT]) - _unmatched_at_the_end()


def _unmatched_at_the_end() -> Counter[Match]:
    return Counter([Match("end", 10_000, 0, None), Match("end", 10_000, None, 0)])


def test_an_event_costs_as_much_with_many_buffered_events_as_with_few() -> None:
    """The calls for an event do not depend on the number of buffered events that are too early or too late to match."""

    def calls_for_an_event(buffered: int) -> int:
        core = open_operator(Inner(), Overlay(MemoryShardState(), lambda _, later: later))
        core.feed(orders, [Order("a", 100 * at, at) for at in range(-buffered, 0)], stop_at_error=True)
        core.feed(payments, [Payment("b", 0, 1)], stop_at_error=True)  # loads everything that is loaded once
        calls = 0

        def count(frame: object, event: str, argument: object) -> None:
            nonlocal calls
            calls += "call" in event

        sys.setprofile(count)
        core.feed(payments, [Payment("a", -50 * buffered, 1)], stop_at_error=True)
        sys.setprofile(None)
        return calls

    assert calls_for_an_event(1_000) <= calls_for_an_event(10) + 10


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"right": orders}, "the same record type"),
        ({"before": timedelta(milliseconds=-11)}, "no event can match"),
        ({"right": ps.Category("others", Payment, key="who", event_time="at", buckets=2)}, "not co-partitioned"),
    ],
)
def test_invalid_joins_are_refused(attributes: dict[str, Any], message: str) -> None:
    """The error states the mistake."""
    wrong: type[ps.Join] = type("Wrong", (Inner,), attributes)

    with pytest.raises(DeclarationError, match=message):
        plan_of(wrong).check()
