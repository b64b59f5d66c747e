"""The format of a topic's messages, recognised from a sample.

messages --schema ids-----> registry: Avro, JSON
         --JSON objects---> JSON, changes of Debezium, CloudEvents
         --JSON arrays----> records with a list
         --maps-----------> MessagePack
         --lines of text--> CSV, text
"""

from __future__ import annotations

import csv
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from io import BytesIO
from typing import Any

import msgspec
from fastavro import schemaless_reader

from ...processors.declare.codecs import Message
from ...processors.errors import PenstockError
from ...transport.codecs.decoded import MALFORMED, UndecodableValue
from ...transport.codecs.registry import AVRO, Framed, RegistryClient, unframed
from ...transport.codecs.registry_avro import parsed_schema
from .avro_shape import shape_of_schema
from .registries import NamedRegistry
from .shape import Shape, merged
from .topic_sample import TopicSample

Content = Mapping[str, Any]
SEPARATORS = (",", ";", "\t", "|")
SOURCE_TIME = "__source_ts_ms"
"""The field with the time of a change in its database, as `codecs.Debezium` names it."""


class TopicNotInferable(PenstockError):
    """The messages of a topic have no format from which a record can be inferred."""


@dataclass(frozen=True)
class Format:
    """A format, as code.

    Args:
        codec: the codec of the category; empty for the default, JSON.
        comment: what to know about the codec.
        setup: lines before the records.
        imports: the imports of these lines.
        key_codec: the codec of keys that have the format, too; empty without one.
        is_debezium: whether keys are those of Debezium's JSON.
    """

    codec: str = ""
    comment: str = ""
    setup: str = ""
    imports: Sequence[str] = ()
    key_codec: str = ""
    is_debezium: bool = False


@dataclass(frozen=True)
class RecognisedTopic:
    """The messages of a sample that have the topic's format.

    Args:
        name: the topic.
        format: the format.
        messages: the messages.
        contents: the fields of each, by their names on the bus.
        shape: the shape of the contents.
        time_path: the place of the event time, if the format determines it.
        registry: the registry of the schemas, if there is one.
    """

    name: str
    format: Format
    messages: Sequence[Message]
    contents: Sequence[Content]
    shape: Shape
    time_path: tuple[str, ...] | None = None
    registry: NamedRegistry | None = field(default=None, repr=False)


def recognise(sample: TopicSample, registry: NamedRegistry | None) -> RecognisedTopic:
    """Return the format and the contents of a sample. Null values are ignored.

    Args:
        sample: the sample.
        registry: the schema registry; None if the user names none.

    Raises:
        TopicNotInferable: there is no message, or no known format.
        RegistryUnreachable: the registry does not answer.
    """
    name = sample.spec.name
    messages = [message for message in sample.messages if message.value()]
    if not messages:
        raise TopicNotInferable(
            f"{name} contains no message with a value, so nothing can be inferred. Try again when it has some."
        )
    framed = _framed(messages)
    if framed is not None:
        return _with_changes(_of_registry(name, messages, framed, registry))
    for decode in (_json_objects, _json_arrays, _message_pack, _lines):
        found = decode(name, messages)
        if found is not None:
            return found
    raise TopicNotInferable(
        f"The messages of {name} have no format that can be recognised: the first begins with {(messages[0].value() or b'')[:40]!r}. Nothing was "
        "inferred. Declare the record and a codec of penstock.codecs, such as Protobuf or one of your own."
    )


def _framed(messages: Sequence[Message]) -> list[Framed] | None:
    """Return the schema id of each message; None if a message has none."""
    try:
        return [unframed(message) for message in messages]
    except UndecodableValue:
        return None


def _of_registry(
    name: str, messages: Sequence[Message], framed: Sequence[Framed], named: NamedRegistry | None
) -> RecognisedTopic:
    ids = sorted({one.schema_id for one in framed}, key=str)
    if named is None:
        raise TopicNotInferable(
            f"The messages of {name} have the format of a schema registry (schema {ids[0]}). Nothing was inferred, because their fields are in the "
            "registry. Name it: --registry http://HOST:8081."
        )
    client = RegistryClient(named.registry, AVRO)
    languages = {client.language_of(schema_id) for schema_id in ids}
    if languages == {"AVRO"}:
        return _avro(name, messages, framed, named, client)
    if languages == {"JSON"}:
        return _registry_json(name, messages, framed, named, client)
    raise TopicNotInferable(
        f"The messages of {name} have schemas in {' and '.join(sorted(languages))}. Nothing was inferred. For Protobuf, generate the message class with "
        "protoc, declare a record with the fields that you need, and the codec penstock.codecs.ConfluentProtobuf(MESSAGE, registry): types that "
        "differ are listed before the first event."
    )


def _registry_format(codec: str, named: NamedRegistry) -> Format:
    return Format(codec, setup=named.setup, imports=named.imports, key_codec=codec)


def _avro(
    name: str, messages: Sequence[Message], framed: Sequence[Framed], named: NamedRegistry, client: RegistryClient
) -> RecognisedTopic:
    schemas: dict[int | str, Any] = {one.schema_id: parsed_schema(client.find(one.schema_id)) for one in framed}
    contents: list[Any] = [schemaless_reader(BytesIO(one.value), schemas[one.schema_id], None) for one in framed]
    if not all(isinstance(content, dict) for content in contents):
        raise TopicNotInferable(
            f"The Avro values of {name} are not records. Nothing was inferred. Declare a codec of your own."
        )
    shape = reduce(merged, map(shape_of_schema, schemas.values()))
    found = _registry_format("ps.codecs.ConfluentAvro(registry)", named)
    return RecognisedTopic(name, found, messages, contents, shape, registry=named)


def _registry_json(
    name: str, messages: Sequence[Message], framed: Sequence[Framed], named: NamedRegistry, client: RegistryClient
) -> RecognisedTopic:
    decoded = [(message, _json(one.value)) for message, one in zip(messages, framed, strict=True)]
    pairs: list[tuple[Message, Content]] = [
        (message, content) for message, content in decoded if isinstance(content, dict)
    ]
    if not pairs:
        raise TopicNotInferable(
            f"The JSON values of {name} are not objects. Nothing was inferred. Declare a codec of your own."
        )
    shape = _shape_of([content for _, content in pairs])
    for schema_id in {one.schema_id for one in framed}:
        _let_miss(shape, msgspec.json.decode(client.find(schema_id).text))
    found = _registry_format("ps.codecs.ConfluentJson(registry)", named)
    return RecognisedTopic(
        name, found, [message for message, _ in pairs], [content for _, content in pairs], shape, registry=named
    )


def _let_miss(shape: Shape, schema: Any) -> None:
    """Make the fields optional that a JSON Schema does not require."""
    properties = schema.get("properties", {}) if isinstance(schema, dict) else {}
    for name, inner in shape.fields.items():
        if name not in schema.get("required", ()):
            inner.make_optional()
        _let_miss(inner, properties.get(name, {}))


def _json(value: bytes) -> Any:
    """Return a JSON value; None if it is none."""
    try:
        return msgspec.json.decode(value.removeprefix(BOM_UTF8))
    except MALFORMED:
        return None


def _json_objects(name: str, messages: Sequence[Message]) -> RecognisedTopic | None:
    """Return JSON objects, and CloudEvents and changes of Debezium in JSON; messages that are no objects are omitted."""
    pairs = [(message, content) for message in messages if isinstance(content := _json(message.value() or b""), dict)]
    if not pairs:
        return None
    found, contents = [message for message, _ in pairs], [content for _, content in pairs]
    if all(_is_cloud_event(message, content) for message, content in pairs):
        return _cloud_events(name, found, contents)
    if all(content.keys() == {"schema", "payload"} for content in contents):
        payloads = [content["payload"] for content in contents]
        # The schemas of Kafka Connect are left out: a record names the fields that it needs of the payload.
        contents = payloads if all(map(_is_change, payloads)) else [{"payload": payload} for payload in payloads]
    return _with_changes(RecognisedTopic(name, Format(), found, contents, _shape_of(contents)))


def _json_arrays(name: str, messages: Sequence[Message]) -> RecognisedTopic | None:
    """Return JSON arrays as records with one list field."""
    decoded = [(message, _json(message.value() or b"")) for message in messages]
    pairs = [(message, {"rows": content}) for message, content in decoded if isinstance(content, list)]
    if not pairs:
        return None
    contents = [content for _, content in pairs]
    declared = Format("ps.codecs.JsonArray()", "let a ps.Stateless yield the elements of `rows`")
    return RecognisedTopic(name, declared, [message for message, _ in pairs], contents, _shape_of(contents))


def _with_changes(topic: RecognisedTopic) -> RecognisedTopic:
    """Return the rows of changes that Debezium wrote; other topics as they are."""
    if not all(map(_is_change, topic.contents)):
        return topic
    rows = [
        (message, {**content["after"], **_source_time(content)})
        for message, content in zip(topic.messages, topic.contents, strict=True)
        if content["after"] is not None
    ]
    if not rows:
        raise TopicNotInferable(
            f"{topic.name} contains only deletions of rows, so nothing can be inferred. Try again when it has rows."
        )
    contents = [row for _, row in rows]
    shape = _shape_of(contents)
    if topic.registry is None:
        declared = replace(topic.format, codec="ps.codecs.Debezium()", is_debezium=True)
    else:
        shape.fields |= {
            name: replace(inner, count=len(rows)) for name, inner in topic.shape.fields["after"].fields.items()
        }
        declared = replace(topic.format, codec=f"ps.codecs.Debezium(values={topic.format.codec})")
    declared = replace(declared, comment="a record is a row; a ps.TableJoin deletes rows")
    return replace(
        topic,
        format=declared,
        messages=[message for message, _ in rows],
        contents=contents,
        shape=shape,
        time_path=(SOURCE_TIME,),
    )


def _is_change(content: Any) -> bool:
    """Return whether Debezium wrote a value for a change of a row. Connectors of document databases write documents as text, which are no rows."""
    return (
        isinstance(content, dict)
        and {"op", "after", "source"} <= content.keys()
        and isinstance(content["after"], (dict, type(None)))
    )


def _source_time(change: Content) -> Content:
    source = change["source"]
    return {SOURCE_TIME: source["ts_ms"]} if isinstance(source, dict) and "ts_ms" in source else {}


def _is_cloud_event(message: Message, content: Content) -> bool:
    return (isinstance(content.get("data"), dict) and "specversion" in content) or "ce_specversion" in _attributes(
        message
    )


def _attributes(message: Message) -> dict[str, str]:
    return {
        name: (value or b"").decode(errors="replace")
        for name, value in message.headers() or ()
        if name.startswith("ce_")
    }


_FIELDS = {
    "event_id": "id",
    "event_time": "time",
    "event_type": "type",
    "event_source": "source",
    "event_subject": "subject",
}
"""The fields of a record for the attributes of an event."""


def _cloud_events(name: str, messages: Sequence[Message], contents: Sequence[Content]) -> RecognisedTopic:
    events = [_event(message, content) for message, content in zip(messages, contents, strict=True)]
    kept = {name for name in ("source", "type") if len({attributes.get(name) for attributes, _ in events}) == 1}
    mapped = {
        own: attribute
        for own, attribute in _FIELDS.items()
        if attribute not in kept and all(attribute in attributes and own not in data for attributes, data in events)
    }
    fields = ", ".join(f'"{own}": "{attribute}"' for own, attribute in mapped.items())
    constants = [f'{attribute}="{events[0][0].get(attribute)}"' for attribute in sorted(kept)]
    rows = [
        {**{own: attributes[attribute] for own, attribute in mapped.items()}, **data} for attributes, data in events
    ]
    return RecognisedTopic(
        name,
        Format(f"ps.codecs.CloudEvents({', '.join([f'{{{fields}}}', *constants])})"),
        messages,
        rows,
        _shape_of(rows),
        ("event_time",) if "event_time" in mapped else None,
    )


def _event(message: Message, content: Content) -> tuple[Content, Content]:
    """Return the attributes and the data of an event."""
    headers = _attributes(message)
    if headers:
        return {name.removeprefix("ce_"): value for name, value in headers.items()}, content
    return {name: value for name, value in content.items() if name != "data"}, content["data"]


def _message_pack(name: str, messages: Sequence[Message]) -> RecognisedTopic | None:
    contents = []
    for message in messages:
        try:
            content = msgspec.msgpack.decode(message.value() or b"")
        except MALFORMED:
            return None
        if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
            return None
        contents.append(content)
    return RecognisedTopic(name, Format("ps.codecs.MessagePack()"), messages, contents, _shape_of(contents))


def _lines(name: str, messages: Sequence[Message]) -> RecognisedTopic | None:
    """Return lines of CSV, or texts."""
    try:
        texts = [(message.value() or b"").decode() for message in messages]
    except UnicodeDecodeError:
        return None
    if any(character < " " and character not in "\t\r\n" for text in texts for character in text):
        return None
    for separator in SEPARATORS:
        rows = _rows(texts, separator)
        if rows:
            return _csv(name, messages, rows, separator)
    contents = [{"text": text} for text in texts]
    return RecognisedTopic(name, Format("ps.codecs.Text()"), messages, contents, _texts(contents))


def _rows(texts: Sequence[str], separator: str) -> list[list[str]]:
    """Return the values of each line; empty if a text is no line of CSV, or if the lines differ in their number of values."""
    try:
        lines = [list(csv.reader([text], delimiter=separator, strict=True)) for text in texts]
    except csv.Error:
        return []
    rows = [row for [row] in lines] if all(len(rows) == 1 for rows in lines) else []
    widths = set(map(len, rows))
    return rows if len(widths) == 1 and max(widths) > 1 else []


def _csv(name: str, messages: Sequence[Message], rows: Sequence[Sequence[str]], separator: str) -> RecognisedTopic:
    columns = [_column(values) for values in zip(*rows, strict=True)]
    names = [f"column{number}" for number in range(1, len(columns) + 1)]
    contents = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    option = "" if separator == "," else f"separator={separator!r}".replace("'", '"')
    declared = Format(f"ps.codecs.Csv({option})", "rename the columns; their order matters")
    return RecognisedTopic(name, declared, messages, contents, _shape_of(contents))


def _column(texts: Sequence[str]) -> Sequence[Any]:
    """Return the values of a column: ints, floats or texts; None for an empty text."""
    for convert in _CONVERSIONS:
        try:
            return [convert(text) if text else None for text in texts]
        except ValueError:
            continue
    return [text or None for text in texts]


_CONVERSIONS: tuple[Callable[[str], Any], ...] = (int, float)


def _texts(contents: Sequence[Content]) -> Shape:
    """Return the shape of records whose only field is a text, also if all texts look like times."""
    return Shape(
        len(contents), {"object": len(contents)}, fields={"text": Shape(len(contents), {"str": len(contents)})}
    )


def _shape_of(contents: Sequence[Content]) -> Shape:
    shape = Shape()
    for content in contents:
        shape.add(content)
    return shape


def key_bytes(topic: RecognisedTopic) -> Iterator[tuple[bytes, Message, Content]]:
    """Yield the key of each message that has one, with the message and its content."""
    for message, content in zip(topic.messages, topic.contents, strict=True):
        key = message.key()
        if key is not None:
            yield key, message, content
