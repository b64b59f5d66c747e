"""How far a batch run is, for people: a bar for each processor, or, where no bar can be, a line now and then."""

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
    """Give what shows how far each processor is, on standard error."""
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
    """Says how far a run is, in a line, when it has not for a while.

    Args:
        say: prints a line.
        monotonic_s: tells the time.
    """

    def __init__(self, say: Callable[[str], None], monotonic_s: Callable[[], float]) -> None:
        self._say = say
        self._monotonic_s = monotonic_s
        self._said_s = monotonic_s()

    def show(self, reached: StageProgress) -> None:
        """Take how far it is."""
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
