"""Maintenance operations in tests: their environment, and deaths between two steps."""

from __future__ import annotations

from datetime import timedelta

from penstock.ops.maintenance.environment import MaintenanceEnvironment
from penstock.ops.worker.backups import WorkerBackups
from penstock.transport.tables.maintenance_protocol import AtGap, MaintenanceGap, MaintenanceStep

from .machines import Machine


class Killed(BaseException):
    """The process died: nothing is rolled back."""


def dying(step: MaintenanceStep, bucket: int | None = None, error: type[BaseException] = Killed) -> AtGap:
    """Die before a step, of a bucket if one is named."""

    def at_gap(gap: MaintenanceGap) -> None:
        if gap.before is step and bucket in {None, gap.bucket}:
            raise error

    return at_gap


def environment(machine: Machine, *, backups: bool = True) -> MaintenanceEnvironment:
    """Return the environment of an operation on a machine."""
    return MaintenanceEnvironment(machine.bus, machine.states, machine.place if backups else None)


def worker_backups(machine: Machine) -> WorkerBackups:
    """Return the backups of a machine's workers."""
    return WorkerBackups(machine.place, machine.states, timedelta(hours=1))
