"""Progress of a batch run: a bar for each processor, or a line at intervals without a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from ....processors import counted, human_duration
from .output import err, note

if TYPE_CHECKING:  # Spark is slow to import, and most commands do without
    from ....backfill.spark import StageProgress

LINE_EVERY_S = 10.0


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
