"""`penstock run`: runs a processor in this process, or each processor of an app in its own process."""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from logging import getLogger
from threading import Event
from typing import Annotated

import typer
from rich.progress import Progress, TaskID

from ....processors import counted, ending, human_duration
from ....processors.apps import App, AppName, Loop, counted_updates, upstream_of
from ....processors.declare import Join, JoinType, Processor, dead_letters_of, plan_of
from ....processors.time import NEVER_MS
from ....state.backups import BackupAges
from ....transport import Bus, BusUnreachable
from ...shell import (
    DEFAULT_FOLDER,
    NOT_SAVED,
    AsJson,
    BrokerWait,
    BucketWait,
    FailFast,
    Folder,
    Kafka,
    OpenFiles,
    Traces,
    connect,
    exit_within,
    format_time,
    forwarded_options,
    given_options,
    hard_exits_reported,
    interrupt,
    is_given,
    note,
    print_error,
    print_json,
    progress,
    recorded,
    stop_on_signals,
    with_clusters,
    with_option_groups,
)
from ..event_time import ShardWait
from ..loop import NO_LIMITS, LoopEnd, RunLimits, UntilEnd, Worker
from ..shards import LastBackup, Targets, ends_of, prepare
from ..telemetry import ListenAddress, LoopMonitor, Metrics, serve_health, stalls_logged
from .app_categories import create_missing, missing_specs
from .app_processes import HANDED_OVER, NodeCommand, end_with_parent, levels_of, penstock_command, run_together
from .assembly import Environment, assemble_worker, backups_of
from .identity import HAND_OVER
from .memory import tune_memory
from .run_options import STOP_WITHIN_S, EndOptions, StateOptions, SupervisedOptions
from .traces import event_tracer, expect_traces_installed

_OF_ONE = ("health", "number", "until", "event_time")
"""Options that need one processor."""
_OF_PARENT = ("create", "store")
"""Options that the process of an app applies itself, before it starts those of its processors."""
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


@with_option_groups
def run(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="APP[:PROCESSOR]", help="An app, as a file or module, or one processor in it.")
    ],
    ends: EndOptions,
    states: StateOptions,
    single: SupervisedOptions,
    from_earliest: Annotated[
        bool, typer.Option("--from-earliest", help="Skip unread events that Kafka has deleted.")
    ] = False,
    fail_fast: FailFast = False,
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
    states.check(context, app)
    limits = ends.limits(app)
    for warning in counted_updates(app.processors, name.whole.load().processors):
        getLogger("penstock.worker").warning(warning)
    expect_traces_installed(traces=traces)
    home = connect(kafka, folder)
    bus = with_clusters(home, kafka, app.categories())
    wait = BrokerWait(fail_fast=fail_fast)
    if create and wait(lambda: missing_specs(bus, name)):
        with recorded("run --create", {"target": target}, kafka, folder):
            wait(lambda: create_missing(bus, name))
    if len(app.processors) > 1:
        _run_each(context, app, name, bus, ends, states)
        return
    [processor] = app.processors
    awaited = upstream_of(processor, name.whole.load().processors) if ends.until_end and not limits.offsets else []
    run_one(
        processor,
        bus,
        states.environment(folder),
        StopOptions(ends.until_end, ends.keep_place, from_earliest, fail_fast, ends.stop_within, single.number, limits),
        home.settings.session_timeout_s,
        single.address,
        json=json,
        traces=traces,
        loop=app.loop_of(processor),
        upstream=[each.name for each in awaited],
    )


def _run_each(
    context: typer.Context, app: App, name: AppName, bus: Bus, ends: EndOptions, states: StateOptions
) -> None:
    """Run the same command for each processor of an app."""
    target = context.params["target"]
    single = next((option for option in _OF_ONE if is_given(context, option)), None)
    if single is not None:
        raise typer.BadParameter(
            f"--{single.replace('_', '-')} needs one processor, and {target} has several. Run one of them, as {target}:NAME."
        )
    states.pass_store_on()
    options = [*forwarded_options(context), *given_options(context, without=_OF_PARENT)]
    _run_app(app, name, bus, options, until_end=ends.until_end)


def run_one(
    processor: type[Processor],
    bus: Bus,
    environment: Environment,
    stop_options: StopOptions,
    session_timeout_s: float,
    health: ListenAddress | None,
    *,
    json: bool,
    traces: bool = False,
    loop: Loop | None = None,
    upstream: Collection[str] = (),
    advice: str | None = None,
) -> None:
    """Run one processor in this process until it is stopped or at the end of its inputs, and print its metrics.

    `advice` says how to read events again. Default: with `penstock reset`.
    """
    plan = plan_of(processor)
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
            until_end=stop_options.until_end,
        ) as worker,
        stop_on_signals(worker.stop, pauses(worker, handed_over)),
        stalls_logged(monitor),
        progress() as bars,
    ):
        ends = wait(lambda: ends_of(plan.sources, bus)) if stop_options.ends else {}
        targets = ends | dict(stop_options.limits.offsets)
        at_end = UntilEnd(
            targets,
            processor.name,
            bus,
            [category.name for category in plan.retry_categories],
            loop=wait(lambda: LoopEnd.of(loop, bus)) if loop is not None and stop_options.until_end else None,
            upstream=upstream,
        )
        tune_memory()
        bar = bars.add_task(processor.__name__, total=None)

        files = OpenFiles()
        waits_for_buckets = BucketWait(processor.name, session_timeout_s)

        def finished(worker: Worker) -> bool:
            nonlocal ages
            monitor.record_turn(worker)
            files.warn_if_short()
            waiting = waits_for_buckets(has_buckets=bool(worker.owned), is_assigned=worker.owns_nothing)
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
    waiting = None if json or worker.metrics.events_out else nothing_written(processor, worker.waits)
    if waiting is not None:
        note(waiting)
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


def nothing_written(processor: type[Processor], waits: Sequence[ShardWait]) -> str | None:
    """Return why a run wrote no record although it read events; None if event time is not the reason.

    Args:
        processor: the processor.
        waits: what the event time of its shards waits for.
    """
    waiting = sorted((wait for wait in waits if wait.events_in), key=lambda wait: (wait.low_ms, wait.number))
    only_pairs = issubclass(processor, Join) and processor.join_type is JoinType.INNER
    if not (waiting and plan_of(processor).emits_without_input) or only_pairs:
        return None
    first = waiting[0]
    reached = "has no watermark yet" if first.low_ms == NEVER_MS else f"has the watermark {format_time(first.low_ms)}"
    held_by = f": {first.held_by}" if first.held_by else ""
    return (
        f"{processor.__name__} has written nothing yet: windows, timers and unmatched rows of {counted(len(waiting), 'bucket')} wait for the watermark. "
        f"Bucket {first.number} {reached}{held_by}. No event is lost. docs/time.md says what moves the watermark, and how to choose it."
    )


def report_rejections(processor: type[Processor], metrics: Metrics) -> None:
    """Print how many events became dead letters, and the command that lists them; exit with an error if all of them did."""
    counts = metrics.counts()
    rejected, read = counts["dead_letters"], counts["events_in"]
    if not (rejected and read):
        return
    if rejected == read:
        print_error(
            f"{processor.__name__} read {counted(read, 'event')} and rejected every one. The reasons are in {dead_letters_of(processor).name}: "
            f"`penstock dead-letters show {processor.name} --limit 1`. "
            "Correct what they name: the processor, or the declared record, codec or key."
        )
        raise typer.Exit(1)
    note(
        f"{processor.__name__} rejected {rejected:,} of {counted(read, 'event')} ({rejected / read:.1%}). They are in "
        f"{dead_letters_of(processor).name}; `penstock dead-letters show {processor.name}` shows the reasons."
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
        states = [bus.catalog.describe(category.name) for category in plan_of(processor).inputs]
        done = sum(
            offset - state.starts[bucket]
            for state in states
            for bucket, offset in bus.catalog.committed(processor.name, state.spec.name).items()
        )
        bars.update(bar, completed=done, total=sum(state.events for state in states))
