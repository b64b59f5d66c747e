"""Windows: which stretch of event time an event belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import NamedTuple, Protocol

from .errors import DeclarationError

EVER_START_MS = -(2**63)
EVER_END_MS = 2**63 - 1


class Window(NamedTuple):
    """A stretch of event time: from ``start`` up to, not including, ``end`` (milliseconds since 1970, UTC)."""

    start: int
    end: int


class Windowing(Protocol):
    """Assigns event times to windows. A window is known by its start."""

    def starts(self, event_times: Sequence[int]) -> list[int]:
        """Return, for each event time, the start of its window."""
        ...

    def window(self, start: int) -> Window:
        """Return the window that begins at `start`."""
        ...


@dataclass(frozen=True)
class Tumbling:
    """Windows of one length, side by side, counted from 1970-01-01T00:00Z.

    Raises:
        DeclarationError: a length below one millisecond or not a whole number of them.
    """

    length: timedelta

    def __post_init__(self) -> None:
        if self.length < timedelta(milliseconds=1) or self.length.microseconds % 1000:
            raise DeclarationError(
                f"A tumbling window of {self.length}: it needs a whole number of milliseconds, from 1."
            )

    @cached_property
    def length_ms(self) -> int:
        """The length in milliseconds."""
        return self.length // timedelta(milliseconds=1)

    def starts(self, event_times: Sequence[int]) -> list[int]:
        """Return, for each event time, the start of its window."""
        length = self.length_ms
        return [time - time % length for time in event_times]

    def window(self, start: int) -> Window:
        """Return the window that begins at `start`."""
        return Window(start, start + self.length_ms)


@dataclass(frozen=True)
class Ever:
    """One window that holds all of time."""

    def starts(self, event_times: Sequence[int]) -> list[int]:
        """Return the one start, for each event time."""
        return [EVER_START_MS] * len(event_times)

    def window(self, start: int) -> Window:  # noqa: ARG002 - there is only one
        """Return all of time."""
        return Window(EVER_START_MS, EVER_END_MS)
