"""The loop of the supervisor of workers."""

from __future__ import annotations

from penstock.ops.deploy.targets.quick_supervisord import QuickPoller


def test_a_supervisor_looks_after_its_processes_although_nothing_happens() -> None:
    """It would wait for as long as it asks for, because an ended worker sends nothing."""
    assert QuickPoller(None).poll(3_600) == ([], [])
