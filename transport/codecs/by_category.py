"""The codec of each category."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import compress, repeat
from operator import itemgetter
from typing import Any, NamedTuple

from ...processors.declare import (
    AnyCategory,
    Codec,
    CodecName,
    CodecSpec,
    ColumnCodec,
    ColumnOutputs,
    DeadLetter,
    InvalidKey,
    Message,
    Payload,
    Tombstone,
    headers_of,
    metadata_of,
    prepare,
)
from ..bus import Bus
from ..clusters import cluster_of, placed_on
from ..messages import Outgoing, outgoing
from ..tables import SCHEMAS, Schemas
from .avro import AvroCodec
from .dead_letters import DeadLetterCodec
from .json_codec import JsonCodec
from .message_fields import MessageFieldsCodec
from .validated import validated


class Codecs:
    """Codecs by category, which share a cache of the schemas on each cluster of a bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._schemas: dict[str | None, Schemas] = {}
        self._codecs: dict[str, Codec] = {}

    def open(self, categories: Iterable[AnyCategory]) -> None:
        """Open the codecs of categories, so that errors precede the first message.

        Raises:
            DeclarationError: a codec cannot represent the records of its category, or needs a library that is not installed.
        """
        for category in categories:
            self.of(category)

    def prepare(self, categories: Iterable[AnyCategory]) -> None:
        """Prepare the codecs and the message keys of categories for writing, so that a refused schema precedes the first event.

        Raises:
            PenstockError: a schema registry does not answer, or does not accept a schema.
        """
        for category in categories:
            prepare(self.of(category))
            category.prepare_keys()

    def of(self, category: AnyCategory) -> Codec:
        """Return the category's codec."""
        if category.name not in self._codecs:
            self._codecs[category.name] = self._new(category)
        return self._codecs[category.name]

    def _new(self, category: AnyCategory) -> Codec:
        if category.record is DeadLetter:
            return DeadLetterCodec(lambda: self._bus.catalog.message_limit(category.name))
        event_time = category.times.field
        codec = self._opened(category, category.payload)
        whole = (
            MessageFieldsCodec(category.record_types[0], event_time, codec, category.decode_key, category.key_parts)
            if metadata_of(category.record_types[0])
            else codec
        )
        return validated(whole, category)

    def _opened(self, category: AnyCategory, payload: Payload) -> Codec:
        codec: CodecName | CodecSpec = category.codec
        if codec == "avro":
            return AvroCodec(payload, self._schemas_beside(category))
        return JsonCodec(payload) if isinstance(codec, str) else codec.open(payload)

    def _schemas_beside(self, category: AnyCategory) -> Schemas:
        """Return the schemas on the cluster of a category, where its other readers find them."""
        cluster = cluster_of(self._bus, category.name)
        if cluster not in self._schemas:
            self._schemas[cluster] = Schemas(placed_on(self._bus, SCHEMAS.name, cluster))
        return self._schemas[cluster]


def whole_record_json(category: AnyCategory) -> Codec:
    """Return a JSON codec of a category's records with all fields, metadata fields included, for users and tools."""
    return validated(JsonCodec(Payload(category.name, category.record, category.times.field)), category)


class EncodedOutputs(NamedTuple):
    """Encoded outputs of one category.

    Args:
        messages: a message for each output, in order.
        value_bytes: the size of all values.
        largest_value: the size of the largest value.
    """

    messages: Iterator[Outgoing]
    value_bytes: int
    largest_value: int


def encoded_messages(category: AnyCategory, codec: Codec, outputs: Sequence[Any]) -> Iterator[Outgoing]:
    """Return a message for each record or tombstone of a category, for the bucket of its key.

    Raises:
        InvalidRecord: a record does not fit its type; there is no message.
        DeclarationError: a key cannot be computed, or does not fit the key codec.
    """
    return encode_outputs(category, codec, outputs).messages


def encode_outputs(category: AnyCategory, codec: Codec, outputs: Sequence[Any]) -> EncodedOutputs:
    """Return the same messages with their size."""
    if isinstance(outputs, ColumnOutputs):
        encoded = _encoded_columns(category, codec, outputs)
        if encoded is not None:
            return encoded
    if Tombstone not in set(map(type, outputs)):
        return _encoded_records(category, codec, outputs)
    is_tombstone = [type(output) is Tombstone for output in outputs]
    tombstones = outgoing(
        category, category.encode_keys([one.key for one in compress(outputs, is_tombstone)]), repeat(None)
    )
    records = _encoded_records(category, codec, [one for one in outputs if type(one) is not Tombstone])
    in_order = (next(tombstones if deletes else records.messages) for deletes in is_tombstone)
    return EncodedOutputs(in_order, records.value_bytes, records.largest_value)


def _encoded_columns(category: AnyCategory, codec: Codec, outputs: ColumnOutputs) -> EncodedOutputs | None:
    """Return the messages of columns; None if they must be encoded as records."""
    keys = outputs.keys
    values = codec.encode_columns(outputs.columns) if keys is not None and isinstance(codec, ColumnCodec) else None
    if keys is None or values is None:
        return None
    return EncodedOutputs(outgoing(category, category.encode_keys(keys), values), *_sizes_of(values))


def _encoded_records(category: AnyCategory, codec: Codec, records: Sequence[Any]) -> EncodedOutputs:
    values = codec.encode(records)  # first, because it checks the key field, too
    keys = category.encode_keys(category.keys_of(records))
    return EncodedOutputs(outgoing(category, keys, values, headers_of(codec, records)), *_sizes_of(values))


def _sizes_of(values: Sequence[bytes]) -> tuple[int, int]:
    """Return the size of all values, and of the largest."""
    return sum(map(len, values)), max(map(len, values), default=0)


def decode_outputs(category: AnyCategory, codec: Codec, messages: Sequence[Message]) -> list[tuple[int, Any]]:
    """Return the records and tombstones of messages with their indexes, in order. Other messages are skipped."""
    decoded = codec.decode(messages)
    outputs = dict(zip(decoded.at, decoded.events, strict=True))
    for bad in decoded.bad:
        key = messages[bad.at].key()
        if messages[bad.at].value() is None and key is not None:
            with suppress(InvalidKey):
                outputs[bad.at] = Tombstone(category.decode_key(key))
    return sorted(outputs.items(), key=itemgetter(0))
