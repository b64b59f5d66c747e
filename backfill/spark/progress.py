"""Progress of a Spark run: its stage, finished tasks and events, and the remaining time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark import SparkContext, StatusTracker

from ...processors import BackgroundThread

POLL_EVERY_S = 0.2


class Stage(Enum):
    """The work of the running tasks."""

    PLANNING = "planning"
    """No task runs yet."""
    READING = "reading"
    """Reading the archive, and the steps before a shuffle."""
    SHUFFLING = "shuffling"
    """Grouping by key, bucket or window, and the steps between two shuffles."""
    WRITING = "writing"
    """The last stage of a job, which writes its result. In a job without a shuffle, it also reads."""
    DONE = "done"
    """All tasks have ended."""


@dataclass(frozen=True)
class StageProgress:
    """The progress of a processor in Spark.

    Args:
        node: the processor's name.
        stage: the current stage.
        done: the number of finished tasks.
        total: the number of known tasks. It may grow: Spark plans the tasks of a stage when the stage begins.
        events: the number of events that tasks have processed.
        remaining_s: the estimated remaining seconds of the stage; None while unknown.
    """

    node: str
    stage: Stage
    done: int
    total: int
    events: int
    remaining_s: float | None


Progress = Callable[[StageProgress], None]
"""Receives each change of progress, in another thread."""


def no_progress(progress: StageProgress) -> None:
    """Ignore progress."""


@contextmanager
def reported_progress(
    context: SparkContext, node: str, events: Callable[[], int], progress: Progress
) -> Iterator[None]:
    """Report the progress of the jobs that start in the block; cancel running jobs if the block fails.

    Args:
        context: the Spark context.
        node: the processor's name.
        events: returns the number of events processed so far.
        progress: receives the progress.
    """
    # The group name is unique: the tracker remembers the jobs of earlier runs.
    group = f"penstock {node} {uuid4().hex}"
    context.setJobGroup(group, f"backfill of {node}")
    group_jobs = _JobGroup(context.statusTracker(), group, node, events)

    def poll() -> None:
        reported = None
        with suppress(Py4JError):  # a dead JVM fails the run itself
            while not polling.wait(POLL_EVERY_S):
                current = group_jobs.progress()
                state = (current.stage, current.done, current.total, current.events)
                if state != reported:
                    progress(current)
                    reported = state

    polling = BackgroundThread(f"progress of {node}", poll)
    polling.start()
    try:
        yield
    except BaseException:
        with suppress(Py4JError, OSError):  # with a dead JVM, no task runs
            context.cancelJobGroup(group)
        raise
    else:
        polling.close()
        progress(group_jobs.final_progress())
    finally:
        polling.close(0.0)


class _JobGroup:
    """The jobs of one group."""

    def __init__(self, tracker: StatusTracker, group: str, node: str, events: Callable[[], int]) -> None:
        self._tracker = tracker
        self._group = group
        self._node = node
        self._events = events
        self._rate = ProgressRate()

    def progress(self) -> StageProgress:
        """Return their progress."""
        jobs = [job for job in map(self._tracker.getJobInfo, self._tracker.getJobIdsForGroup(self._group)) if job]
        stages = {number: self._tracker.getStageInfo(number) for job in jobs for number in job.stageIds}
        known = {number: stage for number, stage in stages.items() if stage}
        done, total = (sum(s.numCompletedTasks for s in known.values()), sum(s.numTasks for s in known.values()))
        running = [number for number, stage in known.items() if stage.numCompletedTasks < stage.numTasks]
        stage, remaining_s = (Stage.DONE if jobs else Stage.PLANNING), None
        if running:
            at = max(running, key=lambda number: (known[number].numActiveTasks > 0, number))
            stage = stage_of(at, next(job.stageIds for job in jobs if at in job.stageIds))
            remaining_s = self._rate.remaining_s(at, known[at].numCompletedTasks, known[at].numTasks, time.monotonic())
        return StageProgress(self._node, stage, done, total, self._events(), remaining_s)

    def final_progress(self) -> StageProgress:
        """Return the progress with all tasks finished: the tracker may lag behind."""
        current = self.progress()
        return replace(current, stage=Stage.DONE, done=current.total, remaining_s=None)


def stage_of(number: int, stages: list[int]) -> Stage:
    """Return the work of a stage, by its position in its job."""
    if number == max(stages):
        return Stage.WRITING
    return Stage.READING if number == min(stages) else Stage.SHUFFLING


class ProgressRate:
    """The rate at which the tasks of a stage finish, since the first poll of the stage."""

    def __init__(self) -> None:
        self._stage: int | None = None
        self._began_s = 0.0
        self._before = 0

    def remaining_s(self, stage: int, done: int, total: int, now_s: float) -> float | None:
        """Return the estimated seconds until all tasks have ended; None before the first has ended."""
        if stage != self._stage:
            self._stage, self._began_s, self._before = stage, now_s, done
        ended = done - self._before
        return (now_s - self._began_s) * (total - done) / ended if ended else None
