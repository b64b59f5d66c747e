"""Progress: of a batch run, a bar for each processor; of other commands, one bar. Without a terminal, lines at intervals."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from ....processors import counted, human_duration
from ..logs import logs_json
from .output import ReportStep, err, note

if TYPE_CHECKING:  # Spark is slow to import, and most commands do without
    from ....backfill.spark import StageProgress

LINE_EVERY_S = 10.0
_COUNT = re.compile(r"(\d+) of (\d+)$")


@contextmanager
def batch_progress() -> Iterator[Callable[[StageProgress], None]]:
    """Show the progress of each processor on standard error."""
    if not err.is_terminal:
        yield ProgressLines(note, time.monotonic).show
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[details]}"), console=err) as bars:
        tasks: dict[str, TaskID] = {}

        def show(stage: StageProgress) -> None:
            if stage.node not in tasks:
                tasks[stage.node] = bars.add_task(stage.node, details="")
            bars.update(tasks[stage.node], completed=stage.done, total=stage.total, details=", ".join(_parts(stage)))

        yield show


class ProgressLines:
    """Prints a line of progress at intervals.

    Args:
        print_line: prints a line.
        monotonic_s: returns the time in seconds.
    """

    def __init__(self, print_line: Callable[[str], None], monotonic_s: Callable[[], float]) -> None:
        self._print_line = print_line
        self._monotonic_s = monotonic_s
        self._printed_s = monotonic_s()

    def show(self, stage: StageProgress) -> None:
        """Print the progress, if the interval has passed."""
        now_s = self._monotonic_s()
        if now_s - self._printed_s >= LINE_EVERY_S:
            self._printed_s = now_s
            self._print_line(f"{stage.node}: {', '.join([*_parts(stage), f'{stage.done} of {stage.total} tasks'])}")


def _parts(stage: StageProgress) -> Iterator[str]:
    yield stage.stage.value
    if stage.events:
        yield counted(stage.events, "event")
    if stage.remaining_s is not None:
        yield f"about {human_duration(stage.remaining_s)} left in this stage"


@contextmanager
def progress_steps() -> Iterator[ReportStep]:
    """Yield a function that shows progress: a bar for lines that end in "3 of 46"; without a terminal, notes, and few of such lines."""
    if logs_json() or not err.is_terminal:
        yield StepNotes(note, time.monotonic).show
        return
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=err, transient=True
    ) as bars:
        bar = bars.add_task("Starting …", total=None)

        def show(line: str) -> None:
            match = _COUNT.search(line)
            done, total = map(int, match.groups()) if match else (0, None)
            bars.update(bar, description=line, completed=done, total=total)

        yield show


class StepNotes:
    """Prints lines of progress, but lines that end in "3 of 46" only at intervals.

    Args:
        print_line: prints a line.
        monotonic_s: returns the time in seconds.
    """

    def __init__(self, print_line: Callable[[str], None], monotonic_s: Callable[[], float]) -> None:
        self._print_line = print_line
        self._monotonic_s = monotonic_s
        self._counted_s = monotonic_s()

    def show(self, line: str) -> None:
        """Print a line, unless it counts and the interval has not passed."""
        if _COUNT.search(line):
            now_s = self._monotonic_s()
            if now_s - self._counted_s < LINE_EVERY_S:
                return
            self._counted_s = now_s
        self._print_line(line)
