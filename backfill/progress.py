"""How far Spark is with a node: finished tasks of all its stages so far, asked for while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark import SparkContext

ASK_EVERY_S = 0.2

Progress = Callable[[str, int, int], None]
"""Told a node's name, how many of its tasks are done, and how many are known of; called from another thread.

Spark learns of a later stage's tasks only when that begins, so the total may grow.
"""


def silent(node: str, done: int, total: int) -> None:
    """Tell nobody."""


@contextmanager
def followed(context: SparkContext, node: str, progress: Progress) -> Iterator[None]:
    """Report how far the jobs are that start within the block."""
    # A name of its own for each run: the tracker remembers the jobs of earlier ones.
    group = f"penstock {node} {uuid4().hex}"
    context.setJobGroup(group, f"backfill of {node}")
    ended = threading.Event()

    def ask() -> None:
        told = None
        while not ended.wait(ASK_EVERY_S):
            known = _tasks(context, group)
            if known != told:
                progress(node, *known)
                told = known

    asking = threading.Thread(target=ask, name=f"progress of {node}", daemon=True)
    asking.start()
    try:
        yield
    except BaseException:
        with suppress(Py4JError):  # where the JVM is gone, nothing runs
            context.cancelJobGroup(group)
        raise
    finally:
        ended.set()
        asking.join()
        progress(node, *_tasks(context, group))


def _tasks(context: SparkContext, group: str) -> tuple[int, int]:
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    known = [stage for stage in stages if stage]
    return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)
