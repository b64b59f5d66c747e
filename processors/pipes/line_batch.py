"""A batch of lines on its way through a program.

lines --in groups--> program --> output lines of a group, as outputs of its last line
a group fails --> a new process --> again, then in halves, down to the line at which the program fails
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence

from ..errors import Halted, UserCodeError
from ..event_loop import Outcome
from ..retry import backoff
from ..wording import counted
from .lines import InvalidLine, are_lines, expect_line
from .program import ProgramFailed

_LOG = logging.getLogger("penstock.pipe")

ATTEMPTS = 3
"""How often a line is passed to the program on its own before it counts as the cause of the failure."""
MOST_FAILED = 20
"""The number of failed lines of a batch, without one that succeeded, after which the program counts as broken."""


class LineBatch:
    """The outcomes of a batch's lines.

    Args:
        run_group: returns the outputs of a group of lines, which has an event time (milliseconds since 1970, UTC).
        stops: whether an error stops the processor.
        pause: sleeps for some seconds.
    """

    def __init__(
        self,
        run_group: Callable[[Sequence[bytes], int], list[object]],
        stops: Callable[[UserCodeError], bool],
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._run_group = run_group
        self._stops = stops
        self._pause = pause
        self.outcomes: list[Outcome] = []
        self._failed = 0
        self._succeeded = 0
        self._is_halving = False

    def run(self, lines: Sequence[bytes], times: Sequence[int], most: Callable[[], int], most_bytes: int) -> None:
        """Run lines in groups, up to the first error that stops the processor.

        Args:
            lines: the lines.
            times: the event time of each.
            most: returns the greatest number of lines of the next group.
            most_bytes: its greatest size, unless it is one line.

        Raises:
            Halted: the program fails for each line, or cannot be started.
            ProgramSlow: it does not acknowledge a group in time.
        """
        begin = 0
        for end in _ends(lines, most, most_bytes):
            try:
                expect_line(lines[begin])
            except InvalidLine as error:
                goes_on = self._reject(error)
            else:
                self._is_halving = False
                goes_on = self._passes(lines[begin:end], times[begin:end], 2)
            if not goes_on:
                return
            begin = end

    def _passes(self, lines: Sequence[bytes], times: Sequence[int], attempts: int) -> bool:
        """Run a group of lines; after failures, the halves of it. Return whether to run later lines."""
        error = self._attempt(lines, times, attempts)
        if error is None:
            return True
        if len(lines) == 1:
            return self._reject(error)
        self._is_halving = True
        middle = len(lines) // 2
        halves = ((lines[:middle], times[:middle]), (lines[middle:], times[middle:]))
        return all(self._passes(*half, ATTEMPTS if len(half[0]) == 1 else 1) for half in halves)

    def _attempt(self, lines: Sequence[bytes], times: Sequence[int], attempts: int) -> ProgramFailed | None:
        """Run a group of lines up to a number of times; return the error of the last time."""
        pauses = backoff()
        failure = None
        for attempt in range(attempts):
            if attempt:
                self._pause(next(pauses))
            try:
                outputs = self._run_group(lines, max(times))
            except ProgramFailed as error:
                failure = error
                self._report(error, len(lines))
                continue
            self._succeeded += len(lines)
            self.outcomes += [[]] * (len(lines) - 1) + [outputs]
            return None
        return failure

    def _report(self, error: ProgramFailed, lines: int) -> None:
        """Log a failure of a whole group. The ones of its halves only serve to find its lines, whose errors follow."""
        if not self._is_halving:
            _LOG.warning("%s. No line was lost. Lines of this group: %d.", error, lines)

    def _reject(self, error: ProgramFailed | InvalidLine) -> bool:
        """Record the error of one line. Return whether to run later lines."""
        self.outcomes.append(error)
        self._failed += isinstance(error, ProgramFailed)
        if self._failed >= MOST_FAILED and not self._succeeded:
            raise Halted(
                f"The program failed for each of {counted(self._failed, 'line')}: {error}. No line was lost: they remain in Kafka. Correct the program."
            )
        return not self._stops(error)


def _ends(lines: Sequence[bytes], most: Callable[[], int], most_bytes: int) -> Iterator[int]:
    """Yield the end of each group. A record that is no line is a group of its own."""
    are_all_lines = are_lines(lines)
    end = 0
    while end < len(lines):
        end = _end(lines, end, most(), most_bytes, are_all_lines=are_all_lines)
        yield end


def _end(lines: Sequence[bytes], begin: int, most: int, most_bytes: int, *, are_all_lines: bool) -> int:
    """Return the end of the group that begins at an index."""
    end = min(begin + most, len(lines))
    if are_all_lines and sum(map(len, lines[begin:end])) + end - begin <= most_bytes:
        return end
    size_bytes = 0
    for at in range(begin, end):
        is_line = _is_line(lines[at])
        if at > begin and (not is_line or size_bytes + len(lines[at]) > most_bytes):
            return at
        if not is_line:
            return at + 1
        size_bytes += len(lines[at]) + 1
    return end


def _is_line(line: bytes) -> bool:
    try:
        expect_line(line)
    except InvalidLine:
        return False
    return True
