"""Messages that wait for a retry: the message of the event, and headers with its origin, attempts and last error."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec

from ..processors.declare import Message, MessageHeaders, RetryChain
from .codecs import MALFORMED
from .messages import Bucket, MessageCopy, Outgoing

ORIGIN_HEADER = "penstock.retry.origin"
ERROR_HEADER = "penstock.retry.error"
ERROR_LIMIT = 500
"""The most characters of the last error that a message contains."""
_ADDED = [ORIGIN_HEADER, ERROR_HEADER]
"""The headers that a waiting message has after those of its event."""


_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class RetryOrigin(msgspec.Struct, frozen=True):
    """The first place of an event that is retried.

    Args:
        category: its category.
        bucket: its bucket.
        offset: its offset.
        timestamp_type: the type of its message's timestamp.
        timestamp_ms: that timestamp (milliseconds since 1970, UTC).
        attempts: the calls for it so far.
    """

    category: str
    bucket: _Count
    offset: _Count
    timestamp_type: Annotated[int, msgspec.Meta(ge=0, le=2)]
    timestamp_ms: Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]
    attempts: _Count = 0


class Returned(NamedTuple):
    """A message as it was first, and its origin."""

    message: Message
    origin: RetryOrigin


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(RetryOrigin).decode


def returned(message: Message, bucket: Bucket, chain: RetryChain | None) -> Returned:
    """Return a message of a processor's retry category as it was first; another message unchanged.

    The headers of a message in another category belong to its producer, whatever their names are.

    Args:
        message: the message.
        bucket: its bucket.
        chain: the retry categories of the processor that reads it; None if it has none.
    """
    is_waiting = chain is not None and chain.includes(bucket.category)
    headers = message.headers() if is_waiting else None
    origin = origin_in(headers or ())
    if origin is None or headers is None:
        return Returned(message, RetryOrigin(bucket.category, bucket.number, message.offset(), *message.timestamp()))
    timestamp = origin.timestamp_type, origin.timestamp_ms
    own = headers[: -len(_ADDED)] or None
    return Returned(MessageCopy(message.value(), message.key(), origin.bucket, origin.offset, timestamp, own), origin)


def origin_in(headers: MessageHeaders) -> RetryOrigin | None:
    """Return the first place of an event by the headers of its message in a retry category; None if they contain no valid one.

    Only the last headers count: the event's producer may have written others of the same names.
    """
    added = headers[-len(_ADDED) :]
    if [name for name, _ in added] != _ADDED:
        return None
    try:
        return _decode(added[0][1] or b"")
    except MALFORMED:
        return None


def waiting_message(event: Returned, bucket: int, error: str) -> Outgoing:
    """Return the message of an event that waits for its next attempt.

    Args:
        event: its message, and its origin.
        bucket: the number of its shard's bucket.
        error: why its last attempt failed.
    """
    origin = msgspec.structs.replace(event.origin, attempts=event.origin.attempts + 1)
    headers = [
        *(event.message.headers() or ()),
        (ORIGIN_HEADER, _encode(origin)),
        (ERROR_HEADER, error[:ERROR_LIMIT].encode()),
    ]
    return Outgoing(event.message.key(), event.message.value(), bucket, headers)
