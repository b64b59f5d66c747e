"""How far Spark is with a node: the stage it is at, finished tasks and events so far, and what is left; asked for while it runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark import SparkContext, StatusTracker

ASK_EVERY_S = 0.2


class Stage(Enum):
    """What the tasks at hand do."""

    PLANNING = "planning"
    """None runs yet."""
    READING = "reading"
    """From the archive, through whatever needs no others, to the machines' disks."""
    BRINGING_TOGETHER = "bringing together"
    """By key, bucket or window, and on to disks again."""
    WRITING = "writing"
    """The last of a job, which gives its result; of a job without an exchange, it is reading, too."""
    DONE = "done"
    """Nothing runs any more."""


@dataclass(frozen=True)
class Reached:
    """How far a node is.

    Args:
        node: its name.
        stage: what is going on.
        done: how many of its tasks are done.
        total: how many are known of. Spark learns of a later stage's tasks only when that begins, so it may grow.
        events: how many events the finished tasks have taken.
        left_s: how long the stage at hand will last yet if it goes on as it did; None while nothing can be said.
    """

    node: str
    stage: Stage
    done: int
    total: int
    events: int
    left_s: float | None


Progress = Callable[[Reached], None]
"""Told how far a node is, where that has changed; called from another thread."""


def silent(reached: Reached) -> None:
    """Tell nobody."""


@contextmanager
def followed(context: SparkContext, node: str, events: Callable[[], int], progress: Progress) -> Iterator[None]:
    """Report how far the jobs are that start within the block; those that run when it fails are cancelled.

    Args:
        context: where they run.
        node: the name of what they do.
        events: tells how many events were taken so far.
        progress: is told.
    """
    # A name of its own for each run: the tracker remembers the jobs of earlier ones.
    group = f"penstock {node} {uuid4().hex}"
    context.setJobGroup(group, f"backfill of {node}")
    following, ended = _Following(context.statusTracker(), group, node, events), threading.Event()

    def ask() -> None:
        told = None
        with suppress(Py4JError):  # a JVM that is gone fails the run itself
            while not ended.wait(ASK_EVERY_S):
                reached = following.look()
                if (reached.stage, reached.done, reached.total, reached.events) != told:
                    progress(reached)
                    told = (reached.stage, reached.done, reached.total, reached.events)

    asking = threading.Thread(target=ask, name=f"progress of {node}", daemon=True)
    asking.start()
    try:
        yield
    except BaseException:
        with suppress(Py4JError):  # where the JVM is gone, nothing runs
            context.cancelJobGroup(group)
        raise
    else:
        ended.set()
        asking.join()
        progress(following.end())
    finally:
        ended.set()


class _Following:
    """Looks at the jobs of one group."""

    def __init__(self, tracker: StatusTracker, group: str, node: str, events: Callable[[], int]) -> None:
        self._tracker = tracker
        self._group = group
        self._node = node
        self._events = events
        self._pace = ProgressRate()

    def look(self) -> Reached:
        """Return how far they are."""
        jobs = [job for job in map(self._tracker.getJobInfo, self._tracker.getJobIdsForGroup(self._group)) if job]
        stages = {number: self._tracker.getStageInfo(number) for job in jobs for number in job.stageIds}
        known = {number: stage for number, stage in stages.items() if stage}
        done, total = (sum(s.numCompletedTasks for s in known.values()), sum(s.numTasks for s in known.values()))
        running = [number for number, stage in known.items() if stage.numCompletedTasks < stage.numTasks]
        stage, left_s = (Stage.DONE if jobs else Stage.PLANNING), None
        if running:
            at = max(running, key=lambda number: (known[number].numActiveTasks > 0, number))
            stage = stage_of(at, next(job.stageIds for job in jobs if at in job.stageIds))
            left_s = self._pace.left_s(at, known[at].numCompletedTasks, known[at].numTasks, time.monotonic())
        return Reached(self._node, stage, done, total, self._events(), left_s)

    def end(self) -> Reached:
        """Return that all of them are done: the tracker may not know yet."""
        reached = self.look()
        return replace(reached, stage=Stage.DONE, done=reached.total, left_s=None)


def stage_of(number: int, stages: list[int]) -> Stage:
    """Return what a stage does, by its place among those of its job."""
    if number == max(stages):
        return Stage.WRITING
    return Stage.READING if number == min(stages) else Stage.BRINGING_TOGETHER


class ProgressRate:
    """How fast tasks of a stage end, since it was first seen."""

    def __init__(self) -> None:
        self._stage: int | None = None
        self._began_s = 0.0
        self._before = 0

    def left_s(self, stage: int, done: int, total: int, now_s: float) -> float | None:
        """Return how long the others will take; None where none has ended since."""
        if stage != self._stage:
            self._stage, self._began_s, self._before = stage, now_s, done
        ended = done - self._before
        return (now_s - self._began_s) * (total - done) / ended if ended else None
