"""The events that an operator processes at once, with their keys and event times."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..time import Times

if TYPE_CHECKING:
    from .categories import AnyCategory


class EventBatch(list[Any]):
    """Events of one category, in order. Their keys and event times are computed once; a slice is a plain list.

    Args:
        category: the category.
        events: its events, which do not change.
    """

    def __init__(self, category: AnyCategory, events: Sequence[Any]) -> None:
        super().__init__(events)
        self._category = category

    def of(self, events: Sequence[Any]) -> EventBatch:
        """Return other events of the category."""
        return EventBatch(self._category, events)

    def is_of(self, category: AnyCategory) -> bool:
        """Return whether these are events of a category."""
        return self._category is category

    @cached_property
    def keys(self) -> list[str]:
        """The key of each event."""
        return self._category.computed_keys_of(self)

    @cached_property
    def times(self) -> list[int]:
        """The event time of each event (milliseconds since 1970, UTC)."""
        try:
            times: list[int] = self.time_array.tolist()
        except OverflowError:
            return self._category.times.of(self)
        return times

    @cached_property
    def time_array(self) -> Times:
        """The same as an array.

        Raises:
            OverflowError: an event time has more than 64 bits.
        """
        return self._category.times.array_of(self)
