"""Lines: messages as raw bytes with their keys and timestamps, for programs in other languages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...processors import DeclarationError
from ...processors.declare import Codec, Decoded, Message, Payload, Undecodable
from ...processors.pipes import Line
from ..message_columns import MessageColumns


@dataclass(frozen=True)
class Lines:
    """Lines, for the record type `penstock.Line`: the value of a message is the line, in any format."""

    def open(self, payload: Payload) -> Codec:
        """Return the codec."""
        if payload.record is not Line:
            raise DeclarationError(
                f"Category {payload.category}: codec Lines() needs the record type Line, not {payload.record.__name__}. Declare "
                "Category(…, Line, key='key', event_time='at', codec=Lines())."
            )
        return _LineCodec()


class _LineCodec:
    """Encodes and decodes lines."""

    def encode(self, records: Sequence[Any]) -> list[bytes]:
        """Return the lines."""
        return [record.text for record in records]

    def decode(self, messages: Sequence[Message]) -> Decoded:
        """Return a line for each message with a value and a timestamp."""
        if isinstance(messages, MessageColumns) and messages.values.present.all() and messages.timestamp_types.all():
            return _decode_columns(messages)
        events: list[Any] = []
        at: list[int] = []
        bad: list[Undecodable] = []
        for index, message in enumerate(messages):
            value, (kind, time_ms) = message.value(), message.timestamp()
            if value is None or not kind:
                reason = "the message has no value" if value is None else "the message has no timestamp"
                bad.append(Undecodable(index, reason, untimed=value is not None))
                continue
            events.append(Line(value, _text(message.key()), time_ms))
            at.append(index)
        return Decoded(events, at, bad)


def _decode_columns(messages: MessageColumns) -> Decoded:
    values: Sequence[Any] = messages.values.all()
    events = list(map(Line, values, map(_text, messages.keys.all()), messages.timestamps.tolist()))
    return Decoded(events, range(len(events)), [])


def _text(key: bytes | None) -> str:
    """Return a message key as text, whatever its bytes; an empty text without a key."""
    return key.decode(errors="backslashreplace") if key else ""
