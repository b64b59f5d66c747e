"""Changes of rows that lack the values of unchanged columns."""

from __future__ import annotations

from typing import Any

from .records import replace_fields


class RowUpdate:
    """A new version of a row in which some fields keep the values that the row had before.

    It has the fields of its record. The unchanged ones have no meaning before `onto`.

    Args:
        record: the row.
        unchanged: the names in Python of the unchanged fields.
    """

    __slots__ = ("record", "unchanged")

    def __init__(self, record: Any, unchanged: tuple[str, ...]) -> None:
        self.record = record
        self.unchanged = unchanged

    def __getattr__(self, name: str) -> Any:
        return getattr(self.record, name)

    def onto(self, earlier: Any) -> Any:
        """Return the row, with the unchanged fields of its earlier version.

        Raises:
            ValueError: there is no earlier version.
        """
        if earlier is None:
            raise ValueError(self.reason)
        return replace_fields(self.record, {name: getattr(earlier, name) for name in self.unchanged})

    @property
    def reason(self) -> str:
        """Why the row alone is no event."""
        names = ", ".join(f"`{name}`" for name in self.unchanged)
        return (
            f"the change lacks the unchanged value of {names}: the database sends large values (TOAST) only when they change, and there is no earlier "
            "row. Run `ALTER TABLE … REPLICA IDENTITY FULL`, read the topic as a table from its first row, or leave the field out of the record"
        )
