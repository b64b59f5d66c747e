"""The codec of each category."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ...processors.declare.categories import AnyCategory, CodecName
from ...processors.declare.codecs import Codec, CodecSpec, Payload, headers_of
from ...processors.declare.dead_letters import DeadLetter
from ...processors.declare.metadata import metadata_of, payload_of
from ...processors.declare.records import Record
from ..bus import Bus
from ..messages import Outgoing, outgoing
from ..tables.schemas import Schemas
from .avro import AvroCodec
from .dead_letters import DeadLetterCodec
from .json_codec import JsonCodec
from .message_fields import MessageFieldsCodec
from .validated import validated


class Codecs:
    """Codecs by category, which share a cache of the schemas on one bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._schemas = Schemas(bus)
        self._codecs: dict[str, Codec] = {}

    def open(self, categories: Iterable[AnyCategory]) -> None:
        """Open the codecs of categories, so that errors precede the first message.

        Raises:
            DeclarationError: a codec cannot represent the records of its category, or needs a library that is not installed.
        """
        for category in categories:
            self.of(category)

    def of(self, category: AnyCategory) -> Codec:
        """Return the category's codec."""
        if category.name not in self._codecs:
            self._codecs[category.name] = self._new(category)
        return self._codecs[category.name]

    def _new(self, category: AnyCategory) -> Codec:
        if category.record is DeadLetter:
            return DeadLetterCodec(lambda: self._bus.catalog.message_limit(category.name))
        record: type[Record] = category.record
        event_time = category.times.field
        key = category.key if isinstance(category.key, str) else None
        codec = self._opened(category.codec, payload_of(category.name, record, event_time, key))
        whole = MessageFieldsCodec(record, event_time, codec, category.decode_key) if metadata_of(record) else codec
        return validated(whole, category)

    def _opened(self, codec: CodecName | CodecSpec, payload: Payload) -> Codec:
        if codec == "avro":
            return AvroCodec(payload, self._schemas)
        return JsonCodec(payload) if isinstance(codec, str) else codec.open(payload)


def whole_record_json(category: AnyCategory) -> Codec:
    """Return a JSON codec of a category's records with all fields, metadata fields included, for users and tools."""
    return validated(JsonCodec(Payload(category.name, category.record, category.times.field)), category)


def encoded_messages(category: AnyCategory, codec: Codec, records: Sequence[Any]) -> Iterator[Outgoing]:
    """Return a message for each record of a category, for the bucket of its key.

    Raises:
        InvalidRecord: a record does not fit its type; there is no message.
        DeclarationError: a key cannot be computed, or does not fit the key codec.
    """
    values = codec.encode(records)  # first, because it checks the key field, too
    keys = category.encode_keys(category.keys_of(records))
    return outgoing(category, keys, values, headers_of(codec, records))
