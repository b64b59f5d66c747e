"""Flat records: their fields are texts, numbers and booleans, so columns have exactly their values."""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple, cast

from msgspec import inspect as shapes

from ..models import is_model
from .metadata import metadata_of
from .records import RecordType, fields_of, is_union, members_of, plain, tag_of, without_null


class FlatType(IntEnum):
    """The type of a flat field."""

    TEXT = 0
    INTEGER = 1
    REAL = 2
    BOOLEAN = 3


class FlatField(NamedTuple):
    """A field of a flat record.

    Args:
        name: its name on the bus.
        attribute: its name in Python.
        type: the type of its values.
        is_optional: whether None is a value.
        is_null_if_missing: whether a record without the field has None there.
    """

    name: str
    attribute: str
    type: FlatType
    is_optional: bool
    is_null_if_missing: bool


_TYPES: dict[Any, FlatType] = {
    shapes.StrType: FlatType.TEXT,
    shapes.IntType: FlatType.INTEGER,
    shapes.FloatType: FlatType.REAL,
    shapes.BoolType: FlatType.BOOLEAN,
}
_CONSTRAINTS = ("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern")


def flat_fields(record: RecordType) -> tuple[FlatField, ...] | None:
    """Return the fields of a flat record type in declaration order; None for another type.

    A flat record has no constraints on values, no code of its own that runs on its creation, and a message contains all of its fields.
    """
    return _flat_fields(cast("Any", record))


@lru_cache(maxsize=1_000)
def _flat_fields(record: RecordType) -> tuple[FlatField, ...] | None:
    [member, *others] = members_of(record)
    if is_union(record) or others or is_model(member) or tag_of(member) or metadata_of(record):
        return None
    config = getattr(member, "__struct_config__", None)
    if hasattr(member, "__post_init__") or (
        config and (config.array_like or config.forbid_unknown_fields or config.omit_defaults)
    ):
        return None
    fields = [_flat_field(field) for field in fields_of(record).values()]
    found = tuple(field for field in fields if field is not None)
    return found if len(found) == len(fields) else None


def _flat_field(field: shapes.Field) -> FlatField | None:
    if isinstance(plain(field.type), shapes.UnionType) and len(plain(field.type).types) > 2:
        return None
    shape, is_optional = without_null(field.type)
    type_ = _TYPES.get(type(shape))
    if type_ is None or any(getattr(shape, name, None) is not None for name in _CONSTRAINTS):
        return None
    is_null_if_missing = is_optional and not field.required and field.default is None
    return FlatField(field.encode_name, field.name, type_, is_optional, is_null_if_missing)
