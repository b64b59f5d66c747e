"""Records: the typed values that travel in categories, and how their fields are looked at.

A record is declared once; the codecs, the warehouse's columns and the checks before the first event all follow
from its type.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias, get_args, get_origin

import msgspec
from msgspec import inspect as shapes

from ..errors import DeclarationError
from ..validation import is_class

EventTime: TypeAlias = Annotated[int, msgspec.Meta(extra={"unit": "ms since 1970, UTC"})]
"""When an event happened: milliseconds since 1970, UTC."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """Base of everything that travels in a category: typed, validated when it is decoded.

    Records are values: they never change. A field with a default may be missing in older messages; fields that a
    reader does not know are ignored.

    The garbage collector does not look at records: what is frozen when it is made can hold nothing that holds it.
    """


def fields_of(record: type[Record]) -> dict[str, shapes.Field]:
    """Return a record type's fields in order of declaration, by the name they carry on the bus.

    Raises:
        DeclarationError: not a subclass of Record, or an annotation that cannot be resolved or decoded.
    """
    if not _is_record(record):
        raise DeclarationError(f"{record!r} is not a record type: derive it from penstock.Record.")
    try:
        shape = shapes.type_info(record)
    except (TypeError, NameError) as error:
        raise DeclarationError(
            f"The fields of {record.__qualname__} cannot be understood: {error}. Use types that msgspec knows (int, "
            "float, str, bool, bytes, lists, dicts, other records, or one of these | None)."
        ) from error
    if not isinstance(shape, shapes.StructType):
        raise DeclarationError(f"{record.__qualname__} is not a record type: derive it from penstock.Record.")
    return {field.encode_name: field for field in shape.fields}


def _is_record(candidate: object) -> bool:
    return is_class(candidate) and issubclass(candidate, Record)


def type_name(kind: Any) -> str:
    """Return what a type is called, wherever it is declared: `tuple[int, Seen]`."""
    if is_class(kind):
        return kind.__name__
    arguments = ", ".join(map(type_name, get_args(kind)))
    name = getattr(get_origin(kind), "__name__", None) or str(kind)
    return f"{name}[{arguments}]" if arguments else name


def plain(shape: Any) -> Any:
    """Return a field's type without the annotations around it."""
    while isinstance(shape, shapes.Metadata):
        shape = shape.type
    return shape


def without_null(shape: Any) -> tuple[Any, bool]:
    """Split an optional type: the type of its values, and whether null is one of them.

    Raises:
        DeclarationError: a union of more than one type and null, which no column or schema can hold.
    """
    shape = plain(shape)
    if not isinstance(shape, shapes.UnionType):
        return shape, False
    others = [plain(member) for member in shape.types if not isinstance(plain(member), shapes.NoneType)]
    if len(others) != 1:
        raise DeclarationError(
            f"A union of {len(others)} types cannot travel in a category: use one type, or one type | None."
        )
    return others[0], len(others) != len(shape.types)
