"""`penstock run`: runs a processor in this process, or each processor of an app in its own process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from threading import Event
from typing import Annotated

import typer
from rich.progress import Progress, TaskID

from ...processors.apps.apps import App, AppName
from ...processors.apps.loops import Loop
from ...processors.declare.dead_letters import dead_letters_of
from ...processors.declare.processor import Processor
from ...processors.declare.stores import RemoteStore
from ...processors.lifecycle import ending
from ...processors.wording import counted
from ...state.backups.backup_age import BackupAges
from ...state.files.file_store import open_file_store
from ...transport.bus import Bus
from ...transport.errors import BusUnreachable
from ...transport.messages import Bucket
from ..humanize import human_duration
from ..worker.app_processes import (
    HANDED_OVER,
    NodeCommand,
    end_with_parent,
    levels_of,
    penstock_command,
    run_together,
)
from ..worker.assembly import Environment, assemble_worker, backups_of
from ..worker.health import Address, LoopMonitor
from ..worker.health_server import serve_health
from ..worker.identity import HAND_OVER
from ..worker.last_backup import LastBackup
from ..worker.memory import tune_memory
from ..worker.metrics import Metrics
from ..worker.offset_limits import NO_LIMITS, RunLimits
from ..worker.preflight import Targets, ends_of, prepare
from ..worker.stall_watch import stalls_logged
from ..worker.until_end import LoopEnd, UntilEnd
from ..worker.worker import Worker
from .app_categories import create_missing, missing_specs
from .audited import recorded
from .hard_exits import hard_exits_reported
from .options import (
    DEFAULT_FOLDER,
    AsJson,
    Backup,
    BackupEvery,
    BackupHistory,
    Folder,
    Kafka,
    Standby,
    StateCacheMib,
    Store,
    Traces,
    WebHdfs,
    connect,
    expect_backups,
    retention_of,
    with_clusters,
)
from .output import note, print_error, print_json, progress
from .root import forwarded_options
from .signals import NOT_SAVED, exit_within, interrupt, stop_on_signals
from .traces import event_tracer, expect_traces_installed
from .waiting import BrokerWait, BucketWait, FailFast

STOP_WITHIN_S = 30.0
"""The default time for a worker to end after a signal."""
NOT_SAVED_EFFECT = (
    "No event is lost: events after the last checkpoint are processed again after a restart, with the declared semantics "
    "(at-least-once outputs may repeat, at-most-once outputs may be missing). Other workers get its buckets when its session ends."
)


@dataclass(frozen=True)
class StopOptions:
    """Options for the start and the end of a run.

    Args:
        until_end: stop at the current end of the inputs.
        keep_place: keep the buckets reserved for this worker.
        from_earliest: skip events that Kafka has deleted.
        fail_fast: fail if no broker answers at the start.
        stop_within_s: the time to end after a signal.
        number: the worker's number under its supervisor; None without one.
        limits: stop at these offsets of some inputs, and at the current end of the others.
    """

    until_end: bool
    keep_place: bool
    from_earliest: bool
    fail_fast: bool = False
    stop_within_s: float = STOP_WITHIN_S
    number: int | None = None
    limits: RunLimits = NO_LIMITS

    @property
    def ends(self) -> bool:
        """Whether the run stops by itself."""
        return self.until_end or bool(self.limits.offsets)

    def words(self) -> list[str]:
        """Return the options as words of a command line."""
        return (
            ["--until-end"] * self.until_end
            + ["--keep-place"] * self.keep_place
            + ["--from-earliest"] * self.from_earliest
            + ["--fail-fast"] * self.fail_fast
            + ["--stop-within", str(self.stop_within_s)]
        )


def run(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="APP[:PROCESSOR]", help="An app, as a file or module, or one processor in it.")
    ],
    until_end: Annotated[bool, typer.Option("--until-end", help="Stop at the current end of the inputs.")] = False,
    until: Annotated[
        list[str] | None,
        typer.Option(
            "--until",
            metavar="CATEGORY/BUCKET=OFFSET",
            help="One processor: stop exactly at this offset of an input, and at the current end of other buckets. May be repeated.",
            show_default=False,
        ),
    ] = None,
    event_time: Annotated[
        list[str] | None,
        typer.Option(
            "--event-time",
            metavar="BUCKET=MILLISECONDS",
            help="One processor: with --until, count this event time as passed by the inputs of a bucket. May be repeated.",
            hidden=True,
        ),
    ] = None,
    keep_place: Annotated[
        bool,
        typer.Option(
            "--keep-place",
            help="After a stop, keep the buckets for this worker's return, up to the session timeout.",
        ),
    ] = False,
    from_earliest: Annotated[
        bool,
        typer.Option("--from-earliest", help="Skip unread events that Kafka has deleted."),
    ] = False,
    fail_fast: FailFast = False,
    stop_within: Annotated[
        float,
        typer.Option(
            "--stop-within",
            metavar="SECONDS",
            min=1.0,
            help="After a stop, end within this time even if the last checkpoint cannot be saved; its events are then processed again. "
            "With --until-end and --backup: the time for a backup store that fails.",
        ),
    ] = STOP_WITHIN_S,
    backup: Backup = None,
    webhdfs: WebHdfs = None,
    backup_every: BackupEvery = 60.0,
    state_cache: StateCacheMib = None,
    backup_history: BackupHistory = None,
    standby: Standby = False,
    store: Store = None,
    health: Annotated[
        str | None,
        typer.Option(
            "--health",
            metavar="[HOST:]PORT",
            help="Serve the worker's health at /health and /ready; for one processor only. A port alone listens on this machine only.",
            show_default=False,
        ),
    ] = None,
    number: Annotated[
        int | None,
        typer.Option(
            "--number",
            min=0,
            help="For supervisors, one processor: the worker's number, which gives it its name. A process with this number hands over.",
            show_default=False,
        ),
    ] = None,
    create: Annotated[bool, typer.Option("--create", help="Create the app's missing categories.")] = False,
    traces: Traces = False,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Run a processor, or each processor of an app in its own process.

    Run the same command several times, on any machine, to share the work: workers of one processor divide its buckets.
    SIGTERM, SIGHUP and Ctrl-C stop it after a last checkpoint; SIGUSR1 stops it as with --keep-place. Without a broker, it waits. If the
    checkpoint cannot be saved, it ends after --stop-within with exit code 75.

    Example: penstock run examples/flights/app.py:Scorer --until-end
    """
    name = AppName.parse(target)
    app = name.load()
    _expect_store_is_used(context, app)
    expect_traces_installed(traces=traces)
    expect_backups(backup, standby=standby)
    home = connect(kafka, folder)
    bus = with_clusters(home, kafka, app.categories())
    limits = RunLimits(dict(_limit(text, app) for text in until or ()), dict(map(_event_time, event_time or ())))
    if limits.offsets and app.loops:
        raise typer.BadParameter("--until cannot stop a loop, because its messages circulate. Use --until-end.")
    stop_options = StopOptions(until_end, keep_place, from_earliest, fail_fast, stop_within, number, limits)
    wait = BrokerWait(fail_fast=fail_fast)
    if create and wait(lambda: missing_specs(bus, name)):
        with recorded("run --create", {"target": target}, kafka, folder):
            wait(lambda: create_missing(bus, name))
    if len(app.processors) == 1:
        backup_store = open_file_store(backup, webhdfs) if backup else None
        environment = Environment(
            folder / "state",
            backup_store,
            timedelta(seconds=backup_every),
            store,
            None if state_cache is None else state_cache * 2**20,
            retention_of(backup_history),
            standby=standby,
        )
        run_one(
            app.processors[0],
            bus,
            environment,
            stop_options,
            home.settings.session_timeout_s,
            None if health is None else Address.parse(health),
            json=json,
            traces=traces,
            loop=app.loop_of(app.processors[0]),
        )
        return
    single = {"--health": health, "--number": number, "--until": until or None, "--event-time": event_time or None}
    for option, value in single.items():
        if value is not None:
            raise typer.BadParameter(
                f"{option} needs one processor, and {target} has several. Run one of them, as {target}:NAME."
            )
    options = [*forwarded_options(context), "--kafka", home.settings.bootstrap, "--dir", str(folder)]
    options += [*_option("--backup", backup), *_option("--webhdfs", webhdfs), "--backup-every", str(backup_every)]
    options += _option("--state-cache", None if state_cache is None else str(state_cache))
    options += _option("--backup-history", backup_history) + ["--standby"] * standby
    options += stop_options.words() + ["--traces"] * traces + ["--json"] * json
    if store:
        os.environ["PENSTOCK_STORE"] = (
            store  # not on the command lines of the workers, which all users of the machine can read
        )
    _run_app(app, name, bus, options, until_end=until_end)


def _expect_store_is_used(context: typer.Context, app: App) -> None:
    """Refuse a store on the command line that no processor uses. A store in the configuration may be for other apps."""
    source = context.get_parameter_source("store")
    if source is None or source.name != "COMMANDLINE":
        return
    if not any(isinstance(getattr(processor, "store", None), RemoteStore) for processor in app.processors):
        can_choose = any(hasattr(processor, "store") for processor in app.processors)
        advice = "Declare `store = penstock.RemoteStore(…)` on an aggregator, or leave" if can_choose else "Leave"
        raise typer.BadParameter(
            f"--store is for aggregators with remote state, and the processors of {app.name} keep their state locally. {advice} --store out."
        )


def _limit(text: str, app: App) -> tuple[Bucket, int]:
    """Parse `orders/0=100`."""
    category, _, rest = text.rpartition("/")
    number, _, offset = rest.partition("=")
    inputs = sorted({one.name for processor in app.processors for one in processor.sources()})
    if category not in inputs or not (number.isdecimal() and offset.isdecimal()):
        raise typer.BadParameter(
            f"--until {text} is invalid. Name a bucket of an input and an offset, such as --until {inputs[0]}/0=100."
        )
    return Bucket(category, int(number)), int(offset)


def _event_time(text: str) -> tuple[int, int]:
    """Parse `0=1385000000000`."""
    number, _, time_ms = text.partition("=")
    if not (number.isdecimal() and time_ms.removeprefix("-").isdecimal()):
        raise typer.BadParameter(
            f"--event-time {text} is invalid. Name the number of a bucket and an event time in milliseconds since 1970, such as --event-time 0=1385000000000."
        )
    return int(number), int(time_ms)


def _option(option: str, value: str | None) -> list[str]:
    return [] if value is None else [option, value]


def run_one(
    processor: type[Processor],
    bus: Bus,
    environment: Environment,
    stop_options: StopOptions,
    session_timeout_s: float,
    health: Address | None,
    *,
    json: bool,
    traces: bool = False,
    loop: Loop | None = None,
    advice: str | None = None,
) -> None:
    """Run one processor in this process until it is stopped or at the end of its inputs, and print its metrics.

    `advice` says how to read events again. Default: with `penstock reset`.
    """
    end_with_parent()
    backups, ages, monitor = backups_of(environment), BackupAges({}, 0.0), LoopMonitor()
    last_backup = None if backups is None else LastBackup(backups, stop_options.stop_within_s)
    handed_over = Event()
    wait = BrokerWait(fail_fast=stop_options.fail_fast)
    with (
        # Outside of the limit on the end of the worker: whether its events are saved does not depend on the export of its spans.
        event_tracer(processor, traces=traces) as tracer,
        exit_within(stop_options.stop_within_s, NOT_SAVED_EFFECT),
        hard_exits_reported(processor.__name__, NOT_SAVED_EFFECT),
        serve_health(health, monitor),
        ending(wait(lambda: prepare(processor, bus))) as opened,
        assemble_worker(
            opened,
            bus,
            environment,
            number=stop_options.number,
            from_earliest=stop_options.from_earliest,
            limits=stop_options.limits,
            backups=backups,
            call_bus=wait,
            tracer=tracer,
            loop=loop,
        ) as worker,
        stop_on_signals(worker.stop, pauses(worker, handed_over)),
        stalls_logged(monitor),
        progress() as bars,
    ):
        ends = wait(lambda: ends_of(processor.sources(), bus)) if stop_options.ends else {}
        targets = ends | dict(stop_options.limits.offsets)
        at_end = UntilEnd(
            targets,
            processor.name,
            bus,
            [category.name for category in processor.retry_categories()],
            wait(lambda: LoopEnd.of(loop, bus)) if loop is not None and stop_options.until_end else None,
        )
        tune_memory()
        bar = bars.add_task(processor.__name__, total=None)

        waits_for_buckets = BucketWait(processor.name, session_timeout_s)

        def finished(worker: Worker) -> bool:
            nonlocal ages
            monitor.record_turn(worker)
            waiting = waits_for_buckets(has_buckets=bool(worker.owned))
            if backups is not None:
                ages = backups.ages()  # at each turn, because at the end the worker no longer owns the shards
            bars.update(
                bar,
                completed=worker.metrics.events_in,
                description=f"{processor.__name__}{waiting}{_late_backups(ages)}{_awaited(last_backup)}",
            )
            return stop_options.ends and at_end(worker) and (last_backup is None or last_backup())

        worker.run(finished, keep_place=stop_options.keep_place)
    _report(processor, worker, ages, json=json)
    if stop_options.until_end and not (worker.is_stopped or worker.metrics.events_in or json):
        note(nothing_read(processor, ends, advice or reset_advice(processor)))
    if last_backup is not None and environment.backups is not None:
        _expect_backups(processor, last_backup, len(ages.by_shard), environment.backups.location)
    if handed_over.is_set():
        raise typer.Exit(HANDED_OVER)


def pauses(worker: Worker, handed_over: Event) -> dict[signal.Signals, Callable[[], None]]:
    """Return what stops a worker with its buckets reserved: for its restart, or for its successor, which waits already."""

    def keep_place() -> None:
        worker.stop(keep_place=True)

    def hand_over() -> None:
        handed_over.set()
        keep_place()

    return {signal.SIGUSR1: keep_place, HAND_OVER: hand_over}


def _report(processor: type[Processor], worker: Worker, ages: BackupAges, *, json: bool) -> None:
    """Print the metrics of a run; exit with NOT_SAVED if its last checkpoint was not saved."""
    if json:
        print_json({"processor": processor.name, **worker.metrics.counts(), **_described(ages)})
    else:
        note(f"{processor.__name__}: {worker.metrics}")
    report_rejections(processor, worker.metrics)
    if not worker.is_saved:
        print_error(f"{processor.__name__} stopped and could not save its last checkpoint. {NOT_SAVED_EFFECT}")
        raise typer.Exit(NOT_SAVED)


def reset_advice(processor: type[Processor]) -> str:
    """Return how to let a processor of an app read events again."""
    target = AppName.of_processor(processor).of(processor)
    return f"To let it read them again: `penstock reset {target} --to earliest`."


def nothing_read(processor: type[Processor], ends: Targets, advice: str) -> str:
    """Return why a run to the end of the inputs read no event.

    Args:
        processor: the processor.
        ends: the end offset of each bucket of its inputs.
        advice: how to read events again.
    """
    names = ", ".join(sorted({bucket.category for bucket in ends}))
    if not any(ends.values()):
        return f"{processor.__name__} read nothing: {names} contains no event yet."
    return f"{processor.__name__} read nothing: it has already processed all events of {names}. {advice}"


def report_rejections(processor: type[Processor], metrics: Metrics) -> None:
    """Print how many events became dead letters, and the command that lists them; exit with an error if all of them did."""
    counts = metrics.counts()
    rejected, read = counts["dead_letters"], counts["events_in"]
    if not (rejected and read):
        return
    if rejected == read:
        print_error(
            f"{processor.__name__} read {counted(read, 'event')} and rejected every one. The reasons are in {dead_letters_of(processor).name}: "
            f"`penstock dead-letters show {processor.name} --last 1`. "
            "Correct what they name: the processor, or the declared record, codec or key."
        )
        raise typer.Exit(1)
    note(
        f"{processor.__name__} rejected {rejected:,} of {counted(read, 'event')} ({rejected / read:.1%}). They are in "
        f"{dead_letters_of(processor).name}; `penstock dead-letters list {processor.name}` shows the reasons."
    )


def _awaited(last: LastBackup | None) -> str:
    return (
        ""
        if last is None or not last.is_awaited
        else f", at the end, backs up {counted(len(last.missing), 'last state')}"
    )


def _expect_backups(processor: type[Processor], last: LastBackup, shards: int, place: str) -> None:
    """Exit with an error if final states were not backed up."""
    if last.missing:
        print_error(
            f"{processor.__name__} has processed its input and saved its results and positions, but {len(last.missing)} of {counted(shards, 'shard')} "
            f"have no backup of their final state at {place}. It exists only on this machine. Repair the backup store, and run the command again."
        )
        raise typer.Exit(1)


def _late_backups(ages: BackupAges) -> str:
    """Return the part of a progress line about late backups; empty if there are none."""
    late = ages.late
    return (
        f", {len(late)} of {counted(len(ages.by_shard), 'shard')} without a backup for {human_duration(max(late.values()))}"
        if late
        else ""
    )


def _described(ages: BackupAges) -> dict[str, float | int | None]:
    return {
        "backup_age_s": None if ages.oldest_s is None else round(ages.oldest_s, 3),
        "shards_without_backup": ages.missing_backups,
    }


def _run_app(app: App, name: AppName, bus: Bus, options: list[str], *, until_end: bool) -> None:
    def command(processor: type[Processor]) -> NodeCommand:
        return NodeCommand(penstock_command("run", str(name.of(processor)), *options))

    stages = levels_of(app) if until_end else [list(app.processors)]
    # After a request to stop, the context ends when the processes have saved their last checkpoints.
    with suppress(KeyboardInterrupt), stop_on_signals(interrupt), progress() as bars:
        for stage in stages:
            watched = {processor: bars.add_task(processor.__name__, total=None) for processor in stage}
            run_together(stage, command, lambda watched=watched: _show_progress(bus, watched, bars))  # type: ignore[misc]  # a default binds the loop's value


def _show_progress(bus: Bus, watched: dict[type[Processor], TaskID], bars: Progress) -> None:
    """Show the progress of each processor's committed positions."""
    if bars.disable:
        return
    with suppress(BusUnreachable):  # the workers wait for it
        _show_positions(bus, watched, bars)


def _show_positions(bus: Bus, watched: dict[type[Processor], TaskID], bars: Progress) -> None:
    for processor, bar in watched.items():
        states = [bus.catalog.describe(category.name) for category in processor.inputs()]
        done = sum(
            offset - state.starts[bucket]
            for state in states
            for bucket, offset in bus.catalog.committed(processor.name, state.spec.name).items()
        )
        bars.update(bar, completed=done, total=sum(state.events for state in states))
