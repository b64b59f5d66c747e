"""`penstock clone`: a second app beside a running one, from a snapshot."""

from __future__ import annotations

from typing import Annotated

import typer

from ....processors import counted
from ....processors.apps import LEGAL_CLONE, App, AppName
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
    print_json,
    with_option_groups,
)
from ..clones import ClonePlan, perform_clone, plan_clone, plan_removal, remove_clone
from ..maintenance import MaintenanceEnvironment
from ..snapshots import SnapshotStore
from .snapshot import required_store, whole_app

CloneTarget = Annotated[
    str, typer.Argument(metavar="APP@NAME", help="The clone, such as shop.py@staging.", show_default=False)
]


@audited("clone")
@with_option_groups
def clone(
    target: Annotated[
        str,
        typer.Argument(
            metavar="APP | APP@NAME", help="The app, as a file or module; with --remove, the clone.", show_default=False
        ),
    ],
    snapshot: Annotated[
        str | None, typer.Argument(metavar="ID", help="A snapshot of `penstock snapshot show`.", show_default=False)
    ] = None,
    name: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="The name of the clone.", show_default=False)
    ] = None,
    *,
    with_programs: Annotated[
        bool, typer.Option("--with-programs", help="Let pipes of the clone run their programs, too.")
    ] = False,
    remove: Annotated[
        bool,
        typer.Option(
            "--remove",
            help="Remove a clone instead: its workers, categories, positions, states, backups and snapshots.",
        ),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    backups: BackupLocation,
    connection: Connection,
    json: AsJson = False,
) -> None:
    """Make a second app from a snapshot of a running one, or remove it. It continues from the snapshot, and reads the same external inputs.

    Its processors and all categories that it writes have names of their own, such as staging.totals. All commands take it as APP@NAME.

    Example: penstock clone examples/flights/app.py 20261124T020304-1a2b --as staging --backup backups

    Example: penstock clone examples/flights/app.py@staging --remove --backup backups
    """
    if remove:
        if (snapshot, name) != (None, None):
            raise typer.BadParameter(
                "--remove removes the clone that APP@NAME names. Nothing was removed. Leave the snapshot and --as out."
            )
        _remove(target, backups, connection, dry_run=dry_run, yes=yes)
        return
    if snapshot is None or name is None:
        raise typer.BadParameter("A snapshot or --as is missing. Nothing was made. Write APP ID --as NAME.")
    own = _clone_name(target, name)
    original, store, bus = whole_app(target), required_store(backups), connection.open()
    environment = MaintenanceEnvironment(bus, connection.states, store)
    found = SnapshotStore(store).read(original.name, snapshot)
    plan = plan_clone(found, own.load(), environment, runs_programs=with_programs)
    if not json:
        _show(plan)
    if not dry_run:
        perform_clone(plan, environment)
        if not json:
            note(f"{plan.app.name} is made. Start it: {backups.run_command(str(own))}")
    if json:
        print_json(_described(plan, is_done=not dry_run))


def _remove(target: str, backups: BackupLocation, connection: Connection, *, dry_run: bool, yes: bool) -> None:
    """Remove a clone. The original app is not affected."""
    app, bus, folder = clone_app(target), connection.open(), connection.folder
    with interruptible("Repeat the command to finish."), deployment_lock(folder, note):
        removal = plan_removal(app, bus, folder, backups.backup, backups.webhdfs)
        for line in removal.lines():
            note(f"To be removed: {line}")
        if dry_run:
            return
        if not yes:
            typer.confirm(f"Remove all of {app.name}?", abort=True, err=True)
        remove_clone(removal, bus, folder, note)
    note(f"{app.name} is removed.")


def _clone_name(target: str, name: str) -> AppName:
    """Return the name of a clone of an app."""
    original = AppName.parse(target)
    if LEGAL_CLONE.fullmatch(name) is None:
        raise typer.BadParameter(f"--as {name!r} is invalid. Use letters, digits, '_' and '-'.")
    if original.clone is not None:
        raise typer.BadParameter(f"{target} is a clone itself. Clone the app: {original.path}.")
    return AppName(original.path, clone=name)


def _show(plan: ClonePlan) -> None:
    processors = ", ".join(processor.name for processor in plan.app.processors)
    note(f"{plan.app.name} continues from {plan.snapshot.taken}, with {processors}.")
    note(f"It writes {', '.join(sorted(set(plan.names.values())))}, and the original app continues.")
    for name, count in plan.reprocessed.items():
        note(f"It has {counted(count, 'event')} of {name} to catch up with.")


def _described(plan: ClonePlan, *, is_done: bool) -> dict[str, object]:
    return {
        "app": plan.app.name,
        "snapshot": plan.snapshot.id,
        "processors": [processor.name for processor in plan.app.processors],
        "categories": dict(plan.names),
        "in_flight": sum(max(flight.end - flight.start, 0) for flight in plan.flights),
        "reprocessed": dict(plan.reprocessed),
        "done": is_done,
    }


def clone_app(target: str) -> App:
    """Load the clone that an argument names."""
    name = AppName.parse(target)
    if name.clone is None or name.processor is not None:
        raise typer.BadParameter(f"{target} does not name a clone. Name it as APP@NAME, such as {name.path}@staging.")
    return name.load()
