"""Maintenance operations in tests: their environment, and kills between two steps."""

from __future__ import annotations

from datetime import timedelta

from penstock.ops.change.maintenance.environment import MaintenanceEnvironment
from penstock.ops.kernel.shards.backups import WorkerBackups
from penstock.transport.tables import AtGap, MaintenanceStep
from penstock.transport.tables.maintenance_protocol import MaintenanceGap

from .machines import Machine


class Killed(BaseException):
    """The process was killed, so nothing is rolled back."""


def kill_before(step: MaintenanceStep, bucket: int | None = None, error: type[BaseException] = Killed) -> AtGap:
    """Return a hook that raises an error before a step, optionally of one bucket."""

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
