"""Deletions in table categories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .categories import AnyCategory


class Tombstone:
    """A message without a value in a table category: it deletes the row of its key.

    It has the key and the event time under the field names of the category, and no other field.

    Args:
        category: the category of the message.
        key: the key of the message.
        at_ms: when the message arrived, used as its event time (milliseconds since 1970, UTC).
    """

    __slots__ = ("_fields", "deleted_at_ms", "deleted_key")

    def __init__(self, category: AnyCategory, key: str, at_ms: int) -> None:
        self.deleted_key = key
        self.deleted_at_ms = at_ms
        self._fields = {category.key_attribute: key, category.times.attribute: at_ms}

    def __getattr__(self, name: str) -> Any:
        try:
            return self._fields[name]
        except KeyError:
            raise AttributeError(f"a tombstone has no field {name!r}") from None
