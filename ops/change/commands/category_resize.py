"""`penstock category resize`: adds buckets to a category and repartitions its readers' states."""

from __future__ import annotations

from typing import Annotated

import typer

from ....processors import counted
from ....processors.apps import AppName
from ....processors.declare import Processor, plan_of
from ....transport import Bus
from ....transport.tables import MaintenanceRefused
from ...shell import (
    AsJson,
    BackupLocation,
    Connection,
    DryRun,
    audited,
    expect_main_cluster,
    note,
    print_facts,
    print_json,
    with_option_groups,
)
from ..maintenance import MaintenanceEnvironment, ResizePlan, perform_resize, plan_resize


@audited("category resize")
@with_option_groups
def resize(
    name: Annotated[str, typer.Argument(help="The category's name.")],
    buckets: Annotated[int, typer.Argument(help="The new number of buckets; it can only grow.", min=1)],
    *,
    apps: Annotated[
        list[str] | None,
        typer.Option(
            "--app",
            metavar="APP",
            help="An app that reads or writes the category; repeatable. The states of its processors are split by key.",
            show_default=False,
        ),
    ] = None,
    accept_misplaced: Annotated[
        bool,
        typer.Option(
            "--accept-misplaced", help="Finish although events were written with the old number of buckets meanwhile."
        ),
    ] = False,
    stateless: Annotated[
        bool, typer.Option("--stateless", help="Instead of --app: no reader has state, so only buckets are added.")
    ] = False,
    dry_run: DryRun = False,
    backups: BackupLocation,
    connection: Connection,
    json: AsJson = False,
) -> None:
    """Add buckets to a category, and move each key's state to its new bucket. Stop readers and writers first.

    Readers must have read all events. With --stateless only the buckets are added: later events of a key may be in another bucket than its
    earlier events and its state. A category without events needs neither option.

    Example: penstock category resize flights 16 --app examples/flights/app.py
    """
    bus = connection.open()
    if not apps:
        if not stateless:
            _require_empty(bus, name)
        _resize_alone(bus, name, buckets, dry_run=dry_run)
        return
    if stateless:
        raise typer.BadParameter("--stateless replaces --app. Use one of them.")
    environment = MaintenanceEnvironment(bus, connection.states, backups.open())
    processors = [processor for app in apps for processor in AppName.parse(app).load().processors]
    resized = {
        category
        for processor in processors
        for category in (*plan_of(processor).inputs, *plan_of(processor).outputs)
        if category.name == name
    }
    expect_main_cluster(
        resized,
        "resized by Penstock",
        "Add partitions with the tools of that cluster, and declare their number as `buckets`.",
    )
    plan = plan_resize(processors, environment, name, buckets)
    if not json:
        _show(plan)
    if not dry_run:
        perform_resize(plan, environment, accept_misplaced=accept_misplaced)
        if not json:
            note(_result(plan))
    if json:
        print_json(_describe(plan, is_done=not dry_run))


def _require_empty(bus: Bus, name: str) -> None:
    """Raise MaintenanceRefused if readers may have state, which would be separated from its keys."""
    if any(bus.catalog.describe(name).ends.values()):
        raise MaintenanceRefused(
            f"{name} has events, and its readers may have state. That state would stay in its buckets, while later events of the same keys go "
            "to other buckets and start without it. Nothing was changed. Name each app that reads or writes the category (`--app FILE`), which "
            "moves the state; or confirm that no reader has state (`--stateless`)."
        )


def _resize_alone(bus: Bus, name: str, buckets: int, *, dry_run: bool) -> None:
    if dry_run:
        before = bus.catalog.describe(name).spec.buckets
        note(f"{name} has {counted(before, 'bucket')} and would have {buckets}. No state would move.")
        return
    bus.catalog.resize(name, buckets)
    note(f"{name} has {counted(buckets, 'bucket')}. Declare the same number in the app before you start it again.")


def _show(plan: ResizePlan) -> None:
    time = "continues exactly"
    if not plan.keeps_time:
        time = f"continues from the slowest bucket; a multiple of {plan.before} would keep it exactly"
    print_facts(
        {
            "categories": ", ".join(plan.categories),
            "buckets": f"{plan.before}, then {plan.after}",
            "readers": ", ".join(map(_describe_reader, plan.readers)) or "none",
            "writers": ", ".join(writer.__name__ for writer in plan.writers) or "none in the app",
            "event time": time,
        }
    )


def _describe_reader(processor: type[Processor]) -> str:
    return processor.__name__ + ("" if plan_of(processor).state_shape is None else " (its states are split)")


def _result(plan: ResizePlan) -> str:
    declared = {
        category.name: category.buckets
        for processor in (*plan.readers, *plan.writers)
        for category in (*plan_of(processor).inputs, *plan_of(processor).outputs)
    }
    outdated = [name for name in plan.categories if declared.get(name) != plan.after]
    text = f"{', '.join(plan.categories)}: {counted(plan.after, 'bucket')}."
    if outdated:
        text += f" Declare buckets={plan.after} for {', '.join(outdated)} before you start the app again."
    return text


def _describe(plan: ResizePlan, *, is_done: bool) -> dict[str, object]:
    return {
        "categories": list(plan.categories),
        "before": plan.before,
        "after": plan.after,
        "readers": [reader.name for reader in plan.readers],
        "writers": [writer.name for writer in plan.writers],
        "keeps_time": plan.keeps_time,
        "done": is_done,
    }
