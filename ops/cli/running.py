"""`penstock run`: a processor in this process, or a whole app in a process for each."""

from __future__ import annotations

import os
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Annotated

import typer
from rich.progress import Progress, TaskID

from ...processors.declare.apps import App, AppName
from ...processors.declare.processor import Processor
from ...state.backups.backup_age import BackupAges
from ...state.files.file_store import open_file_store
from ...transport.errors import BusUnreachable
from ...transport.kafka import KafkaBus
from ..humanize import human_duration
from ..worker.app_processes import levels_of, penstock_command, run_together
from ..worker.assembly import Environment, assembled, backups_of, tune_gc
from ..worker.health import Address, Pulse, told_at
from ..worker.preflight import ends_of, prepare
from ..worker.until_end import UntilEnd
from ..worker.worker import Worker
from .categories import create_missing
from .options import DEFAULT_FOLDER, AsJson, Backup, BackupEvery, Folder, Kafka, Store, WebHdfs, connect
from .output import as_json, complain, note, progress
from .root import handed_on
from .signals import NOT_SAVED, ending_within, interrupt, stopping_on_signals
from .waiting import FailFast, Waiting

STOP_WITHIN_S = 30.0
"""How long a worker may take to end when it is told to, by default."""
NOT_SAVED_MEANS = (
    "Nothing is lost: what came after the last checkpoint is processed again when it is started again, by the semantics that it declares "
    "(outputs at least once may repeat, outputs at most once may be missing). Other workers get its buckets when its session ends."
)


@dataclass(frozen=True)
class Stopping:
    """Where a run begins and ends.

    Args:
        until_end: stop at the end of the input as it is at the start.
        keep_place: leave the buckets waiting for this worker's return.
        from_earliest: leave out events that are gone from the bus.
        fail_fast: end at once where no broker answers at the start.
        stop_within_s: how long it may take to end when it is told to.
    """

    until_end: bool
    keep_place: bool
    from_earliest: bool
    fail_fast: bool = False
    stop_within_s: float = STOP_WITHIN_S

    def options(self) -> list[str]:
        """Return it as the command line has it."""
        return (
            ["--until-end"] * self.until_end
            + ["--keep-place"] * self.keep_place
            + ["--from-earliest"] * self.from_earliest
            + ["--fail-fast"] * self.fail_fast
            + ["--stop-within", str(self.stop_within_s)]
        )


def run(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="APP[:PROCESSOR]", help="An app file, or one processor of it.")],
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Stop at the end of the input as it is at the start.")
    ] = False,
    keep_place: Annotated[
        bool,
        typer.Option(
            "--keep-place",
            help="When stopped, let the buckets wait for this worker's return (up to the session timeout) and not go to others.",
        ),
    ] = False,
    from_earliest: Annotated[
        bool,
        typer.Option(
            "--from-earliest", help="Where the bus has dropped events that are still to be read, go on without them."
        ),
    ] = False,
    fail_fast: FailFast = False,
    stop_within: Annotated[
        float,
        typer.Option(
            "--stop-within",
            metavar="SECONDS",
            min=1.0,
            help="When stopped, end after this time also where the last checkpoint cannot be saved; it is then done again.",
        ),
    ] = STOP_WITHIN_S,
    backup: Backup = None,
    webhdfs: WebHdfs = None,
    backup_every: BackupEvery = 60.0,
    store: Store = None,
    health: Annotated[
        str | None,
        typer.Option(
            "--health",
            metavar="[HOST:]PORT",
            help="Answer there, at /health and /ready, whether the worker is well; one processor only. A port alone is of this machine.",
            show_default=False,
        ),
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="Create the app's categories where they are missing.")
    ] = False,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Run a processor, or every processor of an app in a process of its own.

    Start the same command again, here or elsewhere, to share the work: workers of one processor divide its buckets.
    SIGTERM or Ctrl-C stop it after a last checkpoint; SIGUSR1 does the same as with --keep-place. Where no broker answers, it waits;
    told to stop then, it ends after --stop-within, and with 75.

    Example: penstock run examples/flights/app.py:Scorer --until-end
    """
    name = AppName.parse(target)
    app = name.load()
    bus = connect(kafka, folder)
    stopping = Stopping(until_end, keep_place, from_earliest, fail_fast, stop_within)
    if create:
        Waiting(fail_fast=fail_fast)(lambda: create_missing(bus, name))
    if len(app.processors) == 1:
        place = open_file_store(backup, webhdfs) if backup else None
        around = Environment(folder / "state", place, timedelta(seconds=backup_every), store)
        _run_one(app.processors[0], bus, around, stopping, None if health is None else Address.parse(health), json=json)
        return
    if health is not None:
        raise typer.BadParameter(
            f"--health is for one worker, and {target} has several processors: run one as {target}:NAME."
        )
    options = [*handed_on(context), "--kafka", bus.settings.bootstrap, "--dir", str(folder)]
    options += [*_given("--backup", backup), *_given("--webhdfs", webhdfs), "--backup-every", str(backup_every)]
    options += stopping.options() + ["--json"] * json
    if store:
        os.environ["PENSTOCK_STORE"] = (
            store  # not on the command lines of the nodes: everybody on the machine can read those
        )
    _run_app(app, name, bus, options, until_end=until_end)


def _given(option: str, value: str | None) -> list[str]:
    return [] if value is None else [option, value]


def _run_one(
    processor: type[Processor],
    bus: KafkaBus,
    around: Environment,
    stopping: Stopping,
    health: Address | None,
    *,
    json: bool,
) -> None:
    backups, ages, pulse = backups_of(around), BackupAges({}, 0.0), Pulse()
    waiting = Waiting(fail_fast=stopping.fail_fast)
    with (
        ending_within(stopping.stop_within_s, NOT_SAVED_MEANS),
        told_at(health, pulse),
        closing(waiting(lambda: prepare(processor, bus))) as opened,
        assembled(
            opened, bus, around, from_earliest=stopping.from_earliest, backups=backups, when_answered=waiting
        ) as worker,
        stopping_on_signals(worker.stop, lambda: worker.stop(keep_place=True)),
        progress() as bars,
    ):
        targets = waiting(lambda: ends_of(processor.inputs(), bus)) if stopping.until_end else {}
        at_end = UntilEnd(targets, processor.name, bus)
        tune_gc()
        bar = bars.add_task(processor.__name__, total=None)

        def finished(worker: Worker) -> bool:
            nonlocal ages
            pulse.note(worker)
            if backups is not None:
                ages = backups.ages()  # at each turn: when the run has ended, the shards are others'
            bars.update(bar, completed=worker.metrics.events_in, description=f"{processor.__name__}{_lateness(ages)}")
            return stopping.until_end and at_end(worker)

        worker.run(finished, keep_place=stopping.keep_place)
    if json:
        as_json({"processor": processor.name, **asdict(worker.metrics), **_described(ages)})
    else:
        note(f"{processor.__name__}: {worker.metrics}")
    if not worker.is_saved:
        complain(f"{processor.__name__} was told to stop and could not save its last checkpoint. {NOT_SAVED_MEANS}")
        raise typer.Exit(NOT_SAVED)


def _lateness(ages: BackupAges) -> str:
    """Return what a progress line says of backups: nothing as long as they keep up."""
    late = ages.late
    return (
        f", {len(late)} of {len(ages.of)} shards without a backup for {human_duration(max(late.values()))}"
        if late
        else ""
    )


def _described(ages: BackupAges) -> dict[str, float | int | None]:
    return {
        "backup_age_s": None if ages.oldest_s is None else round(ages.oldest_s, 3),
        "shards_without_backup": ages.without,
    }


def _run_app(app: App, name: AppName, bus: KafkaBus, options: list[str], *, until_end: bool) -> None:
    def command(processor: type[Processor]) -> list[str]:
        return penstock_command("run", f"{name.path}:{processor.__name__}", *options)

    stages = levels_of(app) if until_end else [list(app.processors)]
    # Stopping is what was asked for: the nodes have saved their last checkpoints when the block is left.
    with suppress(KeyboardInterrupt), stopping_on_signals(interrupt), progress() as bars:
        for stage in stages:
            watched = {processor: bars.add_task(processor.__name__, total=None) for processor in stage}
            run_together(stage, command, lambda watched=watched: _show_progress(bus, watched, bars))  # type: ignore[misc]  # a default binds the loop's value


def _show_progress(bus: KafkaBus, watched: dict[type[Processor], TaskID], bars: Progress) -> None:
    """Show how far each processor's committed positions are."""
    if bars.disable:
        return
    with suppress(BusUnreachable):  # it is waited for by those who work
        _show_positions(bus, watched, bars)


def _show_positions(bus: KafkaBus, watched: dict[type[Processor], TaskID], bars: Progress) -> None:
    for processor, bar in watched.items():
        states = [bus.catalog.describe(category.name) for category in processor.inputs()]
        done = sum(
            offset - state.starts[bucket]
            for state in states
            for bucket, offset in bus.catalog.committed(processor.name, state.spec.name).items()
        )
        bars.update(bar, completed=done, total=sum(state.events for state in states))
