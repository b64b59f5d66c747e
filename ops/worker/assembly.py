"""Assembly of a worker from its environment: its identity, states, backups, threads and reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from ...processors.apps.loops import Loop
from ...processors.declare.aggregator import Aggregator
from ...processors.declare.processor import Processor
from ...processors.declare.stores import RemoteStore, WriteMode
from ...processors.errors import PenstockError
from ...processors.keyed_state.state_cache import STATE_CACHE
from ...processors.shard.checkpoints import Gap
from ...state.backups.retention import Retention
from ...state.backups.scheduler import THE_NEWEST
from ...state.files.file_store import FileStore
from ...state.local.folder import RocksStateFolder
from ...state.protocols import ShardIdentity, StateFolder
from ...state.remote import compactor_of, remote_states
from ...transport.bus import Bus
from ..logs.event_fields import EventFields
from ..logs.setup import with_log_fields, with_log_filter
from .backup_protocol import NoBackups
from .backups import WorkerBackups
from .identity import worker_identity
from .memory import FreedMemory, default_memory_bytes
from .offset_limits import NO_LIMITS, RunLimits
from .revocation_note import leave_group
from .status_reports import StatusReporter
from .trace_context import CONTEXT_FORWARDER, EventTracer
from .transaction_sweeper import sweeping
from .worker import Worker, WorkerConfig

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
    """
    STATE_CACHE.limit_bytes = environment.state_cache_bytes or default_memory_bytes()
    with (
        worker_identity(environment.state, processor.name, number) as identity,
        with_log_fields(processor=processor.name, worker=identity.name),
        with_log_filter(EventFields()),
        ThreadPoolExecutor(OPENING_THREADS) as threads,
        ThreadPoolExecutor(1) as saver,
        ThreadPoolExecutor(1) as requests,
        _states(type(processor), environment) as states,
    ):
        backups = backups or backups_of(environment)
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
        )
        with closing(StatusReporter(type(processor), bus, identity, environment.state, backups)) as reporter:
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
                after_turn=after_turn,
                requests=requests,
            )
            if backups is not None:
                worker.metrics.restores = backups.restores
            shape = processor.state_shape()
            if backups is not None and environment.standby and shape is not None:
                backups.stand_by(lambda bucket: ShardIdentity(processor.name, bucket, shape), processor.name)
                worker.metrics.standby = backups.standby
            with reporter.reporting_end(worker), sweeping(worker.sweeper()):
                yield worker


@contextmanager
def _states(processor: type[Processor], environment: Environment) -> Iterator[StateFolder]:
    """Yield the states that a processor declares: in the local folder, or in a remote store, with compaction of partials."""
    if not (issubclass(processor, Aggregator) and isinstance(processor.store, RemoteStore)):
        yield RocksStateFolder(environment.state, default_memory_bytes())
        return
    if environment.store is None:
        raise StoreMissing(
            f"{processor.__name__} keeps its state in a remote store, and none is configured. Nothing was read. Name it with --store "
            "postgresql://… or redis://…, or in the environment variable PENSTOCK_STORE."
        )
    with closing(remote_states(environment.store, processor, write_mode=processor.store.write_mode)) as states:
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
