"""Windows of event time."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ..errors import DeclarationError
from ..runs import runs_of
from ..wording import as_code

GLOBAL_WINDOW_START_MS = -(2**63)
GLOBAL_WINDOW_END_MS = 2**63 - 1
MILLISECOND = timedelta(milliseconds=1)


class Window(NamedTuple):
    """A half-open interval of event time: `start` is inside, `end` is not (milliseconds since 1970, UTC)."""

    start: int
    end: int


class Run(NamedTuple):
    """Adjacent pairs of a `WindowAssignment` with the same window, by index, and the start of the window."""

    begin: int
    end: int
    start: int


class WindowAssignment(NamedTuple):
    """Pairs of an event and a window. The pairs of one event are adjacent.

    Args:
        rows: the index of the event.
        starts: the start of the window (milliseconds since 1970, UTC).
    """

    rows: Sequence[int]
    starts: Sequence[int]

    def runs(self) -> list[Run]:
        """Return the runs of adjacent pairs with the same window."""
        starts = self.starts
        if self.have_one_window:
            return [Run(0, len(starts), starts[0])]
        return [Run(begin, end, starts[begin]) for begin, end in runs_of(np.asarray(starts, np.int64))]

    @property
    def have_one_window(self) -> bool:
        """Whether there are pairs, all with the same window, as in about every batch of a live stream."""
        starts = self.starts
        return bool(starts) and starts[0] == starts[-1] and starts.count(starts[0]) == len(starts)


class WindowAssigner(Protocol):
    """Assigns event times to windows. Implement both methods to define windows of your own.

    The start of a window identifies it. A window with a later start must not have an earlier end.
    """

    def assign(self, event_times: Sequence[int]) -> WindowAssignment:
        """Return the windows of each event time (milliseconds since 1970, UTC)."""
        ...

    def window(self, start: int) -> Window:
        """Return the window that begins at `start`."""
        ...


@dataclass(frozen=True)
class Tumbling:
    """Adjacent windows of one size, aligned to 1970-01-01T00:00Z. Each event belongs to one window.

    Args:
        size: the size of a window.

    Raises:
        DeclarationError: the size is not a positive whole number of milliseconds.

    Examples:
        >>> minutes = Tumbling(timedelta(minutes=1))
        >>> minutes.window(minutes.assign([90_000]).starts[0])
        Window(start=60000, end=120000)
    """

    size: timedelta

    def __post_init__(self) -> None:
        _expect_duration("the size of a tumbling window", self.size)

    @cached_property
    def size_ms(self) -> int:
        """The size in milliseconds."""
        return self.size // MILLISECOND

    def assign(self, event_times: Sequence[int] | npt.NDArray[np.int64]) -> WindowAssignment:
        """Return the window of each event time."""
        times = np.asarray(event_times, np.int64)
        return WindowAssignment(range(len(times)), self._starts(times))

    def _starts(self, times: npt.NDArray[np.int64]) -> Sequence[int]:
        if len(times):  # most batches are within one window
            start = int(times.min()) // self.size_ms * self.size_ms
            if int(times.max()) < start + self.size_ms:
                return [start] * len(times)
        return array("q", (times - times % self.size_ms).tobytes())  # numpy reads it without a copy

    def window(self, start: int) -> Window:
        """Return the window that begins at `start`."""
        return Window(start, start + self.size_ms)


@dataclass(frozen=True)
class Hopping:
    """Overlapping windows of one size that begin at every step, aligned to 1970-01-01T00:00Z.

    Each event belongs to `size / step` windows, rounded up or down.

    Args:
        size: the size of a window.
        step: the time between the starts of two windows.

    Raises:
        DeclarationError: the size or the step is not a positive whole number of milliseconds, or the step is longer than the size.

    Examples:
        >>> hops = Hopping(timedelta(minutes=10), step=timedelta(minutes=5))
        >>> hops.assign([720_000]).starts
        [300000, 600000]
    """

    size: timedelta
    step: timedelta

    def __post_init__(self) -> None:
        _expect_duration("the size of a hopping window", self.size)
        _expect_duration("the step of a hopping window", self.step)
        if self.step > self.size:
            raise DeclarationError(
                f"Hopping(size={self.size}, step={self.step}) leaves gaps between its windows, and events in a gap would be lost. Declare a step "
                "that is no longer than the size."
            )

    @cached_property
    def _sizes_ms(self) -> tuple[int, int]:
        return self.size // MILLISECOND, self.step // MILLISECOND

    def assign(self, event_times: Sequence[int]) -> WindowAssignment:
        """Return the windows of each event time, the earliest first."""
        size, step = self._sizes_ms
        rows: list[int] = []
        starts: list[int] = []
        for row, time in enumerate(event_times):
            found = range((time - size) // step * step + step, time + 1, step)
            rows += [row] * len(found)
            starts += found
        return WindowAssignment(rows, starts)

    def window(self, start: int) -> Window:
        """Return the window that begins at `start`."""
        return Window(start, start + self._sizes_ms[0])


@dataclass(frozen=True)
class Session:
    """Windows of activity per key: a session ends when the key has no event for `gap`.

    Each event opens a window as long as the gap. Overlapping windows of a key merge, so two events of one session are less than `gap` apart.

    Args:
        gap: the inactivity that ends a session.

    Raises:
        DeclarationError: the gap is not a positive whole number of milliseconds.
    """

    gap: timedelta

    def __post_init__(self) -> None:
        _expect_duration("the gap between sessions", self.gap)

    @cached_property
    def gap_ms(self) -> int:
        """The gap in milliseconds."""
        return self.gap // MILLISECOND

    def assign(self, event_times: Sequence[int]) -> WindowAssignment:
        """Return the window that each event opens."""
        return WindowAssignment(range(len(event_times)), event_times)

    def window(self, start: int) -> Window:
        """Return the window that an event at `start` opens."""
        return Window(start, start + self.gap_ms)


@dataclass(frozen=True)
class Sliding:
    """One window per event time of a key: the last `size` up to and including that time.

    Args:
        size: the size of a window.

    Raises:
        DeclarationError: the size is not a positive whole number of milliseconds.
    """

    size: timedelta

    def __post_init__(self) -> None:
        _expect_duration("the size of a sliding window", self.size)

    @cached_property
    def size_ms(self) -> int:
        """The size in milliseconds."""
        return self.size // MILLISECOND

    def assign(self, event_times: Sequence[int]) -> WindowAssignment:
        """Return the window that ends with each event."""
        before = self.size_ms - 1
        return WindowAssignment(range(len(event_times)), [time - before for time in event_times])

    def window(self, start: int) -> Window:
        """Return the window that begins at `start`."""
        return Window(start, start + self.size_ms)


@dataclass(frozen=True)
class GlobalWindow:
    """A single window that covers all of event time and never ends."""

    def assign(self, event_times: Sequence[int]) -> WindowAssignment:
        """Return the window for each event time."""
        return WindowAssignment(range(len(event_times)), [GLOBAL_WINDOW_START_MS] * len(event_times))

    def window(self, start: int) -> Window:  # noqa: ARG002 - there is only one
        """Return the window."""
        return Window(GLOBAL_WINDOW_START_MS, GLOBAL_WINDOW_END_MS)


def _expect_duration(name: str, duration: timedelta) -> None:
    if not isinstance(duration, timedelta):
        raise DeclarationError(
            f"{name.capitalize()} is {as_code(duration)}. Declare a timedelta, such as timedelta(hours=1)."
        )
    if duration < MILLISECOND or duration % MILLISECOND:
        raise DeclarationError(
            f"{name.capitalize()} is {duration}. Declare a whole number of milliseconds, at least 1."
        )
