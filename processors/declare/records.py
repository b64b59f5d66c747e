"""Record types and their fields.

One declaration determines the codecs, the columns of the warehouse and the validation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, TypeAlias, get_args, get_origin

import msgspec
from msgspec import inspect as shapes

from ..errors import DeclarationError
from ..validation import is_class

EventTime: TypeAlias = Annotated[int, msgspec.Meta(extra={"unit": "ms since 1970, UTC"})]
"""The type of an event time: milliseconds since 1970, UTC."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """Base class of all records in categories. Records are typed, immutable and validated on decoding.

    A field with a default may be missing in older messages. Readers ignore unknown fields.

    Examples:
        >>> class Click(Record, frozen=True):
        ...     user: str
        ...     at: EventTime
        ...     page: str | None = None
        >>> Click("ann", 1_385_000_000_000)
        Click(user='ann', at=1385000000000, page=None)
    """


def fields_of(record: type[Record]) -> dict[str, shapes.Field]:
    """Return the fields of a record type in declaration order, by their names on the bus.

    Raises:
        DeclarationError: the type is not a Record, or an annotation cannot be resolved or decoded.
    """
    if not _is_record(record):
        raise DeclarationError(f"{record!r} is not a record type. Derive it from penstock.Record.")
    try:
        shape = shapes.type_info(record)
    except (TypeError, NameError) as error:
        raise DeclarationError(
            f"The field types of {record.__qualname__} are not supported: {error}. Use int, float, str, bool, bytes, datetime, date, Decimal, UUID, enums, literals, lists, dicts, other records, or "
            "one of these | None."
        ) from error
    if not isinstance(shape, shapes.StructType):
        raise DeclarationError(f"{record.__qualname__} is not a record type. Derive it from penstock.Record.")
    return {field.encode_name: field for field in shape.fields}


def _is_record(candidate: object) -> bool:
    return is_class(candidate) and issubclass(candidate, Record)


def type_name(kind: Any) -> str:
    """Return the name of a type without its module: `tuple[int, Seen]`."""
    if is_class(kind):
        return kind.__name__
    arguments = ", ".join(map(type_name, get_args(kind)))
    name = getattr(get_origin(kind), "__name__", None) or str(kind)
    return f"{name}[{arguments}]" if arguments else name


def primitive(shape: Any) -> Any:
    """Return the type of the values of an enum or a literal, a str or an int; any other type unchanged.

    Raises:
        DeclarationError: a literal contains both.
    """
    match shape:
        case shapes.EnumType():
            values = [member.value for member in shape.cls]
        case shapes.LiteralType():
            values = [value for value in shape.values if value is not None]
        case _:
            return shape
    kinds = set(map(type, values))
    if len(kinds) != 1:
        raise DeclarationError(
            f"A literal of strings and integers ({', '.join(map(repr, values))}) is not supported. Use one of the types."
        )
    return shapes.StrType() if kinds == {str} else shapes.IntType()


def plain(shape: Any) -> Any:
    """Return a field's type without annotations."""
    while isinstance(shape, shapes.Metadata):
        shape = shape.type
    return shape


def without_null(shape: Any) -> tuple[Any, bool]:
    """Split an optional type into the type of its values and whether it includes None.

    Raises:
        DeclarationError: a union of several types besides None, which columns and schemas cannot represent.
    """
    shape = plain(shape)
    if isinstance(shape, shapes.LiteralType):
        return shape, None in shape.values
    if not isinstance(shape, shapes.UnionType):
        return shape, False
    others = [plain(member) for member in shape.types if not isinstance(plain(member), shapes.NoneType)]
    if len(others) != 1:
        raise DeclarationError(
            f"A field with a union of {len(others)} types is not supported. Use one type, or one type | None."
        )
    return others[0], len(others) != len(shape.types)


def foreign_class(shape: Any) -> type | None:
    """Return the first class in a type, at any depth, that msgspec cannot encode; None if it can encode all of it."""
    found: set[type] = set()

    def search(inner: Any) -> type | None:
        match inner:
            case shapes.CustomType():
                return inner.cls
            case shapes.StructType() | shapes.DataclassType() | shapes.NamedTupleType() | shapes.TypedDictType():
                if inner.cls in found:
                    return None
                found.add(inner.cls)
                parts: Iterable[Any] = [field.type for field in inner.fields]
            case shapes.Metadata():
                parts = [inner.type]
            case shapes.UnionType():
                parts = inner.types
            case shapes.DictType():
                parts = [inner.key_type, inner.value_type]
            case shapes.TupleType():
                parts = inner.item_types
            case _:
                parts = [inner.item_type] if isinstance(inner, shapes.CollectionType) else []
        return next((one for one in map(search, parts) if one is not None), None)

    return search(shape)
