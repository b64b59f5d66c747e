"""The trace context of events and of the outputs that they cause."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Annotated, Any

import numpy as np
import pytest

import penstock as ps
from penstock.ops.kernel import Driver
from penstock.processors import DeclarationError
from penstock.processors.declare import MessageHeaders
from penstock.transport import Bucket, MessageColumns, MessageCopy, Outgoing, RawBatch
from penstock.transport.message_columns import BytesColumn, ColumnBatch

EVENTS = 30


class Order(ps.Record, frozen=True):
    """An order of a user."""

    user: str
    at: ps.EventTime
    copies: int = 1


class Part(Order, frozen=True):
    """A part of an order."""


class Signed(Order, frozen=True):
    """An order with a trace of its own."""

    trace: Annotated[str | None, ps.metadata.Header("traceparent")] = None


orders = ps.Category("orders", Order, key="user", event_time="at", buckets=2)
parts = ps.Category("parts", Part, key="user", event_time="at", buckets=2)
others = ps.Category("others", Part, key="user", event_time="at", buckets=2)
copies = ps.Category("copies", Order, key="user", event_time="at", buckets=2)
signed = ps.Category("signed", Signed, key="user", event_time="at", buckets=2)


class Split(ps.Stateless[Order, Any]):
    """Writes no, one or several outputs to two categories; raises for some events."""

    reads, writes, trace_context = orders, (parts, others), True
    on_error = ps.ErrorPolicy.DEAD_LETTER

    def process(self, event: Order) -> Iterable[Any]:
        """Write the copies of an order."""
        for number in range(event.copies):
            yield ps.To(others if number % 2 else parts, Part(event.user, event.at))
        if event.at % 7 == 3:
            raise ValueError("seven")


class SplitAsync(ps.Stateless[Order, Any]):
    """The same with concurrent calls, the later ones faster."""

    name, reads, writes, trace_context = "split_async", orders, (parts, others), True
    on_error = ps.ErrorPolicy.DEAD_LETTER

    async def process(self, event: Order) -> list[Any]:
        """Write the copies of an order."""
        await asyncio.sleep((EVENTS - event.at) / 10_000)
        if event.at % 7 == 3:
            raise ValueError("seven")
        return [ps.To(others if number % 2 else parts, Part(event.user, event.at)) for number in range(event.copies)]


class SplitState(ps.Stateful[Order, int, Any]):
    """The same with state, and with the output of a timer after each fifth event."""

    name, reads, writes, state, trace_context = "split_state", orders, (parts, others), int, True
    on_error = ps.ErrorPolicy.DEAD_LETTER
    watermark = ps.watermarks.BoundedOutOfOrderness(timedelta(0))

    def process(self, event: Order, state: int | None, context: ps.Context) -> tuple[int, list[Any]]:
        """Write the copies of an order, and set a timer."""
        if event.at % 7 == 3:
            raise ValueError("seven")
        if event.at % 5 == 0:
            context.timer(event.at + 1, str(event.at))
        written = [ps.To(others if at % 2 else parts, Part(event.user, event.at)) for at in range(event.copies)]
        return (state or 0) + 1, written

    def on_timer(self, timer: ps.Timer, state: int, context: ps.Context) -> tuple[int, list[Any]]:
        """Write an output that no event causes."""
        return state, [ps.To(parts, Part(context.key, -timer.at))]


class Forget(ps.Stateless[Part, ps.Tombstone]):
    """Writes a tombstone for each part: the second processor of a chain."""

    reads, writes, trace_context = parts, copies, True

    def process(self, event: Part) -> list[ps.Tombstone]:
        """Delete the user."""
        return [ps.Tombstone(event.user)]


class Sign(ps.Stateless[Order, Signed]):
    """Starts a trace of its own for some orders."""

    reads, writes, trace_context = orders, signed, True

    def process(self, event: Order) -> list[Signed]:
        """Copy an order."""
        return [Signed(event.user, event.at, trace="own" if event.at % 2 else None)]


def context_of(at: int) -> list[tuple[str, bytes | None]]:
    """Return the trace context that the test writes to an event."""
    parent = f"00-{at + 1:032x}-{at + 1:016x}-01".encode()
    return [("traceparent", parent), ("tracestate", b"vendor=%d" % at)]


def send(driver: Driver) -> None:
    """Write events with trace contexts: every third has none, and some messages do not decode."""
    writer = driver.bus.writer()
    for at in range(EVENTS):
        user = f"u{at % 4}"
        bucket = orders.bucket_of(user)
        if at % 6 == 1:
            writer.send("orders", [Outgoing(user.encode(), b"no JSON", bucket, [("traceparent", b"broken")])])
        value = json.dumps({"user": user, "at": at, "copies": at % 4}).encode()
        headers = [("source", b"shop"), *context_of(at)] if at % 3 else [("tracestate", b"alone")]
        writer.send("orders", [Outgoing(user.encode(), value, bucket, headers)])
    driver.run()


def messages(driver: Driver, category: ps.Category[Any]) -> list[Any]:
    """Return the messages of a category."""
    ends = driver.bus.describe(category.name).ends
    return [one for number, end in ends.items() for one in driver.bus.slice(Bucket(category.name, number), 0, end)]


def written(driver: Driver, *categories: ps.Category[Any]) -> Counter[Any]:
    """Return the category, event time and headers of each output."""
    return Counter(
        (category.name, json.loads(one.value())["at"], tuple(one.headers() or ()))
        for category in categories
        for one in messages(driver, category)
    )


def expected_parts() -> Counter[Any]:
    """Return the outputs that the events cause, with the trace contexts of their events."""
    return Counter(
        ("others" if number % 2 else "parts", at, tuple(context_of(at)) if at % 3 else ())
        for at in range(EVENTS)
        if at % 7 != 3
        for number in range(at % 4)
    )


@pytest.mark.parametrize("processor", [Split, SplitAsync, SplitState])
@pytest.mark.parametrize("output", [ps.Semantics.AT_LEAST_ONCE, ps.Semantics.EXACTLY_ONCE])
def test_an_output_has_the_trace_context_of_its_event(processor: type[Any], output: ps.Semantics) -> None:
    """Rejected events and undecodable messages do not matter. Other headers are not forwarded, and outputs of timers have no context."""
    subject = type(processor.__name__, (processor,), {"output_semantics": output, "name": processor.name})
    driver = Driver(subject)
    send(driver)
    found = written(driver, parts, others)
    timers = Counter({one: count for one, count in found.items() if one[1] < 0})

    assert found - timers == expected_parts()
    assert all(headers == () for _, _, headers in timers)
    assert bool(timers) == (processor is SplitState)


def test_outputs_before_the_event_that_stops_the_worker_have_their_contexts() -> None:
    """A stop in the middle of a batch loses no trace context."""
    subject = type("Split", (SplitState,), {"on_error": ps.ErrorPolicy.STOP, "name": "split_state"})
    driver = Driver(subject)
    with pytest.raises(ps.errors.PenstockError, match="seven"):
        send(driver)
    found = written(driver, parts, others)

    events = {one: count for one, count in found.items() if one[1] >= 0}
    assert any(headers for _, _, headers in events)
    assert all(expected_parts()[one] == count for one, count in events.items())


def test_a_trace_goes_through_several_processors() -> None:
    """The tombstones of the second processor have the contexts of the first one's inputs."""
    driver = Driver([Split, Forget])
    send(driver)
    expected = Counter(
        headers for (name, _, headers), n in expected_parts().items() for _ in range(n) if name == "parts"
    )

    assert Counter(tuple(one.headers() or ()) for one in messages(driver, copies)) == expected


def test_a_record_with_its_own_trace_context_keeps_it() -> None:
    """The headers that a record contains overrule those of the event."""
    driver = Driver(Sign)
    send(driver)

    assert written(driver, signed) == Counter(
        ("signed", at, (("traceparent", b"own"),) if at % 2 else tuple(context_of(at)) if at % 3 else ())
        for at in range(EVENTS)
    )


@pytest.mark.parametrize("processor", [Split, SplitState])
def test_no_header_is_forwarded_by_default(processor: type[Any]) -> None:
    """Without `trace_context`, outputs have the headers of their records only."""
    subject = type("Plain", (processor,), {"trace_context": ps.Processor.trace_context})
    driver = Driver(subject)
    send(driver)

    assert {headers for _, _, headers in written(driver, parts, others)} == {()}


class Meet(ps.Join[Order, Part | None, Order]):
    """Joins orders with parts of the same time."""

    left, right, writes, trace_context = orders, parts, copies, True
    join_type = ps.JoinType.LEFT
    watermark = ps.watermarks.BoundedOutOfOrderness(timedelta(0))

    def join(self, left: Order, right: Part | None, context: ps.Context) -> list[Order]:
        """Write the order."""
        return [Order(left.user, left.at, 0 if right is None else 1)]


def test_a_pair_of_a_join_has_the_trace_context_of_its_later_event() -> None:
    """A timer writes an event without a match, which has no context."""
    driver = Driver(Meet)
    bucket = orders.bucket_of("ann")
    for category, at in (("orders", 10), ("parts", 10), ("orders", 20), ("orders", 30), ("parts", 30), ("parts", 40)):
        value = json.dumps({"user": "ann", "at": at}).encode()
        parent: MessageHeaders = [("traceparent", f"{category} {at}".encode())]
        driver.bus.writer().send(category, [Outgoing(b"ann", value, bucket, parent)])
        driver.run()

    assert [(json.loads(one.value())["at"], one.headers()) for one in messages(driver, copies)] == [
        (10, [("traceparent", b"parts 10")]),
        (20, None),
        (30, [("traceparent", b"parts 30")]),
    ]


def test_processors_whose_outputs_have_no_single_event_refuse_trace_contexts() -> None:
    """An aggregate comes from many events; an ordered processor has only the records."""

    class Totals(ps.Aggregator):
        reads, monoid, trace_context = orders, ps.monoids.Count(), True

        def observe(self, event: Order) -> int:
            return 1

    class Ordered(ps.Stateful[Order, int, Part]):
        reads, writes, state, trace_context, ordered = orders, parts, int, True, True

        def process(self, event: Order, state: int | None, context: ps.Context) -> tuple[int, list[Part]]:
            return 1, []

    with pytest.raises(DeclarationError, match="no single trace context"):
        Driver(Totals)
    with pytest.raises(DeclarationError, match="its trace context is not available"):
        Driver(Ordered)


@pytest.mark.parametrize("headers", [[None, [("a", b"1"), ("a", None)]], None])
def test_columns_return_the_headers_of_their_messages(headers: Sequence[MessageHeaders | None] | None) -> None:
    """A batch of columns has the headers of a batch of messages, also in a part of it."""
    ends = np.array([1, 3])
    values = BytesColumn(memoryview(b"x\ny"), np.array([0, 2]), ends, np.array([True, True]))
    kinds = np.zeros(2, np.int8)
    columns = MessageColumns(0, np.array([4, 5]), np.array([0, 0]), kinds, values, values, headers)
    copied = [MessageCopy(b"", headers=found) for found in headers or [None, None]]
    bucket = Bucket("orders", 0)

    assert list(ColumnBatch(bucket, columns).headers()) == list(RawBatch(bucket, copied).headers())
    assert list(ColumnBatch(bucket, columns).part(1, 2).headers()) == list(
        RawBatch(bucket, copied).part(1, 2).headers()
    )


class Looked(ps.LookupJoin[Order, int | None, Part]):
    """Joins orders with a table."""

    name, reads, writes, trace_context = "looked", orders, parts, True
    source = ps.lookups.MemoryTable({"u1": 1, "u2": 2})
    on_miss = ps.lookups.OnMiss.DROP

    def key_of(self, event: Order) -> str:
        """Return the user."""
        return event.user

    def join(self, event: Order, row: int | None) -> list[Part]:
        """Copy the order."""
        return [Part(event.user, event.at)]


class Folded(ps.Windowed[Order, int, Part]):
    """Writes an output for each order, and one for each complete window, with a negative time."""

    name, reads, writes, state, trace_context = "folded", orders, parts, int, True
    window = ps.windows.Tumbling(timedelta(milliseconds=10))
    watermark = ps.watermarks.BoundedOutOfOrderness(timedelta(0))

    def fold(
        self, event: Order, state: int | None, window: ps.windows.Window, context: ps.Context
    ) -> tuple[int, list[Part]]:
        """Copy the order."""
        return (state or 0) + 1, [Part(event.user, event.at)]

    def complete(self, state: int, window: ps.windows.Window, context: ps.Context) -> list[Part]:
        """Write the end of the window."""
        return [Part(context.key, -window.end)]


@pytest.mark.parametrize("processor", [Looked, Folded])
def test_lookup_joins_and_windows_forward_the_context_of_an_event(processor: type[ps.Processor]) -> None:
    """Results of complete windows have no context."""
    driver = Driver(processor)
    send(driver)

    found = {}
    for message in messages(driver, parts):
        found[json.loads(message.value())["at"]] = message.headers() or []
    events = {at for at in range(EVENTS) if processor is Folded or f"u{at % 4}" in {"u1", "u2"}}
    assert {at: headers for at, headers in found.items() if at >= 0} == {
        at: context_of(at) if at % 3 else [] for at in events
    }
    assert any(at < 0 for at in found) == (processor is Folded)
    assert not any(headers for at, headers in found.items() if at < 0)
