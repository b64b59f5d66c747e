"""Codecs as a category declares them, and the batches that they decode.

A codec decodes whole messages, so that it can use their keys, headers and timestamps besides their values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from .composite_keys import KeyPart
from .records import AnyRecord
from .row_updates import RowUpdate

if TYPE_CHECKING:
    import pyarrow as pa

MessageHeaders = Sequence[tuple[str, bytes | None]]
"""The headers of a message in order. A name may occur several times."""


class Message(Protocol):
    """A stored message. The methods have confluent-kafka's names, so that its messages need no wrapper."""

    def key(self) -> bytes | None:
        """Return the key."""
        ...

    def value(self) -> bytes | None:
        """Return the payload."""
        ...

    def headers(self) -> MessageHeaders | None:
        """Return the headers; None without headers."""
        ...

    def partition(self) -> int:
        """Return the number of the bucket."""
        ...

    def offset(self) -> int:
        """Return the offset."""
        ...

    def timestamp(self) -> tuple[int, int]:
        """Return the type of the timestamp (0: none, 1: the writer's, 2: the bus's) and the time (milliseconds since 1970, UTC)."""
        ...


class Undecodable(NamedTuple):
    """A message that did not decode.

    Args:
        at: its index in the batch.
        reason: why, in words.
        untimed: whether only the event time is missing.
        deleted_key: the key of the row that the message deletes; None for other messages.
        update: the row without its unchanged values, which only a table knows; None for other messages.
        clears_table: whether the message deletes all rows of a table.
    """

    at: int
    reason: str
    untimed: bool
    deleted_key: str | None = None
    update: RowUpdate | None = None
    clears_table: bool = False


class Decoded(NamedTuple):
    """A decoded batch. Messages that are in neither list contain no record by their format, and are skipped.

    Args:
        events: the records, in order.
        at: the index in the batch of each record.
        bad: the messages that did not decode.
    """

    events: Sequence[Any]
    at: Sequence[int]
    bad: list[Undecodable]


@dataclass(frozen=True)
class Payload:
    """The values of a category's messages, as its codec sees them.

    Args:
        category: the name of the category, which is its topic in Kafka.
        record: the type of the values: the record type of the category without its metadata fields. A codec with `accepts_unions` may also get a union.
        event_time: the dotted path, in names on the bus, of the field with the event time; None if the values do not contain it.
        key: the name on the bus of the key field; None if the values do not contain it.
        key_parts: the fields of a key of several; empty for other keys.
        times_of: returns the event time of each record of this type (milliseconds since 1970, UTC); None if the values do not determine it.
    """

    category: str
    record: type[AnyRecord]
    event_time: str | None
    key: str | None = None
    key_parts: tuple[KeyPart, ...] = ()
    times_of: Callable[[Sequence[Any]], Sequence[int]] | None = None


@runtime_checkable
class CodecSpec(Protocol):
    """A codec as a category declares it: a frozen value, which equal declarations share. Its repr contains no secret."""

    def open(self, payload: Payload) -> Codec:
        """Return the codec of one category. Does no I/O.

        Raises:
            DeclarationError: the format cannot represent the record type.
        """
        ...


@runtime_checkable
class UnionCodecSpec(CodecSpec, Protocol):
    """A codec for unions of record types, too: it writes and reads the tag of each record."""

    accepts_unions: bool


def accepts_unions(codec: object) -> bool:
    """Return whether a category with this codec may have a union of record types."""
    return codec == "json" or (isinstance(codec, UnionCodecSpec) and codec.accepts_unions)


def is_codec_spec(codec: object) -> bool:
    """Return whether an object can be the codec of a category; a class without arguments cannot."""
    return isinstance(codec, CodecSpec) and not isinstance(codec, type)


class Codec(Protocol):
    """Encodes and decodes one category's records, a batch at a time.

    A message that fails to decode is reported by its index; the rest of the batch is processed.
    """

    def encode(self, records: Sequence[Any]) -> list[bytes]:
        """Return the value of a message for each record.

        Raises:
            InvalidRecord: a value violates the record's type, or a number is infinite, NaN or beyond 64 bits.
        """
        ...

    def decode(self, messages: Sequence[Message]) -> Decoded:
        """Decode a batch; undecodable messages are part of the result."""
        ...


@runtime_checkable
class ColumnCodec(Codec, Protocol):
    """A codec that also decodes to columns, and encodes them."""

    def decode_columns(self, messages: Sequence[Message], names: Sequence[str]) -> pa.RecordBatch | None:
        """Return some fields of a batch as columns, by their names on the bus.

        Returns:
            None unless `decode` certainly returns a record with these values for each message.
        """
        ...

    def encode_columns(self, columns: pa.RecordBatch) -> list[bytes] | None:
        """Return the value of a message for each record, as `encode` does; None where the records are needed.

        Args:
            columns: all fields of the records in the order of their declaration, with values that fit them.
        """
        ...


@runtime_checkable
class HeaderCodec(Codec, Protocol):
    """A codec that also writes headers."""

    def headers(self, records: Sequence[Any]) -> Sequence[MessageHeaders | None]:
        """Return the headers of a message for each record; None for a message without headers.

        Raises:
            InvalidRecord: a header is neither str nor bytes.
        """
        ...


def headers_of(codec: Codec, records: Sequence[Any]) -> Sequence[MessageHeaders | None] | None:
    """Return the headers of a message for each record; None if the codec writes no headers."""
    return codec.headers(records) if isinstance(codec, HeaderCodec) else None


@runtime_checkable
class LimitedCodec(Codec, Protocol):
    """A codec whose format has further limits than the record type, such as integers of 32 bits."""

    def expect(self, record: AnyRecord) -> None:
        """Check one record, which fits its type.

        Raises:
            InvalidRecord: the format cannot represent a value.
        """
        ...


@runtime_checkable
class SplittingCodec(Codec, Protocol):
    """A codec whose messages may contain several records. `decode` gets messages that `split` returned, with at most one record each."""

    def split(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return a message for each record, in order.

        It has the offset, the key and the other parts of the record's message, and a value that the codec decodes to this record alone. Every
        message is represented: one without a record, or that cannot be split, is returned unchanged. If no message has several records, the
        result is `messages` itself.
        """
        ...


def split_messages(codec: Codec, messages: Sequence[Message]) -> Sequence[Message]:
    """Return messages with at most one record each. They are the same object if none has several."""
    return codec.split(messages) if isinstance(codec, SplittingCodec) else messages


@runtime_checkable
class PreparedCodec(Codec, Protocol):
    """A codec that needs another service before it writes, such as a schema registry."""

    def prepare(self) -> None:
        """Check that records of the category can be written. May wait for the service; a repetition has no effect.

        Raises:
            PenstockError: they cannot be written.
        """
        ...


def prepare(codec: Codec) -> None:
    """Prepare a codec for writing, if it needs that."""
    if isinstance(codec, PreparedCodec):
        codec.prepare()
