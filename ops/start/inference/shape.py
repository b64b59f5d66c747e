"""The types of values, inferred from examples."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
MAP_KEYS = 30
"""Objects with more distinct names than this are maps, if no name is in most of them."""
MAP_IDS = 5
"""So many distinct names are ids, if each contains a digit."""
_DIGIT = re.compile(r"\d")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


@dataclass
class Shape:
    """The values of one place in documents, such as JSON. Add examples with `add`.

    Attributes:
        count: the number of values.
        kinds: how many values there are of each kind: null, bool, int, big (beyond 64 bits), float, decimal, str, bytes, date, list, object and
            map; and of the special strings datetime, naive (a datetime without offset) and uuid.
        items: the items of lists, or the values of maps.
        fields: the values by name, of objects.
        examples: the first few scalars.
        note: a comment for readers.
    """

    count: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    items: Shape | None = None
    fields: dict[str, Shape] = field(default_factory=dict)
    examples: list[Any] = field(default_factory=list)
    note: str = ""

    def add(self, value: Any) -> None:
        """Add an example."""
        self.count += 1
        kind = kind_of(value)
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        if kind == "list":
            self.items = self.items or Shape()
            for item in value:
                self.items.add(item)
        elif kind == "object":
            for name, inner in value.items():
                self.fields.setdefault(name, Shape()).add(inner)
        elif len(self.examples) < _EXAMPLES:
            self.examples.append(value)

    def make_optional(self) -> None:
        """Let the place be empty, although no example is."""
        self.kinds.setdefault("null", 0)

    @property
    def not_null(self) -> frozenset[str]:
        """The kinds of the values other than null."""
        return frozenset(self.kinds) - {"null"}

    @property
    def is_map(self) -> bool:
        """Whether the names of the objects are data rather than fields: many, or some ids whose values have one type; none in most objects."""
        objects = self.kinds.get("object", 0)
        if len(self.fields) < MAP_IDS or any(shape.count > objects / 2 for shape in self.fields.values()):
            return False
        are_ids = all(map(_DIGIT.search, self.fields)) and len({each.not_null for each in self.fields.values()}) == 1
        return are_ids or len(self.fields) > MAP_KEYS


_EXAMPLES = 20
_KINDS = {
    type(None): "null",
    bool: "bool",
    int: "int",
    float: "float",
    Decimal: "decimal",
    bytes: "bytes",
    date: "date",
    UUID: "uuid",
    list: "list",
    dict: "object",
}


def kind_of(value: Any) -> str:
    """Return the kind of a value, as in `Shape.kinds`."""
    if isinstance(value, str):
        return _kind_of_text(value)
    if type(value) is int and not INT_MIN <= value <= INT_MAX:
        return "big"
    if isinstance(value, datetime):
        return "naive" if value.tzinfo is None else "datetime"
    return _KINDS.get(type(value), type(value).__name__)


def _kind_of_text(text: str) -> str:
    if _UUID.fullmatch(text) and str(UUID(text)) == text.lower():
        return "uuid"
    time = time_in(text)
    if time is None:
        return "str"
    return "naive" if time.tzinfo is None else "datetime"


def time_in(text: str) -> datetime | None:
    """Return the time of an ISO-8601 text with date and time; None for other texts, and for forms that a datetime field does not decode."""
    if len(text) < len("2026-01-01T00:00") or text[10:11] not in {"T", " "}:
        return None
    try:
        time = datetime.fromisoformat(text)
        return time if time.tzinfo is None else msgspec.convert(text, datetime)
    except (ValueError, msgspec.ValidationError):
        return None


def merged(one: Shape, other: Shape) -> Shape:
    """Return the shape of the values of both."""
    kinds = {kind: one.kinds.get(kind, 0) + other.kinds.get(kind, 0) for kind in one.kinds | other.kinds}
    items = merged(one.items or Shape(), other.items or Shape()) if one.items or other.items else None
    names = one.fields | other.fields
    fields = {name: merged(one.fields.get(name, Shape()), other.fields.get(name, Shape())) for name in names}
    return Shape(
        one.count + other.count, kinds, items, fields, [*one.examples, *other.examples], other.note or one.note
    )
