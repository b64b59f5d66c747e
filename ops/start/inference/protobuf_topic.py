"""A sample of Protobuf messages, read with their registered schemas."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtobufMessage

from ....processors.declare import Message
from ....transport.codecs import (
    PROTOBUF,
    Framed,
    RegistryClient,
    RegistrySchema,
    SchemaRegistry,
    UndecodableValue,
    descriptor_of,
    message_class,
    split_indexes,
)
from .protobuf_shape import content_of, shape_of_message
from .shape import Shape


@dataclass(frozen=True)
class ProtobufMessages:
    """The messages of one type.

    Args:
        schema_id: the newest schema of their type.
        imported: the files that this schema imports, without those of protoc.
        class_path: the class within the module that protoc generates, such as `Order` or `Order.Item`.
        shape: the shape of the type.
        contents: the fields of each message.
        other_types: the names of other types in the sample, with the numbers of their messages.
    """

    schema_id: int | str
    imported: Sequence[str]
    class_path: str
    shape: Shape
    contents: Sequence[tuple[Message, Mapping[str, Any]]]
    other_types: Sequence[str] = ()

    def instructions(self, module: str, registry: SchemaRegistry) -> Iterator[str]:
        """Yield comments: how to generate the module with the message class."""
        place = "guids" if isinstance(self.schema_id, str) else "ids"
        url = f"{registry.url.partition(',')[0]}/schemas/{place}/{self.schema_id}/schema"
        user = "" if registry.user is None else f"--user {registry.user} "
        yield "# Generate the message class from the registered schema:"
        yield f"#   curl {user}{url} > {module}.proto"
        if self.imported:
            yield f"#   Save the schemas that it imports, too: {', '.join(self.imported)}"
        yield f"#   protoc --python_out=. {' '.join([f'{module}.proto', *self.imported])}"


def sampled_messages(pairs: Sequence[tuple[Message, Framed]], registry: SchemaRegistry) -> ProtobufMessages | None:
    """Return the messages of the most frequent type; None if no message can be read.

    Raises:
        RegistryUnreachable: the registry does not answer.
    """
    client = RegistryClient(registry, PROTOBUF)

    @cache
    def class_of(schema_id: int | str, indexes: tuple[int, ...]) -> type[ProtobufMessage]:
        return message_class(client.find(schema_id), indexes)

    found: defaultdict[str, list[tuple[Message, int | str, ProtobufMessage]]] = defaultdict(list)
    for message, framed in pairs:
        try:
            indexes, value = _indexed(framed)
            one = class_of(framed.schema_id, indexes).FromString(value)
        except (UndecodableValue, DecodeError):
            continue
        found[descriptor_of(type(one)).full_name].append((message, framed.schema_id, one))
    if not found:
        return None
    messages = max(found.values(), key=len)
    _, schema_id, newest = max(messages, key=lambda each: str(each[1]).zfill(20))
    descriptor = descriptor_of(type(newest))
    package = descriptor.file.package
    return ProtobufMessages(
        schema_id,
        list(dict.fromkeys(_imports(client.find(schema_id)))),
        descriptor.full_name.removeprefix(f"{package}." if package else ""),
        shape_of_message(descriptor),
        [(message, content_of(each)) for message, _, each in messages],
        [f"{name} ({len(others):,})" for name, others in found.items() if others is not messages],
    )


def _imports(schema: RegistrySchema) -> Iterator[str]:
    for name, imported in schema.references:
        yield name
        yield from _imports(imported)


def _indexed(framed: Framed) -> tuple[tuple[int, ...], bytes]:
    """Return the message indexes and the bytes of a message."""
    if framed.in_header is None:
        return split_indexes(framed.value)
    return split_indexes(framed.in_header)[0], framed.value
