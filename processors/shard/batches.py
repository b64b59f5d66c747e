"""Decoded batches of a shard: the events that its processor accepts, and the events that it rejects."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from math import inf
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from ..declare import (
    AnyCategory,
    AnyEventBatch,
    Decoded,
    ErrorPolicy,
    InvalidKey,
    Message,
    Processor,
    RowDeletion,
    RowUpdate,
    TableJoin,
    TimeUnit,
    Undecodable,
    plan_of,
)
from ..errors import PenstockError, UserCodeError
from ..operators import StepResult
from ..time import (
    FIRST_EVENTS,
    Times,
    detect_wrong_unit,
    implausible,
    why_implausible,
)


class EventRejected(PenstockError):
    """An event stopped the worker, as its processor declares. Earlier events are saved; the event is read again after a restart."""


class RejectedEvent(NamedTuple):
    """An event that is not processed.

    Args:
        at: its index in the batch.
        reason: why, in words.
        setting: the declaration that would send such events to the dead letters.
        stops: whether the processor stops at the event.
        cause: the exception, if the processor raised one.
        remedy: what to do about a stop, where `setting` does not apply; else empty.
        retried_in: the category in which it waits for its next attempt; empty if there is none.
    """

    at: int
    reason: str
    setting: str
    stops: bool
    cause: UserCodeError | None = None
    remedy: str = ""
    retried_in: str = ""


class AcceptedBatch(NamedTuple):
    """The part of a batch that an operator processes.

    Args:
        events: the events, in order.
        at: the index in the batch of each event.
        rejected: the messages that the operator never sees. If one of them stops the processor, it is the last, and the events end
            before it.
    """

    events: AnyEventBatch
    at: Sequence[int]
    rejected: list[RejectedEvent]


def accept_batch(
    decoded: Decoded,
    category: AnyCategory,
    arrived_ms: Times,
    processor: Processor,
    further: Sequence[RejectedEvent] = (),
) -> AcceptedBatch:
    """Separate the events to process from messages that did not decode or whose event times are implausible.

    Args:
        decoded: the batch.
        category: the input.
        arrived_ms: when each message of the batch arrived (milliseconds since 1970, UTC); `UNKNOWN_ARRIVAL_MS` where no arrival is recorded.
        processor: its error policies decide.
        further: other rejected messages.
    """
    rejected = [*(_undecodable(bad, category, processor) for bad in decoded.bad), *further]
    events = category.batch_of(decoded.events)
    if len(decoded.at) < len(arrived_ms):
        arrived_ms = arrived_ms[decoded.at]
    times = _times_of(events)
    rejected += [
        rejected_for_time(decoded.at[index], int(times[index]), int(arrived_ms[index]), processor)
        for index in implausible(times, arrived_ms, processor.max_future).tolist()
    ]
    if not rejected:
        return AcceptedBatch(events, decoded.at, [])
    rejected = _up_to_stop(rejected)
    skipped = {event.at for event in rejected}
    end = rejected[-1].at if rejected[-1].stops else inf
    pairs = [
        (event, at) for event, at in zip(decoded.events, decoded.at, strict=True) if at < end and at not in skipped
    ]
    return AcceptedBatch(category.batch_of([event for event, _ in pairs]), [at for _, at in pairs], rejected)


def _times_of(events: AnyEventBatch) -> Times:
    """Return event times of any size."""
    try:
        return events.time_array
    except OverflowError:
        return np.array(events.times, object)


def with_deletions(
    decoded: Decoded, messages: Sequence[Message], category: AnyCategory, processor: Processor
) -> Decoded:
    """Return a decoded batch with its deletions and incomplete updates, for a processor that reads the category as a table.

    Messages without a value are deletions, and messages that a codec decodes as such.
    """
    if not decoded.bad or not plan_of(processor).reads_tombstones(category):
        return decoded
    deletions: dict[int, RowDeletion | RowUpdate] = {}
    bad = []
    for message in decoded.bad:
        if message.update is not None and isinstance(processor, TableJoin):
            deletions[message.at] = message.update
            continue
        try:
            key = deleted_key(message, messages[message.at], category)
        except InvalidKey as error:
            bad.append(message._replace(reason=str(error)))
            continue
        if key is None:
            bad.append(message)
        else:
            deletions[message.at] = RowDeletion(category, key, messages[message.at].timestamp()[1])
    pairs = sorted([*zip(decoded.at, decoded.events, strict=True), *deletions.items()], key=itemgetter(0))
    return Decoded([event for _, event in pairs], [at for at, _ in pairs], bad)


def deleted_key(bad: Undecodable, message: Message, category: AnyCategory) -> str | None:
    """Return the key of the row that a message deletes; None if it is no deletion."""
    if bad.deleted_key is not None:
        return bad.deleted_key
    key = message.key()
    return category.decode_key(key) if message.value() is None and key is not None else None


def valid_deleted_key(bad: Undecodable, message: Message, category: AnyCategory) -> str | None:
    """Return the same; None also for a key that does not decode."""
    try:
        return deleted_key(bad, message, category)
    except InvalidKey:
        return None


def rejected_events(
    category: AnyCategory, batch: AcceptedBatch, result: StepResult, processor: Processor
) -> list[RejectedEvent]:
    """Return the rejected events of a processed batch of a category in order, up to the first that stops the processor."""
    plan = plan_of(processor)
    rejected = list(batch.rejected)
    for index, error in result.rejected:
        action = plan.error_action(error)
        waits = plan.retried_in(category, error)
        event = RejectedEvent(batch.at[index], action.reason, action.alternative, action.stops, error)
        rejected.append(event if waits is None else event._replace(retried_in=waits.name))
    return _up_to_stop(rejected)


def before_message_of_stop(batch: AcceptedBatch, offsets: Sequence[int]) -> AcceptedBatch:
    """Return a batch without the events before a stop that are in the same message, since a position is between messages.

    Args:
        batch: the batch.
        offsets: the offset of each event, equal for events of one message.
    """
    if not batch.rejected or not batch.rejected[-1].stops:
        return batch
    *earlier, stop = batch.rejected
    begin = bisect_left(offsets, offsets[stop.at])
    kept = bisect_left(batch.at, begin)
    rejected = [*(event for event in earlier if event.at < begin), stop]
    return AcceptedBatch(batch.events.of(batch.events[:kept]), batch.at[:kept], rejected)


def divides_message(
    stop: RejectedEvent, batch: AcceptedBatch, rejected: Sequence[RejectedEvent], offsets: Sequence[int]
) -> bool:
    """Return whether earlier events of the message at which a shard stops were processed or rejected.

    Then nothing can be saved: no position is between them and the stop.
    """
    begin = bisect_left(offsets, offsets[stop.at])
    return any(begin <= at < stop.at for at in (*batch.at, *(event.at for event in rejected)))


def numbered_in_message(event: RejectedEvent, offsets: Sequence[int]) -> RejectedEvent:
    """Return a rejected event whose reason contains its number in its message, if the message has several."""
    begin, end = (bisect(offsets, offsets[event.at]) for bisect in (bisect_left, bisect_right))
    if end - begin == 1:
        return event
    return event._replace(reason=f"event {event.at - begin + 1} of {end - begin} in its message: {event.reason}")


def _up_to_stop(rejected: Sequence[RejectedEvent]) -> list[RejectedEvent]:
    in_order = sorted(rejected, key=itemgetter(0))
    stop = next((number for number, event in enumerate(in_order) if event.stops), len(in_order))
    return in_order[: stop + 1]


def _undecodable(bad: Undecodable, category: AnyCategory, processor: Processor) -> RejectedEvent:
    if bad.clears_table and isinstance(processor, TableJoin) and category is processor.table:
        remedy = (
            f"The state of {type(processor).__name__} keeps these rows. Start it without them: `penstock reset APP:PROCESSOR --to TIME --state empty` with a "
            "time after the truncation. Or let the connector skip truncations (`skipped.operations=t`)."
        )
        return RejectedEvent(bad.at, bad.reason, "skipped.operations=t", stops=True)._replace(remedy=remedy)
    attribute, policy = (
        ("on_missing_event_time", processor.on_missing_event_time)
        if bad.untimed
        else ("on_undecodable", processor.on_undecodable)
    )
    reason = f"the message does not decode: {bad.reason}"
    return RejectedEvent(bad.at, reason, f"{attribute} = ErrorPolicy.DEAD_LETTER", policy is ErrorPolicy.STOP)


def rejected_for_time(at: int, time_ms: int, arrived_ms: int, processor: Processor) -> RejectedEvent:
    """Return the rejection of an event by its `implausible` time.

    Args:
        at: its index.
        time_ms: its event time (milliseconds since 1970, UTC).
        arrived_ms: when it arrived; `UNKNOWN_ARRIVAL_MS` if no arrival is recorded.
        processor: its `max_future` and `on_future_event` decide.
    """
    reason = why_implausible(time_ms, arrived_ms, processor.max_future)
    stops = processor.on_future_event is ErrorPolicy.STOP
    return RejectedEvent(at, reason, "on_future_event = ErrorPolicy.DEAD_LETTER", stops)


def expect_unit(
    processor: type[Processor], bucket: str, category: AnyCategory, events: Sequence[Any], now_ms: int
) -> None:
    """Raise EventRejected if the first events of a bucket have their times in another unit than milliseconds.

    A processor without `max_future` accepts every event time.
    """
    if processor.max_future is None:
        return
    unit = detect_wrong_unit(category.event_times_of(events[:FIRST_EVENTS]), now_ms)
    if unit is not None:
        remedy = category.times.unit_remedy(TimeUnit[unit.name.upper()])
        raise EventRejected(
            f"{bucket}: {unit}. No event of this bucket was processed. {remedy}{'Otherwise, correct' if remedy else 'Correct'} the producer of "
            f"{category.times.name!r}, and write the events to a new category instead of {category.name}. If the times are correct, declare "
            f"`max_future = None` on {processor.__name__}."
        )
