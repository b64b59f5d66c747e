"""Protobuf: a message class that protoc generated determines the bytes, and the record type the fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from ...processors import DeclarationError
from ...processors.declare import Codec, Message, Payload, Record
from ...processors.models import encode_model
from .decoded import value_of
from .single import FieldsCodec

if TYPE_CHECKING:
    from google.protobuf.message import Message as ProtobufMessage

    from .protobuf_mapping import MessageMapping


@dataclass(frozen=True)
class Protobuf:
    """Protobuf messages of one type, without a schema registry.

    Needs `pip install 'penstock[protobuf]'`. Fields of the record and of the message have equal names. Their types are compared before the
    first event. Fields that the record type lacks are ignored.

    Args:
        message: the class that protoc generated, such as `Order_pb2.Order`.
    """

    message: type[ProtobufMessage]

    def open(self, payload: Payload) -> Codec:
        """Return the codec.

        Raises:
            DeclarationError: the record type does not fit the message.
        """
        return ProtobufCodec(payload, self.message)


class ProtobufCodec(FieldsCodec):
    """Encodes and decodes records as messages.

    Args:
        payload: the record type.
        message: the class of the messages.
    """

    def __init__(self, payload: Payload, message: type[ProtobufMessage]) -> None:
        super().__init__(payload)
        self.mapping = mapping_of(payload, message)
        self.native = self.mapping.native

    def expect(self, record: Record) -> None:
        """Check that the message can represent a record."""
        self.mapping.to_bytes(msgspec.to_builtins(record, builtin_types=self.native, enc_hook=encode_model))

    def to_bytes(self, fields: dict[str, Any]) -> bytes:
        """Return the bytes of a message."""
        return self.mapping.to_bytes(fields)

    def to_fields(self, message: Message) -> Mapping[str, Any]:
        """Return the fields of a message."""
        return self.mapping.to_fields(value_of(message))


def expect_message_class(owner: str, message: Any) -> None:
    """Check that a class is one of Protobuf's, and that the library is installed.

    Raises:
        DeclarationError: it is not.
    """
    try:
        from google.protobuf.message import Message as ProtobufMessage  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise DeclarationError(
            f"The codec of {owner} is Protobuf, but a library is not installed ({error}). Install it: pip install 'penstock[protobuf]'"
        ) from error
    if not isinstance(message, type) or not issubclass(message, ProtobufMessage):
        raise DeclarationError(
            f"{owner}: {message!r} is not a message class of Protobuf. Declare a class that protoc generated, such as Order_pb2.Order."
        )


def mapping_of(payload: Payload, message: type[ProtobufMessage]) -> MessageMapping:
    """Return the mapping of a record type to a message class.

    Raises:
        DeclarationError: they do not fit, or the library is not installed.
    """
    expect_message_class(payload.category, message)
    from .protobuf_mapping import MessageMapping  # noqa: PLC0415 - an optional dependency

    return MessageMapping(payload.category, payload.record, message)
