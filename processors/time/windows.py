"""Windows: which stretch of event time an event belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import NamedTuple, Protocol

from ..errors import DeclarationError

EVER_START_MS = -(2**63)
EVER_END_MS = 2**63 - 1
MILLISECOND = timedelta(milliseconds=1)


class Window(NamedTuple):
    """A stretch of event time: from ``start`` up to, not including, ``end`` (milliseconds since 1970, UTC)."""

    start: int
    end: int


class WindowAssignment(NamedTuple):
    """Which events lie in which windows: one pair for each event and window, those of one event side by side.

    Args:
        rows: the event's index.
        starts: the start of the window.
    """

    rows: Sequence[int]
    starts: Sequence[int]


class WindowAssigner(Protocol):
    """Assigns event times to windows; one's own is any value with these methods.

    A window is known by its start, and one that starts later does not end earlier.
    """

    def spread(self, event_times: Sequence[int]) -> WindowAssignment:
        """Return the windows in which each event time lies."""
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
        _expect_length("A tumbling window", self.length)

    @cached_property
    def length_ms(self) -> int:
        """The length in milliseconds."""
        return self.length // MILLISECOND

    def spread(self, event_times: Sequence[int]) -> WindowAssignment:
        """Return the one window in which each event time lies."""
        length = self.length_ms
        return WindowAssignment(range(len(event_times)), [time - time % length for time in event_times])

    def window(self, start: int) -> Window:
        """Return the window that begins at `start`."""
        return Window(start, start + self.length_ms)


@dataclass(frozen=True)
class Hopping:
    """Windows of one length that begin at every step, counted from 1970-01-01T00:00Z: each time lies in several.

    Raises:
        DeclarationError: a length or step below one millisecond or not a whole number of them; or a step that is longer than
            the windows, between which events would be lost.
    """

    length: timedelta
    step: timedelta

    def __post_init__(self) -> None:
        _expect_length("A hopping window", self.length)
        _expect_length("The step of a hopping window", self.step)
        if self.step > self.length:
            raise DeclarationError(
                f"Hopping windows of {self.length} at every {self.step}: events between two of them would be in none. Make the "
                "step no longer than the windows."
            )

    @cached_property
    def _lengths_ms(self) -> tuple[int, int]:
        return self.length // MILLISECOND, self.step // MILLISECOND

    def spread(self, event_times: Sequence[int]) -> WindowAssignment:
        """Return the windows in which each event time lies, the earliest first."""
        length, step = self._lengths_ms
        rows: list[int] = []
        starts: list[int] = []
        for row, time in enumerate(event_times):
            found = range((time - length) // step * step + step, time + 1, step)
            rows += [row] * len(found)
            starts += found
        return WindowAssignment(rows, starts)

    def window(self, start: int) -> Window:
        """Return the window that begins at `start`."""
        return Window(start, start + self._lengths_ms[0])


@dataclass(frozen=True)
class Session:
    """Windows that begin with an event of a key and end when none has come for a while; those that touch become one.

    Each event spreads into a window of its own, as long as the gap. Two events less than that apart are in one session.

    Raises:
        DeclarationError: a gap below one millisecond or not a whole number of them.
    """

    gap: timedelta

    def __post_init__(self) -> None:
        _expect_length("The gap between sessions", self.gap)

    @cached_property
    def gap_ms(self) -> int:
        """The gap in milliseconds."""
        return self.gap // MILLISECOND

    def spread(self, event_times: Sequence[int]) -> WindowAssignment:
        """Return the window that each event begins with."""
        return WindowAssignment(range(len(event_times)), event_times)

    def window(self, start: int) -> Window:
        """Return the window that an event begins with."""
        return Window(start, start + self.gap_ms)


@dataclass(frozen=True)
class Sliding:
    """Windows of one length, one for each time at which an event of a key happens: the last of its length, up to and with that time.

    Raises:
        DeclarationError: a size below one millisecond or not a whole number of them.
    """

    size: timedelta

    def __post_init__(self) -> None:
        _expect_length("A sliding window", self.size)

    @cached_property
    def size_ms(self) -> int:
        """The size in milliseconds."""
        return self.size // MILLISECOND

    def spread(self, event_times: Sequence[int]) -> WindowAssignment:
        """Return the window that each event is the last of."""
        before = self.size_ms - 1
        return WindowAssignment(range(len(event_times)), [time - before for time in event_times])

    def window(self, start: int) -> Window:
        """Return the window that begins at `start`."""
        return Window(start, start + self.size_ms)


@dataclass(frozen=True)
class GlobalWindow:
    """One window that holds all of time."""

    def spread(self, event_times: Sequence[int]) -> WindowAssignment:
        """Return the one window, for each event time."""
        return WindowAssignment(range(len(event_times)), [EVER_START_MS] * len(event_times))

    def window(self, start: int) -> Window:  # noqa: ARG002 - there is only one
        """Return all of time."""
        return Window(EVER_START_MS, EVER_END_MS)


def _expect_length(what: str, length: timedelta) -> None:
    if not isinstance(length, timedelta):
        raise DeclarationError(f"{what} of {length!r}: give a timedelta, such as timedelta(hours=1).")
    if length < MILLISECOND or length % MILLISECOND:
        raise DeclarationError(f"{what} of {length}: it needs a whole number of milliseconds, from 1.")
