"""`penstock promote`: an app continues as its clone, blue/green."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Annotated

import typer

from ....processors import counted
from ....processors.apps import AppName
from ....processors.declare import dead_letters_of
from ....transport import Bus
from ...dead_letters import PendingLetters
from ...deploy import deployment_lock
from ...shell import (
    AsJson,
    BackupLocation,
    Connection,
    DryRun,
    Yes,
    audited,
    interruptible,
    note,
    parse_span,
    print_json,
    with_option_groups,
)
from ..clones import (
    CloneRefused,
    DeployedApps,
    PromotionPlan,
    PromotionProgress,
    plan_promotion,
    plan_removal,
    remove_clone,
)
from ..clones import promote as run_promotion
from ..maintenance import MaintenanceEnvironment
from .clone import CloneTarget, clone_app
from .snapshot import required_store


@audited("promote")
@with_option_groups
def promote(
    target: CloneTarget,
    *,
    wait: Annotated[
        str, typer.Option("--wait", metavar="DURATION", help="How long to wait until the clone has caught up.")
    ] = "10m",
    drain_within: Annotated[
        str,
        typer.Option(
            "--drain-within",
            metavar="DURATION",
            help="How long each level of processors may take for what is on its way, while outputs wait.",
        ),
    ] = "1m",
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the clone's categories and states. Its workers are not started again.")
    ] = False,
    best_effort: Annotated[
        bool,
        typer.Option(
            "--best-effort", help="Accept that outputs may repeat or be missing, where they are not exactly once."
        ),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    backups: BackupLocation,
    connection: Connection,
    json: AsJson = False,
) -> None:
    """Let an app continue with the states and the code of its clone. Readers of its exactly-once outputs receive each record once.

    Waits until the clone is less than a second behind. Then outputs pause: both apps stop and process the same events, the states change over,
    and the app starts with the clone's code. The clone is removed. After an interruption, repeat the command.

    Example: penstock promote examples/flights/app.py@staging --backup backups
    """
    app, bus, folder = clone_app(target), connection.open(), connection.folder
    environment = MaintenanceEnvironment(bus, connection.states, required_store(backups))
    parsed = AppName.parse(target)
    name = replace(parsed, path=parsed.path.resolve())
    wait_s, drain_s = parse_span(wait).total_seconds(), parse_span(drain_within).total_seconds()

    def planned() -> tuple[PromotionPlan, DeployedApps]:
        plan = plan_promotion(app, bus, best_effort=best_effort)
        return plan, DeployedApps(plan, name, folder, bus, report=note, drain_limit_s=drain_s)

    def remove() -> None:
        if not keep:
            with suppress(CloneRefused):  # an interrupted command has removed it
                remove_clone(plan_removal(app, bus, folder, backups.backup, backups.webhdfs), bus, folder, note)

    with interruptible(
        "If states had begun to change, no worker starts until you repeat the command. Else both apps continue."
    ):
        plan, workers = planned()
        note(_summary(plan))
        if not keep:
            _note_dead_letters(plan, bus)
        if plan.progress is PromotionProgress.NOT_BEGUN:
            workers.expect_same_code()
        if dry_run:
            return
        if not yes:
            typer.confirm(f"Promote {app.name}?", abort=True, err=True)
        if plan.progress is PromotionProgress.NOT_BEGUN:
            workers.await_clone(wait_s)
        with deployment_lock(folder, note):
            plan, workers = planned()
            run_promotion(plan, environment, workers, remove)
    _report(plan, workers.paused_s, json=json)


def _summary(plan: PromotionPlan) -> str:
    names = ", ".join(pair.original.name for pair in plan.pairs)
    match plan.progress:
        case PromotionProgress.NOT_BEGUN:
            return f"{names} will continue with the states and the code of {plan.clone.name}."
        case PromotionProgress.SWAPPING:
            return f"An interrupted promotion of {plan.clone.name} is finished: {names}."
        case PromotionProgress.SWAPPED:
            return f"{names} have the states of {plan.clone.name} already. What is left is to start them, and to remove the clone."


def _note_dead_letters(plan: PromotionPlan, bus: Bus) -> None:
    """Note pending dead letters of the clone: events that only its version has rejected are in no state and no output of it."""
    letters = PendingLetters(bus)
    for pair in plan.pairs:
        category = dead_letters_of(pair.clone).name
        if bus.catalog.topics([category]):
            count = letters.count(pair.clone.name, category, bus.catalog.describe(category))
            if count:
                note(
                    f"{counted(count, 'pending dead letter')} of {pair.clone.name} will be removed with the clone. Handle them first (`penstock "
                    "dead-letters show`), or keep them with --keep."
                )


def _report(plan: PromotionPlan, paused_s: float | None, *, json: bool) -> None:
    if json:
        names = [pair.original.name for pair in plan.pairs]
        print_json({"clone": plan.clone.name, "processors": names, "paused_s": paused_s, "done": True})
        return
    pause = "" if paused_s is None else f" Its outputs paused for {paused_s:.1f} s."
    note(f"{plan.clone.name} is promoted.{pause}")
