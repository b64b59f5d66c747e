"""Several record types in one topic: a field whose value determines which other fields a message has."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .shape import Shape

MOST_TYPES = 20
"""A field with more values is data, not a type."""
EVIDENCE = 3
"""The least number of messages of a type that count as evidence for the fields that it has, or lacks."""
_WORDS = {"type", "event", "kind", "action", "op", "operation", "tag", "variant", "subject"}
"""The last words of the names that such fields have."""


@dataclass(frozen=True)
class RecordTypes:
    """The record types of a topic.

    Args:
        field: the field that distinguishes them.
        shapes: the fields of each type, by the value of that field, which they do not contain.
    """

    field: str
    shapes: Mapping[str, Shape]


def find_record_types(contents: Sequence[Mapping[str, Any]]) -> RecordTypes | None:
    """Return the record types of messages; None if they have one type.

    A field with a suitable name distinguishes types if each of the fields that some messages lack is missing in all messages of a type, and
    some field is in all messages of one type and in none of another. Optional fields of one record type, such as a note, are missing anywhere.

    Args:
        contents: the fields of each message.
    """
    names = dict.fromkeys(name for content in contents for name in content)
    candidates = filter(None, (_types_by(name, contents) for name in names if _is_name_of_type(name)))
    return max(candidates, key=lambda types: len(types.shapes), default=None)


def _is_name_of_type(name: str) -> bool:
    words = re.findall(r"[a-z]+|[A-Z][a-z]*", name)
    return bool(words) and words[-1].lower() in _WORDS


def _types_by(name: str, contents: Sequence[Mapping[str, Any]]) -> RecordTypes | None:
    tags = [content.get(name) for content in contents]
    if not all(isinstance(tag, str) and tag for tag in tags):
        return None
    shapes: dict[str, Shape] = {}
    for tag, content in zip(tags, contents, strict=True):
        shapes.setdefault(str(tag), Shape()).add({field: value for field, value in content.items() if field != name})
    found = RecordTypes(name, shapes)
    return found if 1 < len(shapes) <= MOST_TYPES and _distinguishes(found) else None


def _distinguishes(types: RecordTypes) -> bool:
    shapes = types.shapes.values()
    partial = [
        [(shape.fields[name].count if name in shape.fields else 0, shape.count) for shape in shapes]
        for name in dict.fromkeys(name for shape in shapes for name in shape.fields)
    ]
    partial = [counts for counts in partial if any(present < count for present, count in counts)]
    if not all(any(present == 0 for present, _ in counts) for counts in partial):
        return False
    return any(
        any(present == count >= EVIDENCE for present, count in counts)
        and any(present == 0 and count >= EVIDENCE for present, count in counts)
        for counts in partial
    )
