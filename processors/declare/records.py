"""Record types and their fields.

One declaration determines the codecs, the columns of the warehouse and the validation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, ClassVar, Protocol, TypeAlias, Union, cast, get_args, get_origin

import msgspec
from msgspec import inspect as shapes

from ..errors import DeclarationError
from ..models import ModelRecord, is_model, shape_of
from ..validation import is_class
from ..wording import as_code

EVENT_TIME_EXTRA = {"unit": "ms since 1970, UTC"}
"""The metadata of an `EventTime` in the shape of its field."""
EventTime: TypeAlias = Annotated[int, msgspec.Meta(extra=EVENT_TIME_EXTRA)]
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


class DataclassRecord(Protocol):
    """An instance of a standard dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


AnyRecord: TypeAlias = Record | DataclassRecord | ModelRecord
"""A record of a category: a `Record`, or an instance of a standard dataclass or of a pydantic model."""
RecordType: TypeAlias = type[AnyRecord] | UnionType
"""The type of the records in a category: a class, or a union of several `Record` classes with tags."""
RECORD_SHAPES = (shapes.StructType, shapes.DataclassType)
"""The shapes of types with named fields."""


def members_of(record: RecordType) -> tuple[type[AnyRecord], ...]:
    """Return the classes of a union in declaration order; a class itself otherwise."""
    return get_args(record) if is_union(record) else (cast("type[AnyRecord]", record),)


def is_union(record: object) -> bool:
    """Return whether a record type is a union."""
    return get_origin(record) in (UnionType, Union)


def fields_of(record: RecordType) -> dict[str, shapes.Field]:
    """Return the fields of a record type in declaration order, by their names on the bus; without the tag of a union's types.

    In a union, a field that some types lack is optional.

    Raises:
        DeclarationError: the type is no Record, dataclass or pydantic model that can be decoded, an annotation cannot be resolved or decoded, or the types
            of a union do not fit together.
    """
    members = members_of(record)
    return fields_of_union(members) if is_union(record) else _fields_of_class(members[0])


def _fields_of_class(record: type[AnyRecord]) -> dict[str, shapes.Field]:
    _expect_record(record)
    try:
        shape = shape_of(record)
    except (TypeError, NameError) as error:
        raise DeclarationError(
            f"The field types of {record.__qualname__} are not supported: {error}. Use int, float, str, bool, bytes, datetime, date, Decimal, UUID, enums, literals, lists, dicts, other records, or "
            "one of these | None."
        ) from error
    if not isinstance(shape, RECORD_SHAPES):
        raise DeclarationError(f"{record.__qualname__} is not a record type. {_USE_RECORD}")
    for field in () if is_model(record) else shape.fields:
        _expect_no_model(record, field)
    return {field.encode_name: field for field in shape.fields}


def _expect_no_model(record: type[AnyRecord], field: shapes.Field) -> None:
    """Raise DeclarationError for a model in a Record or a dataclass: pydantic would not validate it."""
    model = class_within(field.type, is_model)
    if model is not None:
        raise DeclarationError(
            f"{record.__qualname__}.{field.name} contains the pydantic model {model.__qualname__}, which would not be validated by pydantic. Declare "
            f"{record.__qualname__} as a model, too, or {model.__qualname__} as a dataclass."
        )


def tag_of(record: type[AnyRecord]) -> tuple[str, str | int] | None:
    """Return the name of a record type's tag field and its tag; None without a tag."""
    if not (is_class(record) and issubclass(record, Record)):
        return None
    config = record.__struct_config__
    return None if config.tag is None or config.tag_field is None else (config.tag_field, config.tag)


def fields_of_union(members: Sequence[type[AnyRecord]]) -> dict[str, shapes.Field]:
    """Return the fields of several record types, as `fields_of` does."""
    _expect_tags(members)
    found: dict[str, list[shapes.Field]] = {}
    for member in members:
        for name, field in _fields_of_class(member).items():
            found.setdefault(name, []).append(field)
    return {name: _merged_field(name, fields, members) for name, fields in found.items()}


def _expect_tags(members: Sequence[type[AnyRecord]]) -> None:
    names = ", ".join(map(type_name, members))
    tags = [tag_of(member) for member in members]
    if None in tags:
        lacking = type_name(members[tags.index(None)])
        raise DeclarationError(
            f"{lacking} in a union of record types ({names}) has no tag, so messages of these types could not be distinguished. Declare each as a "
            f'penstock.Record with the value of its type field: `class {lacking}(penstock.Record, frozen=True, tag_field="type", tag="…")`.'
        )
    if len({tag[0] for tag in tags if tag}) > 1:
        raise DeclarationError(
            f"The record types {names} have different tag fields. Declare the same `tag_field` for each of them."
        )
    if len({tag for tag in tags if tag}) < len(tags):
        raise DeclarationError(
            f"Two of the record types {names} have the same tag. Declare another `tag` for one of them."
        )


def _merged_field(name: str, fields: Sequence[shapes.Field], members: Sequence[type[AnyRecord]]) -> shapes.Field:
    first = fields[0]
    kinds = [without_null(field.type)[0] for field in fields]
    if any(kind != kinds[0] for kind in kinds) or any(field.name != first.name for field in fields):
        raise DeclarationError(
            f"The field {name!r} has several types or Python names in {', '.join(map(type_name, members))}. Readers of the category need one column for "
            "it. Declare the same in each of them, or give one of the fields another name."
        )
    if len(fields) == len(members) and all(field == first for field in fields):
        return first
    shape = shapes.UnionType((kinds[0], shapes.NoneType()))
    return shapes.Field(first.name, name, shape, required=False, default=None)


_USE_RECORD = "Derive it from penstock.Record or pydantic.BaseModel, or declare it as a standard dataclass."


def _expect_record(candidate: object) -> None:
    """Raise DeclarationError for anything but a Record, a model, or a dataclass that msgspec decodes as its constructor would."""
    if is_class(candidate) and (issubclass(candidate, Record) or is_model(candidate)):
        return
    if not is_class(candidate):
        raise DeclarationError(f"{as_code(candidate)} is not a record type: it is no class. {_USE_RECORD}")
    reason = _refusal_of(candidate)
    if reason is not None:
        raise DeclarationError(f"{candidate.__qualname__} is not a record type: {reason}")


def _refusal_of(candidate: type) -> str | None:
    """Return why a class that is no Record is no record type, and the remedy; None if it is a suitable dataclass."""
    if hasattr(candidate, "__pydantic_fields__") or hasattr(candidate, "__pydantic_validator__"):
        return f"its values would not be validated by pydantic, because msgspec decodes the messages of dataclasses. {_USE_RECORD}"
    if not dataclasses.is_dataclass(candidate):
        return f"it is neither a Record nor a dataclass nor a pydantic model. {_USE_RECORD}"
    if "__dataclass_fields__" not in vars(candidate):
        return "its base is a dataclass, but the class is not. Decorate it with @dataclass, too."
    if not candidate.__dataclass_params__.init:  # type: ignore[attr-defined]  # typeshed omits it
        return "its constructor is not the one of dataclasses (`init=False`). Omit `init=False`."
    computed = [field.name for field in dataclasses.fields(candidate) if not field.init]
    if computed:
        return (
            f"its field {computed[0]!r} is no argument of the constructor (`init=False`), so no message could contain it. "
            "Declare it as a property."
        )
    return None


def replace_fields(record: Any, changes: Mapping[str, Any]) -> Any:
    """Return a copy of a record with other values in some fields, by their names in Python."""
    if isinstance(record, msgspec.Struct):
        return msgspec.structs.replace(record, **changes)
    if is_model(type(record)):
        return record.model_copy(update=changes)
    return dataclasses.replace(record, **changes)


def type_name(kind: Any) -> str:
    """Return the name of a type without its module: `tuple[int, Seen]`, `Placed | Paid`."""
    if is_class(kind):
        return kind.__name__
    if is_union(kind):
        return " | ".join(map(type_name, get_args(kind)))
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


def class_within(shape: Any, is_sought: Callable[[type], bool]) -> type | None:
    """Return the first class in a type, at any depth, that msgspec does not know itself and that satisfies a condition; None if there is none."""
    found: set[type] = set()

    def search(inner: Any) -> type | None:
        if isinstance(inner, shapes.CustomType):
            return inner.cls if is_sought(inner.cls) else None
        if isinstance(inner, _WITH_FIELDS):
            if inner.cls in found:
                return None
            found.add(inner.cls)
        return next((one for one in map(search, parts_of(inner)) if one is not None), None)

    return search(shape)


_WITH_FIELDS = (*RECORD_SHAPES, shapes.NamedTupleType, shapes.TypedDictType)


def parts_of(shape: Any) -> Iterable[Any]:
    """Return the types directly in a type: of its fields, its elements, or its members."""
    match shape:
        case shapes.StructType() | shapes.DataclassType() | shapes.NamedTupleType() | shapes.TypedDictType():
            return [field.type for field in shape.fields]
        case shapes.Metadata():
            return [shape.type]
        case shapes.UnionType():
            return shape.types
        case shapes.DictType():
            return [shape.key_type, shape.value_type]
        case shapes.TupleType():
            return shape.item_types
        case _:
            return [shape.item_type] if isinstance(shape, shapes.CollectionType) else []
