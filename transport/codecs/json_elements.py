"""Messages of several JSON values, each an event.

message --split--> a message for each element --decode--> a record for each
record --encode--> a message of one element
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ...processors import counted
from ...processors.declare import Decoded, Message, Payload, Undecodable
from ..messages import MessageCopy
from .decoded import MALFORMED, UndecodableValue, value_of, without_bom
from .formats import Json
from .json_codec import JsonCodec


@dataclass(frozen=True)
class ElementsFormat:
    """The settings of a format whose messages contain several JSON values."""

    accepts_unions: ClassVar[bool] = True
    strict: bool = True
    other_types: Literal["reject", "skip"] = "reject"

    def __post_init__(self) -> None:
        Json(self.strict, self.other_types)  # checks them

    def codec_of_elements(self, payload: Payload) -> JsonCodec:
        """Return the codec of single values."""
        return JsonCodec(payload, strict=self.strict, skips_other_types=self.other_types == "skip")


class ElementsCodec(ABC):
    """Encodes and decodes each element of a message as a record.

    Args:
        elements: encodes and decodes the elements.
    """

    def __init__(self, elements: JsonCodec) -> None:
        self._codec = elements

    @abstractmethod
    def message_of(self, element: bytes) -> bytes:
        """Return the value of a message with this element alone."""

    @abstractmethod
    def elements_of(self, value: bytes) -> list[bytes]:
        """Return the elements of a value, which has no byte order mark. Raises an exception of `MALFORMED` for a value without the format."""

    def encode(self, records: Sequence[Any]) -> list[bytes]:
        """Return a message of one element for each record."""
        return [self.message_of(value) for value in self._codec.encode(records)]

    def split(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return a message for each element."""
        found: list[Message] = []
        for message in messages:
            found += self._split(message)
        return found if len(found) > len(messages) else messages

    def _split(self, message: Message) -> list[Message]:
        try:
            elements = self._elements_of(message)
        except (*MALFORMED, UndecodableValue):
            return [message]  # `decode` reports it
        if len(elements) < 2:
            return [message]
        return [_with_value(message, self.message_of(element)) for element in elements]

    def decode(self, messages: Sequence[Message]) -> Decoded:
        """Decode a batch of messages with at most one element each."""
        elements: list[Message] = []
        places: list[int] = []
        bad: list[Undecodable] = []
        for index, message in enumerate(messages):
            try:
                found = self._elements_of(message)
            except (*MALFORMED, UndecodableValue) as error:
                bad.append(Undecodable(index, str(error), untimed=False))
                continue
            if len(found) > 1:
                reason = f"{counted(len(found), 'event')} in one value, of which each is a message"
                bad.append(Undecodable(index, reason, untimed=False))
            elif found:
                elements.append(MessageCopy(found[0]))
                places.append(index)
        decoded = self._codec.decode(elements)
        bad += [one._replace(at=places[one.at]) for one in decoded.bad]
        return Decoded(decoded.events, [places[at] for at in decoded.at], bad)

    def _elements_of(self, message: Message) -> list[bytes]:
        return self.elements_of(without_bom(value_of(message)))


def _with_value(message: Message, value: bytes) -> Message:
    return MessageCopy(
        value, message.key(), message.partition(), message.offset(), message.timestamp(), message.headers()
    )
