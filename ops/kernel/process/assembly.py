"""Assembly of a worker from its environment: its identity, states, backups, threads and reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path

from ....processors import PenstockError
from ....processors.apps import Loop
from ....processors.declare import Aggregator, Processor, RemoteStore, WriteMode, plan_of
from ....processors.keyed_state import STATE_CACHE
from ....processors.shard import Gap
from ....state import ShardIdentity, StateFolder
from ....state.backups import THE_NEWEST, Retention
from ....state.files import FileStore
from ....state.local import RocksStateFolder
from ....state.remote import compactor_of, remote_states
from ....transport import Bus
from ...shell import EventFields, with_log_fields, with_log_filter
from ..checkpoint import leave_group, sweeping, ticking
from ..loop import NO_LIMITS, RunLimits, Worker, WorkerConfig
from ..shards import NoBackups, WorkerBackups
from ..telemetry import CONTEXT_FORWARDER, STATE_STORE, EventTracer, Waits
from .identity import worker_identity
from .memory import FreedMemory, default_memory_bytes
from .status_reports import StatusReporter

OPENING_THREADS = 4
"""The number of shards that a worker opens at a time."""


class StoreMissing(PenstockError):
    """A processor needs a remote store, and none is configured: name it."""


@dataclass(frozen=True)
class Environment:
    """Resources of a worker on this machine.

    Args:
        state: the folder of all states.
        backups: the backup store of the states; None for no backups.
        backup_every: the interval between backups.
        retention: which backups are kept.
        store: the address of the store for remote state; may contain a password, so it is never shown.
        state_cache_bytes: the memory for decoded states of all shards; None for a share of the machine's or container's memory.
        standby: whether the worker keeps copies of the states that other machines own.
    """

    state: Path
    backups: FileStore | None = None
    backup_every: timedelta = timedelta(minutes=1)
    store: str | None = field(default=None, repr=False)
    state_cache_bytes: int | None = None
    retention: Retention = THE_NEWEST
    standby: bool = False


@contextmanager
def assemble_worker(
    processor: Processor,
    bus: Bus,
    environment: Environment,
    *,
    number: int | None = None,
    from_earliest: bool = False,
    limits: RunLimits = NO_LIMITS,
    at_gap: Callable[[Gap], None] = lambda _: None,
    backups: WorkerBackups | None = None,
    call_bus: Callable[[Callable[[], None]], None] = lambda call: call(),
    tracer: EventTracer = CONTEXT_FORWARDER,
    loop: Loop | None = None,
    until_end: bool = False,
) -> Iterator[Worker]:
    """Yield a worker of this machine, ready to run.

    Args:
        processor: open.
        bus: contains its categories.
        environment: the worker's resources.
        number: its number under its supervisor, as for `worker_identity`.
        from_earliest: whether expired events may be skipped.
        limits: where its buckets end for it, whatever comes after that.
        at_gap: called in each gap of a checkpoint.
        backups: the result of `backups_of` for this environment, if the caller needs it, too.
        call_bus: calls the bus at the start; may repeat the call while no broker answers. By default it calls once.
        tracer: traces the events; the caller closes it.
        loop: as for `WorkerConfig`.
        until_end: whether it stops at the end of its input, for its reports.
    """
    backups = backups or backups_of(environment)
    waits = Waits() if backups is None else backups.waits
    STATE_CACHE.limit_bytes = environment.state_cache_bytes or default_memory_bytes()
    with (
        worker_identity(environment.state, processor.name, number) as identity,
        with_log_fields(processor=processor.name, worker=identity.name),
        with_log_filter(EventFields()),
        ThreadPoolExecutor(OPENING_THREADS) as threads,
        ThreadPoolExecutor(1) as saver,
        ThreadPoolExecutor(1) as requests,
        _states(type(processor), environment, waits) as states,
    ):
        if identity.revocations.is_unfinished:
            call_bus(lambda: leave_group(type(processor), bus, identity.name))
            identity.revocations.end()
        config = WorkerConfig(
            bus,
            states,
            identity.name,
            backups or NoBackups(),
            identity.revocations,
            takes_snapshots=True,
            tracer=tracer,
            loop=loop,
            waits=waits,
        )
        reports = StatusReporter(type(processor), bus, identity, environment.state, backups, until_end=until_end)
        with closing(reports) as reporter:
            freed = FreedMemory()

            def after_turn(worker: Worker) -> None:
                reporter.report_if_due(worker)
                freed.return_if_grown()

            worker = Worker(
                processor,
                config,
                threads,
                saver,
                from_earliest=from_earliest,
                limits=limits,
                at_gap=at_gap,
                after_opening=reporter.add_opened,
                after_turn=after_turn,
                requests=requests,
            )
            if backups is not None:
                worker.metrics.restores = backups.restores
            shape = plan_of(processor).state_shape
            if backups is not None and environment.standby and shape is not None:
                standby = backups.stand_by(lambda bucket: ShardIdentity(processor.name, bucket, shape), processor.name)
                worker.metrics.standby_shards = lambda: standby.current

            def tick() -> None:
                worker.tick()
                reporter.report_wait(worker)

            reporter.report_start(worker)
            with reporter.reporting_end(worker), sweeping(worker.sweeper()), ticking(tick):
                yield worker


@contextmanager
def _states(processor: type[Processor], environment: Environment, waits: Waits) -> Iterator[StateFolder]:
    """Yield the states that a processor declares: in the local folder, or in a remote store, with compaction of partials."""
    if not (issubclass(processor, Aggregator) and isinstance(processor.store, RemoteStore)):
        yield RocksStateFolder(environment.state, default_memory_bytes(), plan_of(processor).inputs[0].buckets)
        return
    if environment.store is None:
        raise StoreMissing(
            f"{processor.__name__} keeps its state in a remote store, and none is configured. Nothing was read. Name it with --store "
            "postgresql://… or redis://…, or in the environment variable PENSTOCK_STORE."
        )
    with closing(
        remote_states(
            environment.store,
            processor,
            write_mode=processor.store.write_mode,
            waiting=partial(waits.until_answered, STATE_STORE),
        )
    ) as states:
        if processor.store.write_mode is not WriteMode.APPEND:
            yield states
            return
        with closing(compactor_of(environment.store, processor)) as compactor:
            compactor.start()
            yield states


def backups_of(environment: Environment) -> WorkerBackups | None:
    """Return the backups of one worker's states; None without a backup store."""
    if environment.backups is None:
        return None
    return WorkerBackups(environment.backups, environment.state, environment.backup_every, environment.retention)
