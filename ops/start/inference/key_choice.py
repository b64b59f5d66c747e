"""The key of a topic's messages: which field or fields it is, how its bytes represent it, and which partitioner placed the messages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from ....processors.declare import (
    CompositeJsonKeys,
    InvalidKey,
    KeyCodec,
    KeyConverter,
    KeyPart,
    MessageKeys,
    Partitioner,
    buckets_of,
    key_of_content,
)
from ....transport.codecs import (
    AVRO,
    MALFORMED,
    ConfluentAvro,
    ConfluentJson,
    RegistryClient,
    SchemaRegistry,
    UndecodableValue,
    avro_fields,
    json_fields,
    parsed_schema,
    properties_of,
    unframed_bytes,
)
from .formats import Content, RecognisedTopic, key_bytes
from .object_keys import ObjectKeys, connect_keys, json_keys, matched

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
CODECS = (KeyCodec.TEXT, KeyCodec.INT64, KeyCodec.INT32, KeyCodec.JSON)


@dataclass(frozen=True)
class KeyChoice:
    """The key of the messages.

    Args:
        fields: the field that is the key, or the fields of a key of several; empty if no field is.
        own: the fields among them that only message keys contain, and their types, as code.
        codec: the code of the key codec; empty for text.
        partitioner: the code of the partitioner that explains the bucket of every message; empty for murmur2, None if none does.
        keyed: the number of messages with a key.
        messages: the number of messages.
    """

    fields: tuple[str, ...]
    codec: str
    partitioner: str | None
    keyed: int
    messages: int
    own: Mapping[str, str] = field(default_factory=dict)


class _KeyForm(NamedTuple):
    """A way in which message keys represent a field.

    Args:
        codec: its code, as in `KeyChoice`.
        is_key: whether a message key represents the value of a field.
    """

    codec: str
    is_key: Callable[[Any, bytes], bool]


def choose_key(topic: RecognisedTopic, buckets: int) -> KeyChoice:
    """Return the key that all messages with a key agree on.

    Args:
        topic: the messages.
        buckets: the number of buckets of the topic.
    """
    keyed = [(key, message, _with_texts(content)) for key, message, content in key_bytes(topic)]
    keys, numbers = [key for key, _, _ in keyed], [message.partition() for _, message, _ in keyed]
    counts = len(keyed), len(topic.messages)
    contents = [content for _, _, content in keyed]
    with_schema = connect_keys(keys) if keys else None
    if with_schema is not None:
        return _of_objects(with_schema, contents, _partitioner(keys, numbers, buckets), counts)
    column = _column_beside_schemas(keys)
    if column is not None and all(column in content for content in contents):
        return KeyChoice(
            (column,), "", None, *counts
        )  # the keys have several schemas, so their bytes do not follow from the column
    partitioner = _partitioner(keys, numbers, buckets)
    for form in _forms(topic, keys):
        for name in keyed[0][2]:
            if all(form.is_key(content.get(name), key) for key, _, content in keyed):
                return KeyChoice((name,), form.codec, partitioner, *counts)
    for composite in _composite_forms(topic, keys):
        if all(composite.is_key(content, key) for key, _, content in keyed):
            return KeyChoice(tuple(part.name for part in composite.parts), composite.codec, partitioner, *counts)
    objects = (json_keys(keys) or _registry_objects(topic, keys)) if keys else None
    if objects is not None:
        return _of_objects(objects, contents, partitioner, counts)
    return KeyChoice((), _codec_of(keys), partitioner, *counts)


def _with_texts(content: Content) -> Content:
    """Return a content with its UUIDs as texts, since a key is declared as a text or an int."""
    return {name: str(value) if isinstance(value, UUID) else value for name, value in content.items()}


def _of_objects(
    objects: ObjectKeys, contents: Sequence[Content], partitioner: str | None, counts: tuple[int, int]
) -> KeyChoice:
    found = matched(objects, contents)
    return KeyChoice(found.fields, found.codec, partitioner, *counts, own=found.own)


def _forms(topic: RecognisedTopic, keys: Sequence[bytes]) -> Iterator[_KeyForm]:
    if not keys:
        return
    for codec in CODECS:
        yield _KeyForm("" if codec is KeyCodec.TEXT else f"ps.KeyCodec.{codec.name}", _plain_form(codec))
    if topic.registry is not None and topic.format.key_codec:
        registry = topic.registry.registry
        for code, spec in (
            ("ps.codecs.ConfluentAvro(registry)", ConfluentAvro(registry)),
            ("ps.codecs.ConfluentJson(registry)", ConfluentJson(registry)),
        ):
            for is_number in (False, True):
                yield _KeyForm(
                    code, _registry_form(spec.open_keys(topic.name, is_number=is_number), is_number=is_number)
                )


class _CompositeForm(NamedTuple):
    """A way in which message keys represent several fields.

    Args:
        codec: its code, as in `KeyChoice`.
        parts: the fields.
        keys: converts the keys.
    """

    codec: str
    parts: tuple[KeyPart, ...]
    keys: KeyConverter

    def is_key(self, content: Content, key: bytes) -> bool:
        """Return whether a message key represents the fields of a content."""
        try:
            return self.keys.decode(key) == key_of_content(
                {part.name: content.get(part.name) for part in self.parts}, self.parts
            )
        except (ValueError, RecursionError):
            return False


def _composite_forms(topic: RecognisedTopic, keys: Sequence[bytes]) -> Iterator[_CompositeForm]:
    if not keys:
        return
    parts = _json_parts(keys)
    if parts:
        yield _CompositeForm("ps.KeyCodec.JSON", parts, CompositeJsonKeys(parts))
    if topic.registry is not None and topic.format.key_codec:
        yield from _registry_composite_forms(topic.name, topic.registry.registry, keys[0])


def _json_parts(keys: Sequence[bytes]) -> tuple[KeyPart, ...]:
    """Return the fields of keys that are JSON objects; empty if they are written with spaces, in several orders, or as something else."""
    found: set[tuple[KeyPart, ...]] = set()
    for key in keys:
        try:
            content = msgspec.json.decode(key, type=dict[str, str | int])
        except MALFORMED:
            return ()
        if msgspec.json.encode(content) != key:
            return ()
        found.add(tuple(KeyPart(name, isinstance(value, int)) for name, value in content.items()))
    [parts] = found if len(found) == 1 else [()]
    return parts if len(parts) > 1 else ()


def _registry_composite_forms(name: str, registry: SchemaRegistry, key: bytes) -> Iterator[_CompositeForm]:
    """Yield the form of keys with the fields of a key's schema."""
    client = RegistryClient(registry, AVRO)
    try:
        schema_id = unframed_bytes(key).schema_id
        schema = client.find(schema_id)
    except UndecodableValue:
        return
    language = client.language_of(schema_id)
    if language == "AVRO":
        parts = tuple(avro_fields(parsed_schema(schema, plain_types=True)))
        code, keys = "ps.codecs.ConfluentAvro(registry)", ConfluentAvro(registry).open_composite_keys(name, parts)
    elif language == "JSON":
        parts = tuple(json_fields(properties_of(msgspec.json.decode(schema.text))))
        code, keys = "ps.codecs.ConfluentJson(registry)", ConfluentJson(registry).open_composite_keys(name, parts)
    else:
        return
    if len(parts) > 1:
        yield _CompositeForm(code, parts, keys)


def _registry_objects(topic: RecognisedTopic, keys: Sequence[bytes]) -> ObjectKeys | None:
    """Return keys of several fields in the format of a registry."""
    if topic.registry is None or not topic.format.key_codec:
        return None
    for form in _registry_composite_forms(topic.name, topic.registry.registry, keys[0]):
        try:
            values = [json.loads(form.keys.decode(key)) for key in keys]
        except (ValueError, RecursionError):
            continue
        return ObjectKeys(form.parts, values, form.codec, partial(_renamed, form.codec))
    return None


def _renamed(codec: str, names: str) -> str:
    return f"ps.codecs.KeyFields({names}, {codec})"


def _plain_form(codec: KeyCodec) -> Callable[[Any, bytes], bool]:
    def is_key(value: Any, key: bytes) -> bool:
        if not isinstance(value, (str, int)) or isinstance(value, bool):
            return False
        is_number = isinstance(value, int)
        if not is_number and codec in {KeyCodec.INT32, KeyCodec.INT64}:
            return False
        try:
            return MessageKeys("", codec, is_number).encode([str(value)]) == [key]
        except InvalidKey:
            return False

    return is_key


def _registry_form(keys: KeyConverter, *, is_number: bool) -> Callable[[Any, bytes], bool]:
    def is_key(value: Any, key: bytes) -> bool:
        if not isinstance(value, int if is_number else str) or isinstance(value, bool):
            return False
        try:
            return keys.decode(key) == str(value)
        except (UndecodableValue, ValueError, msgspec.DecodeError):
            return False

    return is_key


def _column_beside_schemas(keys: Sequence[bytes]) -> str | None:
    """Return the only column of keys that contain schemas; None for other keys."""
    columns = set()
    for key in keys:
        try:
            content = msgspec.json.decode(key)
        except MALFORMED:
            return None
        is_wrapped = isinstance(content, dict) and content.keys() == {"schema", "payload"}
        payload = content["payload"] if is_wrapped else None
        columns.add(tuple(payload) if isinstance(payload, dict) else ())
    [names] = columns if len(columns) == 1 else [()]
    return str(names[0]) if len(names) == 1 else None


def _partitioner(keys: Sequence[bytes], numbers: Sequence[int], buckets: int) -> str | None:
    if not keys:
        return None
    explaining = (
        partitioner
        for partitioner in Partitioner
        if buckets == 1 or buckets_of(keys, buckets, partitioner) == list(numbers)
    )
    found = next(explaining, None)
    return None if found is None else "" if found is Partitioner.MURMUR2 else f"ps.Partitioner.{found.name}"


def _codec_of(keys: Sequence[bytes]) -> str:
    """Return the codec of keys that no field equals. Bytes that are a text by chance, such as small numbers, contain control characters."""
    try:
        is_text = not any(_CONTROL.search(key.decode()) for key in keys)
    except UnicodeDecodeError:
        is_text = False
    return "" if is_text else "ps.KeyCodec.BYTES"
