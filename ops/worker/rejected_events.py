"""What becomes of the events of a batch that cannot be processed, decided from values alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from operator import itemgetter
from typing import Any, NamedTuple

from ...processors.declare.categories import AnyCategory, Deleted
from ...processors.declare.processor import ErrorPolicy, Processor
from ...processors.errors import PenstockError
from ...processors.operators import StepResult
from ...processors.time.timestamp_validation import FIRST_EVENTS, ahead, other_unit, outside, shown_span
from ...transport.bus import UNKNOWN_MS, Bucket, Message, RawBatch
from ...transport.codecs.codec import Decoded, Undecodable
from .key_check import MisplacedKey


class EventRejected(PenstockError):
    """An event stopped the worker, as its processor asked for: what came before it is saved, it is read again."""


class RejectedEvent(NamedTuple):
    """An event that is not processed.

    Args:
        at: its index in the batch.
        reason: why, in words.
        otherwise: what the processor is to declare for such events to be set aside.
        stops: whether the worker stops there.
        cause: what was raised, if anything was.
        remedy: what to do where it stops the worker; empty where that is what `otherwise` says.
    """

    at: int
    reason: str
    otherwise: str
    stops: bool
    cause: Exception | None = None
    remedy: str = ""


class AcceptedBatch(NamedTuple):
    """What of a batch a core is to be given.

    Args:
        events: the events, in order.
        at: the index in the batch of each of them.
        refused: the messages that are refused as they are; where one of them stops the worker, it is the last, and the events end
            before it.
    """

    events: list[Any]
    at: Sequence[int]
    refused: list[RejectedEvent]


def taken(
    decoded: Decoded,
    category: AnyCategory,
    arrived_ms: Sequence[int],
    processor: Processor,
    further: Sequence[RejectedEvent] = (),
) -> AcceptedBatch:
    """Part what can be processed from what did not decode, or has an event time that cannot be meant.

    Args:
        decoded: the batch.
        category: what it is of.
        arrived_ms: when each message of the batch arrived (milliseconds since 1970, UTC).
        processor: whose policies decide.
        further: what else is refused.
    """
    refused = [*(_undecodable(bad, processor) for bad in decoded.bad), *further]
    times = category.event_times_of(decoded.events)
    no_times = outside(times, processor.max_future)
    refused += [_outside(decoded.at[index], times[index], processor) for index in no_times]
    if processor.max_future is not None:
        # Where nobody has noted an arrival, an event cannot be said to be ahead of it.
        arrived_ms = [
            time_ms if arrived_ms[at] == UNKNOWN_MS else arrived_ms[at]
            for at, time_ms in zip(decoded.at, times, strict=True)
        ]
        refused += [
            _ahead(decoded.at[index], times[index], arrived_ms[index], processor)
            for index in ahead(times, arrived_ms, processor.max_future)
            if index not in no_times
        ]
    if not refused:
        return AcceptedBatch(decoded.events, decoded.at, [])
    refused.sort(key=itemgetter(0))
    stop = next((number for number, refusal in enumerate(refused) if refusal.stops), None)
    kept = refused if stop is None else refused[: stop + 1]
    out = {refusal.at for refusal in kept}
    end = inf if stop is None else refused[stop].at
    pairs = [(event, at) for event, at in zip(decoded.events, decoded.at, strict=True) if at < end and at not in out]
    return AcceptedBatch([event for event, _ in pairs], [at for _, at in pairs], kept)


def with_deletions(
    decoded: Decoded, messages: Sequence[Message], category: AnyCategory, processor: Processor
) -> Decoded:
    """Return a decoded batch with the rows that messages without a value delete, where the processor takes them for that."""
    if not decoded.bad or not processor.deletes_from(category):
        return decoded
    gone = {
        bad.at: Deleted(category, key.decode(errors="backslashreplace"), messages[bad.at].timestamp()[1])
        for bad in decoded.bad
        if messages[bad.at].value() is None and (key := messages[bad.at].key()) is not None
    }
    pairs = sorted([*zip(decoded.at, decoded.events, strict=True), *gone.items()], key=itemgetter(0))
    bad = [bad for bad in decoded.bad if bad.at not in gone]
    return Decoded([event for _, event in pairs], [at for at, _ in pairs], bad)


def refusals(given: AcceptedBatch, fed: StepResult, processor: Processor) -> Iterator[RejectedEvent]:
    """Give the refused events of a batch in order, up to the first that stops the worker."""
    refused = list(given.refused)
    for index, error in fed.rejected:
        fate = processor.fate_of(error)
        refused.append(RejectedEvent(given.at[index], fate.reason, fate.otherwise, fate.stops, error))
    for refusal in sorted(refused, key=lambda refusal: refusal.at):
        yield refusal
        if refusal.stops:
            return


def _undecodable(bad: Undecodable, processor: Processor) -> RejectedEvent:
    attribute, policy = (
        ("on_missing_event_time", processor.on_missing_event_time)
        if bad.untimed
        else ("on_undecodable", processor.on_undecodable)
    )
    reason = f"the message does not decode: {bad.reason}"
    return RejectedEvent(bad.at, reason, f"{attribute} = ErrorPolicy.DEAD_LETTER", policy is ErrorPolicy.STOP)


def _ahead(at: int, time_ms: int, arrived_ms: int, processor: Processor) -> RejectedEvent:
    reason = (
        f"its event time, {time_ms}, lies {shown_span(time_ms - arrived_ms)} ahead of its arrival, more than "
        f"{processor.max_future} (`max_future`)"
    )
    return RejectedEvent(
        at, reason, "on_future_event = ErrorPolicy.DEAD_LETTER", processor.on_future_event is ErrorPolicy.STOP
    )


def _outside(at: int, time_ms: int, processor: Processor) -> RejectedEvent:
    reason = (
        f"its event time, {time_ms}, is no time in milliseconds since 1970: it lies outside of the years 1 to 9999"
        if processor.max_future is not None
        else f"its event time, {time_ms}, lies beyond 62 bits, so that no window or watermark around it could be saved"
    )
    return RejectedEvent(
        at, reason, "on_future_event = ErrorPolicy.DEAD_LETTER", processor.on_future_event is ErrorPolicy.STOP
    )


def misplaced(
    found: MisplacedKey, at: int, batch: RawBatch, category: AnyCategory, processor: type[Processor]
) -> RejectedEvent:
    """Return the refusal of an event that does not lie in the bucket of its key."""
    message_key = batch.messages[at].key()
    written = "without a key" if message_key is None else f"with the key {message_key!r}"
    declared = f"its {category.key!r}" if isinstance(category.key, str) else "the declared key"
    reason = (
        f"{declared} is {found.key!r}, whose events lie in bucket {found.expected} of {category.buckets}, but the message was written {written} "
        f"into bucket {batch.bucket.number}: so the state of one key would be split between buckets, and none would be right"
    )
    remedy = (
        f"Mend what writes {category.name}: it is to give each message the key that is declared, and place it as Kafka's own clients do (murmur2; "
        "`partitioner=murmur2_random` in those on librdkafka). Or bring the events to their key, with a penstock.Repartition into another "
        f"category. If each bucket is meant to have a state of its own, declare `key_check = False` on {processor.__name__}."
    )
    return RejectedEvent(at, reason, "", stops=True, remedy=remedy)


def expect_unit(
    processor: type[Processor], bucket: Bucket, category: AnyCategory, events: Sequence[Any], now_ms: int
) -> None:
    """Raise EventRejected where the first events that are ever read of a bucket have their times in another unit than milliseconds.

    A processor that declares no `max_future` means its event times as they are.
    """
    if processor.max_future is None:
        return
    unit = other_unit(category.event_times_of(events[:FIRST_EVENTS]), now_ms)
    if unit is not None:
        raise EventRejected(
            f"{bucket}: {unit}. Nothing of this bucket was processed. Mend what writes {category.event_time!r} of {category.name}, and "
            "begin anew with right times in a new category; or, if they are meant as they are, declare `max_future = None` on "
            f"{processor.__name__}."
        )
