"""The format of a topic's messages, recognised from a sample.

messages --schema ids-----> registry: Avro, JSON, Protobuf
         --JSON objects---> JSON, changes of Debezium, CloudEvents
         --JSON arrays----> records, or records with a list
         --JSON lines-----> records
         --maps-----------> MessagePack
         --lines of text--> CSV, text
         --headers only---> CloudEvents without data, no value
"""

from __future__ import annotations

import re
from base64 import b64decode
from codecs import BOM_UTF8
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import msgspec

from ....processors import PenstockError, counted
from ....processors.declare import Message
from ....transport.codecs import (
    AVRO,
    MALFORMED,
    UNREADABLE,
    Framed,
    RegistryClient,
    UndecodableValue,
    parsed_types,
    unframed,
)
from .avro_shape import shape_of_schema
from .connect_schemas import columns_of
from .csv_lines import lines_of, tables_of
from .json_schemas import permit
from .lone_surrogates import without_halves
from .majority import most
from .registries import NamedRegistry
from .shape import Shape, merged
from .topic_sample import TopicSample

Content = Mapping[str, Any]
_LEAST_SHARE = 0.1
"""The least share of arrays among objects that is no mistake of a producer."""
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
        is_positional: whether the order of the fields determines their places in messages, so that each has one in every message.
    """

    codec: str = ""
    comment: str = ""
    setup: str = ""
    imports: Sequence[str] = ()
    key_codec: str = ""
    is_positional: bool = False


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
        others: the number of messages of another format, which the codec cannot decode.
        halves: the number of messages of the format that the codec cannot decode, because a text in them contains half a character.
        skipped: the number of messages without an event, which the codec skips: header lines and empty arrays.
        other_types: the record types of messages that the codec skips, with their numbers.
        columns: the columns of changed rows, by their names, if the messages contain their schema.
        headers: the headers that are fields of the record, by their names.
    """

    name: str
    format: Format
    messages: Sequence[Message]
    contents: Sequence[Content]
    shape: Shape
    time_path: tuple[str, ...] | None = None
    registry: NamedRegistry | None = field(default=None, repr=False)
    others: int = 0
    halves: int = 0
    skipped: int = 0
    other_types: Sequence[str] = ()
    columns: Mapping[str, Shape] = field(default_factory=dict)
    headers: Mapping[str, Shape] = field(default_factory=dict)

    @property
    def noun(self) -> str:
        """What the contents are: a message has one, or several of them are events of one message."""
        return "message" if len({id(message) for message in self.messages}) == len(self.messages) else "event"


def recognise(sample: TopicSample, registry: NamedRegistry | None) -> RecognisedTopic:
    """Return the format and the contents of a sample. Null values are ignored, unless no message has a value.

    Args:
        sample: the sample.
        registry: the schema registry; None if the user names none.

    Raises:
        TopicNotInferable: there is no message, or no known format.
        RegistryUnreachable: the registry does not answer.
    """
    name = sample.spec.name
    values = [(message, value) for message in sample.messages if (value := message.value())]
    if not values:
        return _of_headers(name, sample.messages)
    framed = most(values, _framed)
    found = _of_registry(name, framed, registry) if framed else _of_values(name, values)
    if found is not None:
        recognised = len({id(message) for message in found.messages})  # a message may have several contents
        return _with_changes(replace(found, others=len(values) - recognised - found.skipped))
    raise TopicNotInferable(
        f"The messages of {name} have no format that can be recognised: the first begins with {values[0][1][:40]!r}.{_sentence(_known_encoding(values[0][1]))} Nothing was "
        "inferred. Declare the record and a codec of penstock.codecs, such as Protobuf or one of your own."
    )


def _of_values(name: str, values: Sequence[tuple[Message, bytes]]) -> RecognisedTopic | None:
    """Return the topic in the first format that fits values without schema ids; None without one."""
    whole = [(message, without_halves(value)) for message, value in values]
    found = _first_of((_json_objects_and_arrays, _json_lines, _json_objects, _json_arrays), name, whole)
    if found is not None:
        return _with_halves(found, values)
    return _first_of((_message_pack, _csv_lines, _csv_tables, _texts), name, values)


def _with_halves(topic: RecognisedTopic, values: Sequence[tuple[Message, bytes]]) -> RecognisedTopic:
    """Return a topic of JSON with the number of its messages that contain half a character."""
    read = {id(message) for message in topic.messages}
    halves = [message for message, value in values if id(message) in read and without_halves(value) != value]
    return replace(topic, halves=len(halves))


def _first_of(
    formats: Sequence[Callable[[str, Sequence[tuple[Message, bytes]]], RecognisedTopic | None]],
    name: str,
    values: Sequence[tuple[Message, bytes]],
) -> RecognisedTopic | None:
    """Return the topic in the first of some formats that fits; None without one."""
    return next((found for of_format in formats if (found := of_format(name, values)) is not None), None)


def _of_headers(name: str, messages: Sequence[Message]) -> RecognisedTopic:
    """Return the topic of messages without values: their headers are fields. A message without headers is a deletion."""
    pairs: list[tuple[Message, Content]] = [(message, {}) for message in messages if message.headers()]
    if not pairs:
        raise TopicNotInferable(
            f"{name} contains no message with a value or headers, so nothing can be inferred. Try again when it has some."
        )
    events = most(pairs, _event)
    if events:
        return _cloud_events(name, events)
    headers = _shape_of([dict(message.headers() or ()) for message, _ in pairs]).fields
    return replace(_topic(name, Format("ps.codecs.NoValue()"), pairs), headers=headers)


def _framed(message: Message, _value: bytes) -> Framed | None:
    """Return the schema id and the value of a message; None without an id."""
    try:
        return unframed(message)
    except UndecodableValue:
        return None


def _of_registry(name: str, pairs: Sequence[tuple[Message, Framed]], named: NamedRegistry | None) -> RecognisedTopic:
    ids = sorted({one.schema_id for _, one in pairs}, key=str)
    if named is None:
        raise TopicNotInferable(
            f"The messages of {name} have the format of a schema registry (schema {ids[0]}). Nothing was inferred, because their fields are in the "
            "registry. Name it: --registry http://HOST:8081."
        )
    client = RegistryClient(named.registry, AVRO)
    languages = {client.language_of(schema_id) for schema_id in ids}
    if languages == {"AVRO"}:
        return _avro(name, pairs, named, client)
    if languages == {"JSON"}:
        return _registry_json(name, pairs, named, client)
    if languages == {"PROTOBUF"}:
        return _protobuf(name, pairs, named)
    raise TopicNotInferable(
        f"The messages of {name} have schemas in {' and '.join(sorted(languages))}. Nothing was inferred, because a category has one format. Declare a "
        "category and a codec for the messages that you need; the others do not decode (`on_undecodable`)."
    )


def _registry_format(codec: str, named: NamedRegistry) -> Format:
    return Format(codec, setup=named.setup, imports=named.imports, key_codec=codec)


def _avro(
    name: str, pairs: Sequence[tuple[Message, Framed]], named: NamedRegistry, client: RegistryClient
) -> RecognisedTopic:
    types = {schema_id: parsed_types(client.find(schema_id)) for schema_id in {one.schema_id for _, one in pairs}}
    found: defaultdict[str, list[tuple[Message, Any]]] = defaultdict(list)
    for message, one in pairs:
        with suppress(*UNREADABLE):
            type_name, content = types[one.schema_id].read(one.value)
            found[type_name].append((message, content))
    main = max(found, key=lambda each: len(found[each]), default="")
    records = found[main]
    if not records or not all(isinstance(record, dict) for _, record in records):
        raise TopicNotInferable(
            f"The Avro values of {name} are not records. Nothing was inferred. Declare a codec of your own."
        )
    members = [(member, each) for each in types.values() for member in each.members if member.name == main]
    shape = reduce(merged, (shape_of_schema(member.schema, each.named) for member, each in members))
    options = f', name={quoted(main)}, other_types="skip"' if len(found) > 1 else ""
    return replace(
        _topic(name, _registry_format(f"ps.codecs.ConfluentAvro(registry{options})", named), records, shape),
        registry=named,
        other_types=[f"{other} ({len(others):,})" for other, others in found.items() if other != main],
    )


def _protobuf(name: str, pairs: Sequence[tuple[Message, Framed]], named: NamedRegistry) -> RecognisedTopic:
    """Return the messages of the most frequent type."""
    try:
        from .protobuf_topic import sampled_messages  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise TopicNotInferable(
            f"The messages of {name} are Protobuf, but a library is not installed ({error}). Nothing was inferred. Install it: pip install "
            "'penstock[registry,protobuf]'"
        ) from error
    found = sampled_messages(pairs, named.registry)
    if found is None:
        raise TopicNotInferable(
            f"The Protobuf messages of {name} cannot be read with the schemas in the registry. Nothing was inferred. Generate the message class with "
            "protoc, and declare a record with the fields that you need and the codec penstock.codecs.ConfluentProtobuf(MESSAGE, registry)."
        )
    module = re.sub(r"\W", "_", name)
    options = ', other_types="skip"' if found.other_types else ""
    codec = f"ps.codecs.ConfluentProtobuf({module}_pb2.{found.class_path}, registry{options})"
    declared = replace(
        _registry_format(codec, named),
        setup="\n".join([*found.instructions(module, named.registry), named.setup]),
        imports=(*named.imports, f"import {module}_pb2"),
    )
    topic = _topic(name, declared, found.contents, found.shape)
    return replace(topic, registry=named, other_types=found.other_types)


def _registry_json(
    name: str, pairs: Sequence[tuple[Message, Framed]], named: NamedRegistry, client: RegistryClient
) -> RecognisedTopic:
    values = [(message, one.value) for message, one in pairs]
    objects = [
        (message, content) for message, value in values if isinstance(content := _json(without_halves(value)), dict)
    ]
    if not objects:
        raise TopicNotInferable(
            f"The JSON values of {name} are not objects. Nothing was inferred. Declare a codec of your own."
        )
    topic = _topic(name, _registry_format("ps.codecs.ConfluentJson(registry)", named), objects)
    for schema_id in {one.schema_id for _, one in pairs}:
        permit(topic.shape, client.find(schema_id))
    return replace(_with_halves(topic, values), registry=named)


def _json(value: bytes) -> Any:
    """Return a JSON value; None if it is none."""
    try:
        return msgspec.json.decode(value.removeprefix(BOM_UTF8))
    except MALFORMED:
        return None


def _json_objects(name: str, values: Sequence[tuple[Message, bytes]]) -> RecognisedTopic | None:
    """Return JSON objects, however few, and CloudEvents in JSON."""
    objects: Sequence[tuple[Message, Content]] = [
        (message, content) for message, value in values if isinstance(content := _json(value), dict)
    ]
    if not objects:
        return None
    events = most(objects, _event)
    if events:
        return _cloud_events(name, events)
    wrapped = most(objects, _wrapped)
    if wrapped:
        payloads = [(message, content["payload"]) for message, content in wrapped]
        changes = most(payloads, _change)
        if changes:
            schemas = (content["schema"] for _, content in wrapped if _change(_, content["payload"]))
            return replace(_topic(name, Format(), changes), columns=columns_of(schemas, are_changes=True))
        # A record names the fields that it needs of the payload; the schema is left out.
        topic = _topic(name, Format(), [(message, {"payload": payload}) for message, payload in payloads])
        columns = columns_of((content["schema"] for _, content in wrapped), are_changes=False)
        for column, found in topic.shape.fields["payload"].fields.items():
            found.note = columns[column].note if column in columns else ""
        return topic
    return _topic(name, Format(), objects)


def _json_lines(name: str, values: Sequence[tuple[Message, bytes]]) -> RecognisedTopic | None:
    """Return the lines of messages, of which several have more than one, as of producers that write NDJSON."""
    found = [(message, lines) for message, value in values if (lines := _object_lines(value))]
    if sum(len(lines) > 1 for _, lines in found) < max(1, len(values) * _LEAST_SHARE):
        return None
    return _topic(
        name,
        Format("ps.codecs.JsonLines()", "each line of a message is an event"),
        [(message, line) for message, lines in found for line in lines],
    )


def _object_lines(value: bytes) -> Sequence[Content]:
    """Return the JSON objects in the lines of a value; empty if a line is something else."""
    lines = [_json(line) for line in value.split(b"\n") if line.strip()]
    return lines if all(isinstance(line, dict) for line in lines) else ()


_ELEMENTS = Format("ps.codecs.JsonArray()", "each element of an array is an event")


def _json_objects_and_arrays(name: str, values: Sequence[tuple[Message, bytes]]) -> RecognisedTopic | None:
    """Return the events of a topic whose messages are objects or arrays of objects: some producers write several events as an array, and one as an object."""
    contents = [(message, _json(value)) for message, value in values]
    objects = [(message, [content]) for message, content in contents if isinstance(content, dict)]
    arrays = [(message, content) for message, content in contents if isinstance(content, list)]
    elements = [(message, element) for message, content in [*objects, *arrays] for element in content]
    if (
        not objects
        or len(arrays) < len(values) * _LEAST_SHARE
        or not all(isinstance(each, dict) for _, each in elements)
    ):
        return None
    return _of_elements(name, elements, arrays)


def _json_arrays(name: str, values: Sequence[tuple[Message, bytes]]) -> RecognisedTopic | None:
    """Return JSON arrays, however few: their elements if these are objects, otherwise records with one list field."""
    arrays = [(message, content) for message, value in values if isinstance(content := _json(value), list)]
    elements = [(message, element) for message, content in arrays for element in content]
    if elements and all(isinstance(element, dict) for _, element in elements):
        return _of_elements(name, elements, arrays)
    declared = Format("ps.codecs.JsonArray()", "let a ps.Stateless yield the elements of `rows`")
    return _topic(name, declared, [(message, {"rows": content}) for message, content in arrays]) if arrays else None


def _of_elements(
    name: str, elements: Sequence[tuple[Message, Content]], arrays: Sequence[tuple[Message, Sequence[Any]]]
) -> RecognisedTopic:
    """Return the topic of elements, each an event. An empty array contains none."""
    return replace(_topic(name, _ELEMENTS, elements), skipped=sum(not content for _, content in arrays))


def _topic(
    name: str, declared: Format, pairs: Sequence[tuple[Message, Content]], shape: Shape | None = None
) -> RecognisedTopic:
    """Return the topic; by default, its shape is inferred from the contents."""
    contents = [content for _, content in pairs]
    return RecognisedTopic(name, declared, [message for message, _ in pairs], contents, shape or _shape_of(contents))


def _with_changes(topic: RecognisedTopic) -> RecognisedTopic:
    """Return the rows of changes that Debezium wrote in JSON or with a registry; other topics as they are."""
    if (topic.format.codec and topic.registry is None) or "ConfluentProtobuf" in topic.format.codec:
        return topic
    changes = most(list(zip(topic.messages, topic.contents, strict=True)), _change)
    if not changes:
        return topic
    rows = [
        (message, {**change["after"], **_source_time(change)})
        for message, change in changes
        if change["after"] is not None
    ]
    if not rows:
        raise TopicNotInferable(
            f"{topic.name} contains only deletions of rows, so nothing can be inferred. Try again when it has rows."
        )
    contents = [row for _, row in rows]
    shape = _shape_of(contents)
    columns = topic.columns if topic.registry is None else topic.shape.fields["after"].fields
    shape.fields |= {name: replace(inner, count=len(rows)) for name, inner in columns.items()}
    if topic.registry is None:
        declared = replace(topic.format, codec="ps.codecs.Debezium()")
    else:
        declared = replace(topic.format, codec=f"ps.codecs.Debezium(values={topic.format.codec})")
    declared = replace(declared, comment="a record is a row; a ps.TableJoin deletes rows")
    return replace(
        topic,
        format=declared,
        messages=[message for message, _ in rows],
        contents=contents,
        shape=shape,
        time_path=(SOURCE_TIME,),
        others=topic.others + len(topic.messages) - len(changes),
    )


def _wrapped(_message: Message, content: Content) -> Content | None:
    """Return the content if Kafka Connect wrote its schema beside it."""
    return content if content.keys() == {"schema", "payload"} else None


def _change(_message: Message, content: Content | None) -> Content | None:
    """Return a change of a row that Debezium wrote. Connectors of document databases write documents as text, which are no rows."""
    is_change = (
        isinstance(content, dict)
        and {"op", "after", "source"} <= content.keys()
        and isinstance(content["after"], (dict, type(None)))
    )
    return content if is_change else None


def _source_time(change: Content) -> Content:
    source = change["source"]
    return {SOURCE_TIME: source["ts_ms"]} if isinstance(source, dict) and "ts_ms" in source else {}


_FIELDS = {
    "event_id": "id",
    "event_time": "time",
    "event_type": "type",
    "event_source": "source",
    "event_subject": "subject",
}
"""The fields of a record for the attributes of an event."""


def _cloud_events(name: str, events: Sequence[tuple[Message, _CloudEvent]]) -> RecognisedTopic:
    found = [event for _, event in events]
    kept = {name for name in ("source", "type") if len({event.attributes.get(name) for event in found}) == 1}
    mapped = {
        own: attribute
        for own, attribute in _FIELDS.items()
        if attribute not in kept and all(attribute in event.attributes and own not in event.data for event in found)
    }
    fields = ", ".join(f'"{own}": "{attribute}"' for own, attribute in mapped.items())
    constants = [f"{attribute}={quoted(str(found[0].attributes.get(attribute)))}" for attribute in sorted(kept)]
    if all(event.is_structured for event in found):
        constants.append("mode=ps.codecs.ContentMode.STRUCTURED")
    declared = Format(f"ps.codecs.CloudEvents({', '.join([f'{{{fields}}}', *constants])})")
    rows = [
        (message, {**{own: event.attributes[attribute] for own, attribute in mapped.items()}, **event.data})
        for message, event in events
    ]
    return replace(_topic(name, declared, rows), time_path=("event_time",) if "event_time" in mapped else None)


@dataclass(frozen=True)
class _CloudEvent:
    attributes: Content
    data: Content
    is_structured: bool


def _event(message: Message, content: Content) -> _CloudEvent | None:
    """Return the attributes and the data of an event, whose attributes are headers, or beside the data."""
    headers = {
        name.removeprefix("ce_"): (value or b"").decode(errors="replace")
        for name, value in message.headers() or ()
        if name.startswith("ce_")
    }
    if "specversion" in headers:
        return _CloudEvent(headers, content, is_structured=False)
    if "specversion" in content and isinstance(content.get("data"), dict):
        attributes = {name: value for name, value in content.items() if name != "data"}
        return _CloudEvent(attributes, content["data"], is_structured=True)
    return None


def _message_pack(name: str, values: Sequence[tuple[Message, bytes]]) -> RecognisedTopic | None:
    maps = most(values, _map)
    return _topic(name, Format("ps.codecs.MessagePack()"), maps) if maps else None


def _map(_message: Message, value: bytes) -> Content | None:
    """Return a map of MessagePack whose keys are names."""
    try:
        content = msgspec.msgpack.decode(value)
    except MALFORMED:
        return None
    return content if isinstance(content, dict) and all(isinstance(key, str) for key in content) else None


def _text(_message: Message, value: bytes) -> str | None:
    """Return a text; None if the value is something else."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return None if any(character < " " and character not in "\t\r\n" for character in text) else text


def _csv_lines(name: str, values: Sequence[tuple[Message, bytes]]) -> RecognisedTopic | None:
    """Return messages that are lines of CSV, perhaps with header lines."""
    found = lines_of(_with_texts(values))
    if found is None:
        return None
    option = f", in {counted(found.header_lines, 'message')}, is skipped" if found.header_lines else ""
    comment = f"the header line{option}" if option else "rename the columns; their order matters"
    declared = Format(found.codec, comment, is_positional=True)
    return replace(_topic(name, declared, found.pairs), skipped=found.header_lines)


def _csv_tables(name: str, values: Sequence[tuple[Message, bytes]]) -> RecognisedTopic | None:
    """Return messages of several lines of CSV, of which the first is a header line, as records with one list field."""
    found = tables_of(_with_texts(values))
    if found is None:
        return None
    comment = "let a ps.Stateless yield the elements of `rows`"
    return _topic(name, Format(found.codec, comment, is_positional=True), found.pairs)


def _with_texts(values: Sequence[tuple[Message, bytes]]) -> list[tuple[Message, str | None]]:
    return [(message, _text(message, value)) for message, value in values]


def _texts(name: str, values: Sequence[tuple[Message, bytes]]) -> RecognisedTopic | None:
    texts = [(message, {"text": text}) for message, text in most(values, _text)]
    if not texts:
        return None
    count = len(texts)
    # A text has this type also if all texts look like times.
    shape = Shape(count, {"object": count}, fields={"text": Shape(count, {"str": count})})
    return _topic(name, Format("ps.codecs.Text()", _known_encoding(texts[0][1]["text"].encode())), texts, shape)


_BRACKETS = frozenset({b"{", b"["})
_GLUE_HEADER = 18
"""The bytes before a value: the version, the compression and the id of the schema."""


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _in_base64(value: bytes) -> bytes:
    """Return the bytes that a value contains as base64; empty if it is something else."""
    try:
        return b64decode(value, validate=True)
    except ValueError:
        return b""


_ENCODINGS: Sequence[tuple[Callable[[bytes], bool], str]] = (
    (
        lambda value: value.startswith(b"\x1f\x8b"),
        "the values are compressed with gzip: decompress them in a codec of your own",
    ),
    (
        lambda value: value.startswith(b"\x28\xb5\x2f\xfd"),
        "the values are compressed with Zstandard: decompress them in a codec of your own",
    ),
    (
        lambda value: value.startswith((b"\xff\xfe", b"\xfe\xff")),
        "the values are UTF-16: let the producer write UTF-8, or decode them in a codec of your own",
    ),
    (
        lambda value: value[:1] in _BRACKETS and re.search(rb"[:,\[]\s*-?(NaN|Infinity)\b", value) is not None,
        "JSON has no NaN and no Infinity: let the producer write null",
    ),
    (
        lambda value: value.endswith(b"\0") and _json(value.rstrip(b"\0")) is not None,
        "JSON with a NUL byte at its end, as of a text in C: let the producer leave it out",
    ),
    (
        lambda value: value[:1] in _BRACKETS and not _is_utf8(value),
        "JSON that is not in UTF-8, perhaps in Latin-1: let the producer write UTF-8",
    ),
    (
        lambda value: value[:2] in {b"\x03\x00", b"\x03\x05"} and len(value) > _GLUE_HEADER,
        "the values begin as with the schema registry of AWS Glue, which no codec of penstock.codecs reads",
    ),
    (
        lambda value: _in_base64(value)[:1] in _BRACKETS,
        "JSON in base64: let the producer write the JSON itself",
    ),
    (
        lambda value: value.startswith((b"{'", b"[{'")),
        "this is the repr of a Python object: let the producer write json.dumps(…)",
    ),
    (
        lambda value: value[:1] == b'"' and value[1:2] in _BRACKETS,
        "JSON in a JSON string: the producer encodes it twice",
    ),
)
"""What probably surrounds or damages the format of values."""


def _known_encoding(value: bytes) -> str:
    """Return what probably surrounds or damages the format of a value; empty if that is unknown."""
    return next((meaning for is_encoded, meaning in _ENCODINGS if is_encoded(value)), "")


def _sentence(text: str) -> str:
    return f" {text[:1].upper()}{text[1:]}." if text else ""


def quoted(text: str) -> str:
    """Return a text as code. It comes from messages, so it can contain anything."""
    return msgspec.json.encode(text).decode()


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
