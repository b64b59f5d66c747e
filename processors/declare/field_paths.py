"""Fields of records by their Python names or their names on the bus, also in nested records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec import inspect as shapes

from ..errors import DeclarationError
from ..validation import did_you_mean
from .records import RECORD_SHAPES, RecordType, fields_of, type_name, without_null


class FieldPath(NamedTuple):
    """A field of a record, or of a record nested in it.

    Args:
        names: the names on the bus, from the outermost record to the field.
        attribute: the dotted path of the Python names.
        shape: the type of the field, without None.
        optional: whether the field or a record on its path may be None.
    """

    names: tuple[str, ...]
    attribute: str
    shape: Any
    optional: bool

    @property
    def name(self) -> str:
        """The dotted path of the names on the bus."""
        return ".".join(self.names)


def find_field(category: str, role: str, record: RecordType, path: str) -> FieldPath:
    """Return a field by its dotted path of Python names or names on the bus.

    Args:
        category: the category, for errors.
        role: the declared argument, for errors.
        record: the type of the category's records.
        path: the path.

    Raises:
        DeclarationError: there is no such field, or the name means two fields.
    """
    fields, owner = list(fields_of(record).values()), type_name(record)
    if field := _named(category, role, fields, path):
        return _step([], field)
    found: list[shapes.Field] = []
    rest = path.split(".")
    for number, name in enumerate(rest):
        field = _named(category, role, fields, name)
        if field is None:
            declared = f"`{role}={path!r}`" + (f": {name!r}" if len(rest) > 1 else "")
            raise _unknown(category, declared, name, owner, fields)
        found.append(field)
        shape, _ = without_null(field.type)
        if number < len(rest) - 1:
            if not isinstance(shape, RECORD_SHAPES):
                raise DeclarationError(
                    f"Category {category}: `{role}={path!r}`: {name!r} of {owner} is not a record, so it has no fields. Declare a function of the record."
                )
            fields, owner = list(shape.fields), shape.cls.__name__
    return _step(found[:-1], found[-1])


def _unknown(category: str, declared: str, name: str, owner: str, fields: list[shapes.Field]) -> DeclarationError:
    """Return the error for an unknown field; `declared` is the argument that names it."""
    known = [field.encode_name for field in fields]
    both = [either for field in fields for either in (field.encode_name, field.name)]
    return DeclarationError(
        f"Category {category}: {declared} is not a field of {owner}, which has only the fields "
        f"{', '.join(known)}.{did_you_mean(name, both)}"
    )


def _named(category: str, role: str, fields: list[shapes.Field], name: str) -> shapes.Field | None:
    """Return the field with a Python name or a name on the bus."""
    found = [field for field in fields if name in (field.name, field.encode_name)]
    if len(found) > 1:
        raise DeclarationError(
            f"Category {category}: `{role}={name!r}` names two fields: {found[0].name!r}, which is {found[0].encode_name!r} on the bus, and "
            f"{found[1].name!r}, which is {found[1].encode_name!r} there. Rename one of them."
        )
    return found[0] if found else None


def _step(outer: Sequence[shapes.Field], field: shapes.Field) -> FieldPath:
    path = (*outer, field)
    shape, _ = without_null(field.type)
    return FieldPath(
        tuple(step.encode_name for step in path),
        ".".join(step.name for step in path),
        shape,
        any(without_null(step.type)[1] for step in path),
    )
