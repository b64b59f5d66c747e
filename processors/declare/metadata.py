"""Metadata fields: fields of a record that contain a message's key, headers, timestamp or position instead of a part of its value.

    class Click(ps.Record, frozen=True):
        page: str                                             # in the value
        at: Annotated[int, ps.metadata.CreateTime]            # of the message
        source: Annotated[str | None, ps.metadata.Header("source")] = None

They are filled when a message is decoded. From then on they are ordinary fields: in joins, windows, state, the archive and Spark. When
a record is written, `Header` and `Headers` fields become headers, and the other metadata fields are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import inspect as shapes

from ..errors import DeclarationError
from ..models import is_model
from .codecs import Payload
from .composite_keys import KeyPart
from .records import AnyRecord, Record, RecordType, fields_of, is_union, members_of, plain, type_name, without_null

if TYPE_CHECKING:
    from pydantic import BaseModel


class MessagePart(Enum):
    """A part of a message besides its value."""

    KEY = "Key"
    TIMESTAMP = "Timestamp"
    CREATE_TIME = "CreateTime"
    APPEND_TIME = "AppendTime"
    PARTITION = "Partition"
    OFFSET = "Offset"
    HEADERS = "Headers"


Key: Final = MessagePart.KEY
"""The key of the message: `str` or `int`, by the `key_codec` of the category, or the `bytes`; for a field of a key of several, its part of the key.
Without None, a message without a key does not decode."""
Timestamp: Final = MessagePart.TIMESTAMP
"""The timestamp of the message, the producer's or the broker's: `int` (milliseconds since 1970, UTC) or `datetime`."""
CreateTime: Final = MessagePart.CREATE_TIME
"""The producer's timestamp: `int` (milliseconds since 1970, UTC) or `datetime`. A message with the broker's timestamp does not decode."""
AppendTime: Final = MessagePart.APPEND_TIME
"""The broker's timestamp: `int` (milliseconds since 1970, UTC) or `datetime`. A message with the producer's timestamp does not decode."""
Partition: Final = MessagePart.PARTITION
"""The number of the partition, which is the bucket: `int`."""
Offset: Final = MessagePart.OFFSET
"""The offset in the partition: `int`."""
Headers: Final = MessagePart.HEADERS
"""All headers: `dict[str, bytes]` or `dict[str, bytes | None]`. Of repeated names, the last counts. Without None, null headers are omitted."""


@dataclass(frozen=True)
class Header:
    """The last header of a name: `str` (UTF-8) or `bytes`. A missing or null header is the field's default, or None where the type permits it.

    Args:
        name: the name of the header.
    """

    name: str


_POSITIONS = (MessagePart.PARTITION, MessagePart.OFFSET)

Source = MessagePart | Header
"""The part of a message that fills a field."""


@lru_cache(maxsize=1_000)
def metadata_of(record: RecordType) -> dict[str, Source]:
    """Return the metadata fields of a record type and their sources, by the fields' names in Python.

    Raises:
        DeclarationError: a field has several sources, or a type that its source cannot fill; or a type of a union has metadata fields.
    """
    members = members_of(record)
    if not is_union(record):
        return _metadata_of_class(members[0])
    for member in members:
        fields = _metadata_of_class(member)
        if fields:
            raise DeclarationError(
                f"{member.__name__} in the union {type_name(record)} has metadata fields ({', '.join(fields)}). They are only supported in categories with one record "
                "type. Declare one record type with a field for the type and optional fields, or remove them."
            )
    return {}


def _metadata_of_class(record: type[AnyRecord]) -> dict[str, Source]:
    shapes_by_name = {field.name: field for field in fields_of(record).values()}
    if is_model(record):
        _expect_no_metadata(record)
        return {}
    found: dict[str, Source] = {}
    for name, hint in get_type_hints(record, include_extras=True).items():
        sources = [source for source in _extras(hint) if isinstance(source, (MessagePart, Header))]
        if len(sources) > 1:
            raise DeclarationError(f"{record.__name__}.{name} has several sources: {sources}. Declare one.")
        if sources and name in shapes_by_name:
            _expect_type(record, shapes_by_name[name], sources[0])
            found[name] = sources[0]
    return found


def _expect_no_metadata(model: type[BaseModel]) -> None:
    """Raise DeclarationError for a metadata field of a pydantic model: pydantic would require it in the value."""
    for name, field in model.__pydantic_fields__.items():
        if any(isinstance(extra, (MessagePart, Header)) for extra in field.metadata):
            raise DeclarationError(
                f"{model.__qualname__}.{name} is a metadata field, which pydantic models cannot have. Declare the record as a penstock.Record or a dataclass."
            )


def _extras(hint: Any) -> tuple[Any, ...]:
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def _expect_type(record: type[AnyRecord], field: shapes.Field, source: Source) -> None:
    shape = plain(without_null(field.type)[0])
    kinds: tuple[type[shapes.Type], ...]
    if source is MessagePart.KEY:
        kinds = (shapes.StrType, shapes.IntType, shapes.BytesType)
        fits, wanted = isinstance(shape, kinds), "str, int or bytes"
    elif isinstance(source, Header):
        fits, wanted = isinstance(shape, (shapes.StrType, shapes.BytesType)), "str or bytes"
    elif source is MessagePart.HEADERS:
        fits, wanted = _is_header_dict(shape), "dict[str, bytes] or dict[str, bytes | None]"
    else:
        kinds = (shapes.IntType,) if source in _POSITIONS else (shapes.IntType, shapes.DateTimeType)
        fits, wanted = isinstance(shape, kinds), "int" if source in _POSITIONS else "int or datetime"
    if not fits:
        raise DeclarationError(
            f"{record.__name__}.{field.name} has the wrong type for {source_name(source)}. Declare {wanted}."
        )


def _is_header_dict(shape: Any) -> bool:
    return (
        isinstance(shape, shapes.DictType)
        and isinstance(plain(shape.key_type), shapes.StrType)
        and isinstance(without_null(shape.value_type)[0], shapes.BytesType)
    )


def source_name(source: Source) -> str:
    """Return the name of a source, as declared: `Header('trace')`."""
    return repr(source) if isinstance(source, Header) else source.value


def payload_of(
    category: str, record: RecordType, event_time: str | None, key: str | None, key_parts: tuple[KeyPart, ...]
) -> Payload:
    """Return the values of a category's messages: its records without metadata fields.

    Args:
        category: the name of the category.
        record: the record type of the category.
        event_time: the dotted path, in names on the bus, of the field with the event time; None if no one field contains it.
        key: the name on the bus of the key field; None if no one field contains it.
        key_parts: the fields of a key of several; empty for other keys.
    """
    values = cast("type[AnyRecord]", record) if is_union(record) else value_type(members_of(record)[0])
    fields = fields_of(values)
    has_time = event_time is not None and (event_time in fields or event_time.split(".", maxsplit=1)[0] in fields)
    return Payload(category, values, event_time if has_time else None, key if key in fields else None, key_parts)


@lru_cache(maxsize=1_000)
def value_type(record: type[AnyRecord]) -> type[AnyRecord]:
    """Return a record type without its metadata fields; the record type itself if it has none."""
    metadata = metadata_of(record)
    if not metadata:
        return record
    hints = get_type_hints(record, include_extras=True)
    fields = [
        (field.name, hints[field.name], _field(field))
        for field in fields_of(record).values()
        if field.name not in metadata
    ]
    values: Any = msgspec.defstruct(
        record.__name__,
        fields,
        bases=(Record,),
        module=record.__module__,
        frozen=True,
        kw_only=True,
        gc=False,
        **_options_of(record),
    )
    return cast("type[AnyRecord]", values)


def _options_of(record: type[AnyRecord]) -> dict[str, Any]:
    """Return the options of a struct that determine its encoding; a dataclass has none."""
    if not issubclass(record, Record):
        return {}
    config = record.__struct_config__
    return {name: getattr(config, name) for name in ("omit_defaults", "forbid_unknown_fields", "tag", "tag_field")}


def _field(field: shapes.Field) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return msgspec.field(name=field.encode_name, default_factory=field.default_factory)
    if field.default is not msgspec.NODEFAULT:
        return msgspec.field(name=field.encode_name, default=field.default)
    return msgspec.field(name=field.encode_name)
