"""What a JSON Schema permits beyond the examples of its values: missing fields and null."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ....transport.codecs import RegistrySchema
from .shape import Shape

_COMBINED = ("allOf", "oneOf", "anyOf")
_DEPTH = 20
"""The depth at which schemas that refer to themselves are no longer followed."""


class _Schema(NamedTuple):
    """A part of a schema.

    Args:
        content: the part.
        stored: the whole schema, which it may refer to.
    """

    content: Any
    stored: RegistrySchema

    @property
    def has_null(self) -> bool:
        """Whether null is one of its types."""
        kind = self.content.get("type")
        return "null" in (kind if isinstance(kind, list) else [kind])

    def requires(self, name: str) -> bool:
        """Return whether its objects have a field."""
        required = self.content.get("required")
        return isinstance(required, list) and name in required

    def inner(self, content: Any) -> _Schema:
        """Return a part of the same schema."""
        return _Schema(content, self.stored)


def permit(shape: Shape, stored: RegistrySchema) -> None:
    """Change the shape of examples to what their schema permits, at every depth.

    Args:
        shape: the shape.
        stored: the schema, with the schemas that it refers to.
    """
    _permit(shape, list(_parts(_Schema(msgspec.json.decode(stored.text), stored))))


def _permit(shape: Shape, parts: Sequence[_Schema]) -> None:
    if any(part.has_null for part in parts):
        shape.make_optional()
    for name, inner in shape.fields.items():
        declaring = [part for part in parts if name in part.content.get("properties", {})]
        if not declaring or not all(part.requires(name) for part in declaring):
            inner.make_optional()
        _permit(inner, [one for part in declaring for one in _parts(part.inner(part.content["properties"][name]))])
    if shape.items is not None:
        _permit(shape.items, [one for part in parts for one in _parts(part.inner(part.content.get("items")))])


def _parts(schema: _Schema, depth: int = 0) -> Iterator[_Schema]:
    """Yield the parts of a schema that describe the same value: itself, and the schemas that it refers to or combines."""
    if not isinstance(schema.content, dict) or depth > _DEPTH:
        return
    yield schema
    if isinstance(schema.content.get("$ref"), str):
        yield from _parts(_referenced(schema, schema.content["$ref"]), depth + 1)
    for combined in _COMBINED:
        for one in schema.content.get(combined, ()):
            yield from _parts(schema.inner(one), depth + 1)


def _referenced(schema: _Schema, reference: str) -> _Schema:
    """Return the part with this reference, such as `#/definitions/line` or `line.json`; an empty one if it is unknown."""
    document, _, pointer = reference.partition("#")
    stored = dict(schema.stored.references).get(document) if document else schema.stored
    if stored is None:
        return schema.inner(None)
    content: Any = msgspec.json.decode(stored.text)
    for name in pointer.split("/")[1:]:
        content = content.get(name) if isinstance(content, Mapping) else None
    return _Schema(content, stored)
