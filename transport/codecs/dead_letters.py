"""Dead letters as messages: the bytes of what they are about as they were, and never larger than the bus takes.

A marker that no codec begins with, then the fields as MessagePack. Base64, as in JSON, would make of a message that the bus took one that
it does not take.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ...processors.declare.dead_letters import DeadLetter
from .codec import Decoded, UndecodableValue, decode_singly

DEAD_LETTER_MARKER = b"\xc1\x01"
"""C1 is no beginning of JSON, text, Avro or MessagePack."""
REASON_LIMIT = 10_000
KEY_LIMIT = 10_000
"""How many characters of a reason, and how many bytes of a key, are kept."""
_ROOM = 4_096
"""What a message has of its own on the bus, with a letter's other fields."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(DeadLetter).decode


class DeadLetterCodec:
    """Encodes dead letters.

    Args:
        message_limit: how large a message may be, in bytes.
    """

    def __init__(self, message_limit: int) -> None:
        self._limit = message_limit

    def encode(self, records: Sequence[Any]) -> list[bytes]:
        """Return the bytes of each letter; of one that is too large, with as much of its message as fits."""
        return [DEAD_LETTER_MARKER + _encode(self._fitting(letter)) for letter in records]

    def _fitting(self, letter: DeadLetter) -> DeadLetter:
        reason = letter.reason[:REASON_LIMIT]
        key = None if letter.key is None else letter.key[:KEY_LIMIT]
        room = max(self._limit - _ROOM - 4 * len(reason) - len(key or b""), 0)
        value = None if letter.value is None else letter.value[:room]
        cut = len(letter.key or b"") - len(key or b"") + len(letter.value or b"") - len(value or b"")
        return msgspec.structs.replace(letter, reason=reason, key=key, value=value, cut_bytes=letter.cut_bytes + cut)

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Decode a batch."""
        return decode_singly(values, decode_dead_letter)


def decode_dead_letter(value: bytes) -> DeadLetter:
    """Return a dead letter.

    Raises:
        UndecodableValue: it is none.
    """
    if not value.startswith(DEAD_LETTER_MARKER):
        raise UndecodableValue("not a dead letter: it does not begin with C1 01")
    try:
        return _decode(value[len(DEAD_LETTER_MARKER) :])
    except msgspec.DecodeError as error:
        raise UndecodableValue(f"not a dead letter: {error}") from error
