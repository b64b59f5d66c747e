"""JSON lines (NDJSON) as messages: each line is an event."""

from __future__ import annotations

from dataclasses import dataclass

from ...processors.declare import Codec, Payload
from .json_elements import ElementsCodec, ElementsFormat


@dataclass(frozen=True)
class JsonLines(ElementsFormat):
    """JSON lines (NDJSON): messages of several lines, each a JSON object and an event of its own.

    The events of a message have its key, headers, timestamp, bucket and offset. Blank lines are ignored, so a message of blank lines contains
    no event. A record is written as a message of one line, without a line break.

    Args:
        strict: whether to reject numbers and booleans in strings, as in `Json`.
        other_types: for a union of record types, what to do with a line whose tag is in none of them: `"reject"` it as undecodable, or `"skip"` it.

    Raises:
        DeclarationError: `other_types` has another value.
    """

    def open(self, payload: Payload) -> Codec:
        """Return the codec."""
        return _Lines(self.codec_of_elements(payload))


class _Lines(ElementsCodec):
    """The lines that are not blank."""

    def message_of(self, element: bytes) -> bytes:
        return element

    def elements_of(self, value: bytes) -> list[bytes]:
        return [line for line in map(bytes.strip, value.split(b"\n")) if line]
