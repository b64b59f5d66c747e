"""Progress of a batch run: a bar for each processor, or a line at intervals without a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from ..humanize import human_duration
from .output import err, note

if TYPE_CHECKING:  # Spark is slow to import, and most commands do without
    from ...backfill.spark.progress import StageProgress

LINE_EVERY_S = 10.0


@contextmanager
def batch_progress() -> Iterator[Callable[[StageProgress], None]]:
    """Show the progress of each processor on standard error."""
    if not err.is_terminal:
        yield Lines(note, time.monotonic).show
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[says]}"), console=err) as bars:
        tasks: dict[str, TaskID] = {}

        def show(reached: StageProgress) -> None:
            if reached.node not in tasks:
                tasks[reached.node] = bars.add_task(reached.node, says="")
            bars.update(
                tasks[reached.node], completed=reached.done, total=reached.total, says=", ".join(_parts(reached))
            )

        yield show


class Lines:
    """Prints a line of progress at intervals.

    Args:
        say: prints a line.
        monotonic_s: returns the time in seconds.
    """

    def __init__(self, say: Callable[[str], None], monotonic_s: Callable[[], float]) -> None:
        self._say = say
        self._monotonic_s = monotonic_s
        self._said_s = monotonic_s()

    def show(self, reached: StageProgress) -> None:
        """Print the progress, if the interval has passed."""
        now_s = self._monotonic_s()
        if now_s - self._said_s >= LINE_EVERY_S:
            self._said_s = now_s
            self._say(f"{reached.node}: {', '.join([*_parts(reached), f'{reached.done} of {reached.total} tasks'])}")


def _parts(reached: StageProgress) -> Iterator[str]:
    yield reached.stage.value
    if reached.events:
        yield f"{reached.events:,} events"
    if reached.remaining_s is not None:
        yield f"about {human_duration(reached.remaining_s)} left of this"
