"""Dead letters as messages, with the original bytes of the event, within the size limit of the bus.

The format is a marker that no other codec uses, then the fields as MessagePack. Base64 in JSON could exceed the size limit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ...processors.declare import DeadLetter, Decoded, LetterHeader, Message
from ..messages import CERTAINLY_FITS_BYTES, MESSAGE_LIMIT, Bucket, MessageCopy
from .decoded import MALFORMED, UndecodableValue, decode_singly, value_of

DEAD_LETTER_MARKER = b"\xc1\x01"
"""JSON, text, Avro and MessagePack never start with C1."""
REASON_LIMIT = 10_000
KEY_LIMIT = 10_000
TRACEBACK_LIMIT = 8_000
"""The most characters of a reason and of a traceback, and bytes of a key, that a dead letter contains."""
_HEADER_OVERHEAD = 32
"""Space for the field names and lengths of a header, in bytes."""
_ROOM = 4_096
"""Space for the other fields of a dead letter and the overhead of a message, in bytes."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(DeadLetter).decode


class DeadLetterCodec:
    """Encodes dead letters.

    Args:
        limit: returns the size limit of a message, key and value together, in bytes; called only for large letters.
    """

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit

    def encode(self, records: Sequence[Any]) -> list[bytes]:
        """Return the bytes of each letter; a letter that is too large is truncated to fit."""
        return [DEAD_LETTER_MARKER + self._encoded(letter) for letter in records]

    def _encoded(self, letter: DeadLetter) -> bytes:
        whole = _encode(_fitting(letter, MESSAGE_LIMIT))
        return whole if len(whole) <= CERTAINLY_FITS_BYTES else _encode(_fitting(letter, self._limit()))

    def decode(self, messages: Sequence[Message]) -> Decoded:
        """Decode a batch."""
        return decode_singly(messages, lambda message: decode_dead_letter(value_of(message)))


def dead_letter(message: Message, bucket: Bucket, reason: str, now_ms: int, traceback: str = "") -> DeadLetter:
    """Return the dead letter of a rejected message.

    Args:
        message: the message.
        bucket: its bucket.
        reason: why it was rejected.
        now_ms: when it was rejected (milliseconds since 1970, UTC).
        traceback: the lines of user code that raised an exception; empty without one.
    """
    kind, time_ms = message.timestamp()
    return DeadLetter(
        *bucket,
        message.offset(),
        reason,
        message.key(),
        message.value(),
        now_ms,
        headers=tuple(LetterHeader(name, value) for name, value in message.headers() or ()),
        timestamp_type=kind,
        timestamp_ms=time_ms,
        traceback=traceback,
    )


def rejected_message(letter: DeadLetter) -> MessageCopy:
    """Return the message of a dead letter."""
    timestamp = letter.timestamp_type, letter.timestamp_ms
    headers = [(header.name, header.value) for header in letter.headers] or None
    return MessageCopy(letter.value, letter.key, letter.bucket, letter.offset, timestamp, headers)


def _fitting(letter: DeadLetter, limit: int) -> DeadLetter:
    """Return a letter with as much of its reason, key, headers and value as fits into a message of `limit` bytes.

    Headers are kept all or none.
    """
    reason = letter.reason[: min(REASON_LIMIT, limit // 16)]
    key = None if letter.key is None else letter.key[: min(KEY_LIMIT, limit // 8)]
    traceback = letter.traceback[: min(TRACEBACK_LIMIT, limit // 16)]
    headers_size = sum(map(_size, letter.headers))
    headers_room = headers_size + _HEADER_OVERHEAD * len(letter.headers)
    keeps_headers = headers_room <= limit // 8
    headers = letter.headers if keeps_headers else ()
    used = 4 * (len(reason) + len(traceback)) + len(key or b"") + keeps_headers * headers_room
    room = max(limit - _ROOM - used, 0)
    value = None if letter.value is None else letter.value[:room]
    cut = len(letter.key or b"") - len(key or b"") + len(letter.value or b"") - len(value or b"")
    cut += headers_size - sum(map(_size, headers))
    return msgspec.structs.replace(
        letter,
        reason=reason,
        key=key,
        value=value,
        headers=headers,
        traceback=traceback,
        truncated_bytes=letter.truncated_bytes + cut,
    )


def _size(header: LetterHeader) -> int:
    return len(header.name.encode()) + len(header.value or b"")


def decode_dead_letter(value: bytes) -> DeadLetter:
    """Return a dead letter.

    Raises:
        UndecodableValue: the bytes are no dead letter.
    """
    if not value.startswith(DEAD_LETTER_MARKER):
        raise UndecodableValue("not a dead letter: it does not begin with C1 01")
    try:
        return _decode(value[len(DEAD_LETTER_MARKER) :])
    except MALFORMED as error:
        raise UndecodableValue(f"not a dead letter: {error}") from error
