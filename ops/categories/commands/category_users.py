"""The processors that a change of a category affects: its running readers and writers."""

from __future__ import annotations

from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from ....transport import Bus, BusError
from ...deploy import deployed_processors
from ...kernel import REPORTS
from ...status import ClusterStatus, Observer, ProcessorStatus


def running_users(bus: Bus, folder: Path, category: str) -> str:
    """Return a sentence about the running readers and writers of a category; empty without any, or if the bus does not show them.

    Args:
        bus: contains the reports of workers.
        folder: the value of `--dir`, with deployments.
        category: the category.
    """
    with suppress(BusError):
        if REPORTS.name in bus.catalog.names():
            with closing(Observer.open(bus, deployed=partial(deployed_processors, folder))) as observer:
                return users_in(observer.observe(), category)
    return ""


def users_in(cluster: ClusterStatus, category: str) -> str:
    """Return a sentence about the running readers and writers of a category; empty without any."""
    running = [status for status in cluster.processors if _runs(status)]
    readers = [status.node.name for status in running if category in status.node.inputs]
    writers = [status.node.name for status in running if category in status.node.outputs]
    parts = [f"{role} by {', '.join(names)}" for role, names in (("read", readers), ("written", writers)) if names]
    verbs = "run and will fail" if len(readers) + len(writers) > 1 else "runs and will fail"
    return f"{category} is {' and '.join(parts)}, which {verbs} without it." if parts else ""


def _runs(status: ProcessorStatus) -> bool:
    return bool(status.running_workers) or (status.deployed is not None and status.deployed.workers > 0)
