"""`penstock snapshot`: consistent snapshots of a running app."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import typer

from ....processors import PenstockError, counted, human_duration
from ....processors.apps import App, AppName
from ....state.files import FileStore
from ....transport import Bus
from ...dead_letters import effects_on_letters
from ...shell import (
    AsJson,
    BackupLocation,
    Connection,
    DryRun,
    Yes,
    audited,
    expect_main_cluster,
    interruptible,
    note,
    parse_span,
    print_error,
    print_facts,
    print_json,
    print_table,
    with_option_groups,
)
from ..maintenance import MaintenanceEnvironment, ResetPlan, expect_no_loop, perform_reset
from ..snapshots import (
    RestorePlan,
    Snapshot,
    SnapshotStore,
    perform_restore,
    plan_restore,
    plan_restore_alone,
    take_snapshot,
)

app = typer.Typer(
    help="Consistent snapshots of a running app: all states, positions and messages on their way.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Target = Annotated[str, typer.Argument(metavar="APP", help="The app, as a file or module.", show_default=False)]
SnapshotId = Annotated[
    str, typer.Argument(metavar="ID", help="A snapshot of `penstock snapshot show`.", show_default=False)
]


@app.command()
@audited("snapshot take", unless="every")
@with_option_groups
def take(
    target: Target,
    *,
    every: Annotated[
        str | None,
        typer.Option(
            "--every",
            metavar="DURATION",
            help="Take one after each of these times, until you stop the command.",
            show_default=False,
        ),
    ] = None,
    keep: Annotated[
        int, typer.Option(help="With --every: the number of its snapshots to keep; older ones are deleted.", min=1)
    ] = 24,
    backups: BackupLocation,
    connection: Connection,
    json: AsJson = False,
) -> None:
    """Take a snapshot of a running app, which continues meanwhile.

    All workers save a checkpoint and copy their states. Only outputs wait, until the last worker has saved. The workers need the same
    backup store.

    Example: penstock snapshot take examples/flights/app.py --backup backups

    With --every, a failed one is reported, and the next one follows in time. Snapshots that were taken without it are kept.

    Example: penstock snapshot take examples/flights/app.py --every 1h --keep 24 --backup backups
    """
    if every is not None:
        _take_repeatedly(target, every, keep, backups, connection)
        return
    loaded, store = whole_app(target), required_store(backups)
    with interruptible("No snapshot was taken. The app continues."):
        snapshot = take_snapshot(loaded.name, loaded.processors, connection.open(), store, _quiet if json else note)
    if json:
        print_json(_described(snapshot))
    else:
        note(
            f"Snapshot {snapshot.id} of {snapshot.app} is stored: {counted(_shards(snapshot), 'shard')} in {snapshot.took_s:.1f} s. Go back to it "
            f"with `penstock snapshot restore {target} {snapshot.id}`, after you have stopped the app."
        )


def _take_repeatedly(target: str, every: str, keep: int, backups: BackupLocation, connection: Connection) -> None:
    interval = parse_span(every)
    if not interval:
        raise typer.BadParameter(f"--every {every} is no interval between two snapshots. Write 1h, for example.")
    loaded, store, bus = whole_app(target), required_store(backups), connection.open()
    with interruptible("Earlier snapshots remain. The app continues."):
        while True:
            began_s = time.monotonic()
            try:
                _take_one(loaded, bus, store, keep)
            except PenstockError as error:
                print_error(str(error))
            time.sleep(max(interval.total_seconds() - (time.monotonic() - began_s), 0.0))


@app.command()
@with_option_groups
def show(
    target: Annotated[str | None, typer.Argument(metavar="[APP]", help="Only this app's.", show_default=False)] = None,
    snapshot: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="One of them, in detail.", show_default=False)
    ] = None,
    *,
    backups: BackupLocation,
    json: AsJson = False,
) -> None:
    """List snapshots, newest first, or show the positions and states of one, and whether all of its files exist. Damaged ones are reported, and left out.

    Example: penstock snapshot show --backup backups

    Example: penstock snapshot show examples/flights/app.py 20261124T020304-1a2b --backup backups
    """
    store = SnapshotStore(required_store(backups))
    if target is None or snapshot is None:
        _list(store, target, json=json)
    else:
        _describe(store, target, snapshot, json=json)


def _list(store: SnapshotStore, target: str | None, *, json: bool) -> None:
    apps = store.apps() if target is None else [AppName.parse(target).load().name]
    snapshots = [each for name in apps for each in reversed(store.readable(name, print_error))]
    if json:
        print_json([_described(snapshot) for snapshot in snapshots])
        return
    if not snapshots:
        note(f"There are no snapshots at {store.store.location}. `penstock snapshot take APP` takes one.")
        return
    print_table(
        ["app", "snapshot", "taken", "processors", "shards", "in flight", "outputs waited", "scheduled"],
        [
            [
                each.app,
                each.id,
                each.taken,
                len(each.processors),
                _shards(each),
                _in_flight(each),
                f"{each.waited_s:.2f} s",
                "yes" if each.is_scheduled else "",
            ]
            for each in snapshots
        ],
    )


def _describe(store: SnapshotStore, target: str, snapshot: str, *, json: bool) -> None:
    found = store.read(AppName.parse(target).load().name, snapshot)
    damages = store.damages(found)
    if json:
        print_json({**_described(found), "damages": damages})
        return
    print_facts(
        {
            "taken": found.taken,
            "outputs waited": f"{found.waited_s:.2f} s",
            "stored after": human_duration(found.took_s),
            "in flight": counted(_in_flight(found), "message"),
            "files": "; ".join(damages) or "all there",
        }
    )
    print_table(
        ["processor", "bucket", "position", "backup"],
        [
            [name, bucket, str(shard.position), shard.backup]
            for name, cut in found.processors.items()
            for bucket, shard in cut.shards.items()
        ],
    )


@app.command()
@audited("snapshot delete")
@with_option_groups
def delete(
    target: Target,
    snapshot: SnapshotId,
    *,
    backups: BackupLocation,
    connection: Connection,  # noqa: ARG001 - for the audit log
) -> None:
    """Delete a snapshot. The space of its states is free after the next backup of each shard.

    Example: penstock snapshot delete examples/flights/app.py 20261124T020304-1a2b --backup backups
    """
    store, name = required_store(backups), AppName.parse(target).load().name
    SnapshotStore(store).delete(name, snapshot)
    note(f"Snapshot {snapshot} of {name} is deleted.")


def _take_one(loaded: App, bus: Bus, store: FileStore, keep: int) -> None:
    taken = take_snapshot(loaded.name, loaded.processors, bus, store, is_scheduled=True)
    note(f"Snapshot {taken.id}: outputs waited {taken.waited_s:.2f} s; stored in {taken.took_s:.1f} s.")
    snapshots = SnapshotStore(store)
    scheduled = [each.id for each in snapshots.readable(loaded.name, print_error) if each.is_scheduled]
    for old in scheduled[:-keep]:
        snapshots.delete(loaded.name, old)
        note(f"Snapshot {old} is deleted (--keep {keep}).")


@app.command()
@audited("snapshot restore")
@with_option_groups
def restore(
    target: Annotated[
        str,
        typer.Argument(
            metavar="APP[:PROCESSOR]",
            help="The app, as a file or module; or one of its processors.",
            show_default=False,
        ),
    ],
    snapshot: SnapshotId,
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
    backups: BackupLocation,
    connection: Connection,
    json: AsJson = False,
) -> None:
    """Let a whole app go back to a snapshot: states, positions and messages on their way. Stop the app first.

    With APP:PROCESSOR, the state of this processor alone goes back, and reads the events since, without outputs. Its positions stay, and the
    other processors run on.

    Example: penstock snapshot restore examples/flights/app.py 20261124T020304-1a2b --backup backups --dry-run
    """
    name, store, bus = AppName.parse(target), required_store(backups), connection.open()
    loaded, environment = whole_app(str(name.whole)), MaintenanceEnvironment(bus, connection.states, store)
    found = SnapshotStore(store).read(loaded.name, snapshot)
    operation = (
        _whole_restore(plan_restore(found, loaded.processors, environment), bus)
        if name.processor is None
        else _lone_restore(found, _plan_alone(loaded, name.processor, found, environment))
    )
    if not json:
        for line in operation.effects:
            note(line)
    if not dry_run:
        if not yes:
            typer.confirm(f"Restore {operation.name} as of {found.taken}?", abort=True, err=True)
        operation.perform(environment)
        if not json:
            note(f"{operation.name} is restored. Start it: {backups.run_command(target)}")
    if json:
        print_json({**_described(found), **operation.figures, "done": not dry_run})


def _plan_alone(app: App, name: str, snapshot: Snapshot, environment: MaintenanceEnvironment) -> ResetPlan:
    """Plan the restore of one processor's state."""
    processor = app.processor(name)
    expect_no_loop(app.loop_of(processor))
    return plan_restore_alone(snapshot, processor, environment)


@dataclass(frozen=True)
class _Restore:
    """A planned restore, for the terminal.

    Args:
        name: what goes back.
        effects: sentences about what it does.
        figures: the same as figures.
        perform: performs it.
    """

    name: str
    effects: Sequence[str]
    figures: Mapping[str, Any]
    perform: Callable[[MaintenanceEnvironment], None]


def _whole_restore(plan: RestorePlan, bus: Bus) -> _Restore:
    found = plan.snapshot
    effects = [
        f"All {counted(len(found.processors), 'processor')} of {found.app} go back to {found.taken}.",
        *(
            f"{counted(count, 'event')} of {name} after the cut are processed again."
            for name, count in plan.reprocessed.items()
        ),
        f"{counted(_in_flight(found), 'message')} in flight at the cut are appended again; later ones on internal categories are not read.",
        *(
            f"{name} has {counted(count, 'message')} after the cut. Its readers keep them, and receive their successors again."
            for name, count in plan.repeated.items()
        ),
        *(line for name, repeats in plan.repeats.items() for line in effects_on_letters(bus, name, repeats)),
    ]
    figures = {"repeated": plan.repeated, "reprocessed": plan.reprocessed}
    return _Restore(found.app, effects, figures, partial(perform_restore, plan))


def _lone_restore(snapshot: Snapshot, plan: ResetPlan) -> _Restore:
    name = plan.processor.name
    effects = [
        f"The state of {name} goes back to {snapshot.taken}. Its positions stay, and the other processors of {snapshot.app} run on."
    ]
    if plan.caught_up:
        effects.append(f"It reads about {counted(plan.caught_up, 'event')} since then, without outputs.")
    if plan.missing:
        effects.append(
            f"About {counted(plan.missing, 'event')} since then will be missing from the at-most-once state."
        )
    if plan.repeated:
        effects.append(
            f"It processes about {counted(plan.repeated, 'event')} since then again, with all outputs to {', '.join(plan.outputs())}: their readers "
            "receive them twice."
        )
    figures = {"processor": name, "caught_up": plan.caught_up, "missing": plan.missing, "repeated": plan.repeated}
    return _Restore(name, effects, figures, partial(perform_reset, plan))


def whole_app(target: str) -> App:
    """Load an app with all of its processors, which are on the main cluster."""
    name = AppName.parse(target)
    if name.processor is not None:
        raise typer.BadParameter(f"A snapshot contains a whole app. Name the app: {name.path}.")
    app = name.load()
    expect_main_cluster(
        app.categories(),
        "part of a snapshot",
        "A snapshot is one cut through all categories, and the positions of two clusters belong to no common one.",
    )
    return app


def required_store(backups: BackupLocation) -> FileStore:
    """Return the store that the options name."""
    store = backups.open()
    if store is None:
        raise typer.BadParameter(
            "Snapshots are in the backup store of the app's workers. Name it with --backup LOCATION."
        )
    return store


def _quiet(_: str) -> None:
    """Report nothing."""


def _shards(snapshot: Snapshot) -> int:
    return sum(len(cut.shards) for cut in snapshot.processors.values())


def _in_flight(snapshot: Snapshot) -> int:
    return sum(max(end - begin, 0) for begin, end in snapshot.in_flight().values())


def _described(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "app": snapshot.app,
        "id": snapshot.id,
        "taken_ms": snapshot.taken_ms,
        "is_scheduled": snapshot.is_scheduled,
        "waited_s": round(snapshot.waited_s, 3),
        "took_s": round(snapshot.took_s, 3),
        "in_flight": _in_flight(snapshot),
        "processors": {
            name: {
                str(bucket): {"position": shard.position.offsets, "backup": shard.backup or None}
                for bucket, shard in cut.shards.items()
            }
            for name, cut in snapshot.processors.items()
        },
        "ends": snapshot.ends,
    }
