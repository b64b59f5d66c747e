"""Messages that wait for a retry: the message of the event, and headers with its origin, attempts and last error."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from ..processors.declare.codecs import Headers, Message
from .messages import Bucket, MessageCopy, Outgoing

ORIGIN_HEADER = "penstock.retry.origin"
ERROR_HEADER = "penstock.retry.error"
ERROR_LIMIT = 500
"""The most characters of the last error that a message contains."""


class Origin(msgspec.Struct, frozen=True):
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
    bucket: int
    offset: int
    timestamp_type: int
    timestamp_ms: int
    attempts: int = 0


class Returned(NamedTuple):
    """A message as it was first, and its origin."""

    message: Message
    origin: Origin


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Origin).decode


def returned(message: Message, bucket: Bucket) -> Returned:
    """Return a message of a retry category as it was first; another message unchanged.

    Args:
        message: the message.
        bucket: its bucket.
    """
    headers = message.headers() or []
    origin = origin_in(headers)
    if origin is None:
        return Returned(message, Origin(bucket.category, bucket.number, message.offset(), *message.timestamp()))
    own = [(name, value) for name, value in headers if name not in {ORIGIN_HEADER, ERROR_HEADER}]
    timestamp = origin.timestamp_type, origin.timestamp_ms
    copy = MessageCopy(message.value(), message.key(), origin.bucket, origin.offset, timestamp, own or None)
    return Returned(copy, origin)


def origin_in(headers: Headers) -> Origin | None:
    """Return the first place of an event by the headers of its message; None if it is not retried."""
    encoded = next((value for name, value in headers if name == ORIGIN_HEADER), None)
    return _decode(encoded) if encoded else None


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
