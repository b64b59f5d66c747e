"""The run of a promotion: workers stop, both apps are drained, states change over, and workers of the app start with the code of the clone.

    NOT_BEGUN   stop --> drain --> swap     a failure starts the workers of both apps again, as they were
    SWAPPING    swap                        after an interruption: no worker starts until it is finished
    SWAPPED     start the app --> the clone is removed

A killed command is repeated. Before the first state changes, both apps can be deployed as before instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ....transport.tables import AtGap, no_gap
from ..maintenance import MaintenanceEnvironment
from .promoting import PromotionPlan, PromotionProgress, RunToLimits, drain, plan_promotion, swap


class AppWorkers(Protocol):
    """The workers of an app and of its clone. Every call may be repeated."""

    @property
    def run_to(self) -> RunToLimits:
        """Runs processors of both up to limits, while their usual workers are stopped."""
        ...

    def stop(self) -> None:
        """Stop all after a last checkpoint."""
        ...

    def start_again(self) -> None:
        """Start the workers of both apps as they were."""
        ...

    def start_promoted(self) -> None:
        """Start the workers of the app with the code of the clone, where none run."""
        ...


def promote(
    plan: PromotionPlan,
    environment: MaintenanceEnvironment,
    workers: AppWorkers,
    remove_clone: Callable[[], None],
    at_gap: AtGap = no_gap,
) -> None:
    """Promote a clone. May be repeated after an interruption.

    Args:
        plan: the plan.
        environment: the bus, states and backups of both apps.
        workers: their workers.
        remove_clone: removes the clone, or keeps it.
        at_gap: called before each step that changes positions or states.

    Raises:
        MaintenanceRefused: the two apps are not at the same place; their workers run again, as before.
        PenstockError: the same, after another failure before the first state changed.
    """
    try:
        if plan.progress is PromotionProgress.NOT_BEGUN:
            workers.stop()
            drain(plan, environment, workers.run_to)
        if plan.progress is not PromotionProgress.SWAPPED:
            swap(plan, environment, at_gap)
    except (Exception, KeyboardInterrupt):
        if plan_promotion(plan.clone, environment.bus, best_effort=True).progress is PromotionProgress.NOT_BEGUN:
            workers.start_again()
        raise
    workers.start_promoted()
    remove_clone()
