"""A worker with its environment: its identity, its states, its threads, and the tuning of its process."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from ...processors.declare.aggregator import Aggregator
from ...processors.declare.processor import Processor
from ...processors.declare.stores import RemoteStore, WriteMode
from ...processors.errors import PenstockError
from ...processors.shard.checkpoints import Gap
from ...state.files.file_store import FileStore
from ...state.local.folder import RocksStateFolder
from ...state.protocols import StateFolder
from ...state.remote import compactor_of, remote_states
from ...transport.bus import Bus
from ..logs.setup import with_log_fields
from .backups import WorkerBackups
from .identity import worker_identity
from .revocation_note import leave_group
from .shard_loader import NoBackups
from .status_reports import StatusReporter
from .transaction_sweeper import SweepThread
from .worker import Worker, WorkerConfig

OPENING_THREADS = 4
"""How many shards a worker opens side by side."""


class StoreMissing(PenstockError):
    """A processor needs a remote store, and none was named: name it."""


@dataclass(frozen=True)
class Environment:
    """What a worker of this machine has around it.

    Args:
        state: the folder of all states.
        backups: where states are backed up; None for nowhere.
        backup_every: how often.
        store: the address of the store for remote state; may hold a password, never shown.
    """

    state: Path
    backups: FileStore | None = None
    backup_every: timedelta = timedelta(minutes=1)
    store: str | None = field(default=None, repr=False)


@contextmanager
def assembled(
    processor: Processor,
    bus: Bus,
    around: Environment,
    *,
    from_earliest: bool = False,
    at_gap: Callable[[Gap], None] = lambda _: None,
    backups: WorkerBackups | None = None,
    when_answered: Callable[[Callable[[], None]], None] = lambda ask: ask(),
) -> Iterator[Worker]:
    """Give a worker of this machine, ready to run.

    Args:
        processor: opened.
        bus: where its categories are.
        around: what it has around it.
        from_earliest: whether events that are gone from the bus may be left out.
        at_gap: called in each gap of a checkpoint.
        backups: what `backups_of` gave for these surroundings, for whoever wants to ask it meanwhile.
        when_answered: calls Kafka at the start, again and again where no broker answers; by default once.
    """
    with (
        worker_identity(around.state, processor.name) as identity,
        with_log_fields(processor=processor.name, worker=identity.name),
        ThreadPoolExecutor(OPENING_THREADS) as threads,
        ThreadPoolExecutor(1) as saver,
        ThreadPoolExecutor(1) as asker,
        _states(type(processor), around) as states,
    ):
        backups = backups or backups_of(around)
        if identity.letting_go.was_under_way:
            when_answered(lambda: leave_group(type(processor), bus, identity.name))
            identity.letting_go.end()
        place = WorkerConfig(bus, states, identity.name, backups or NoBackups(), identity.letting_go)
        with closing(StatusReporter(type(processor), bus, identity, backups)) as reporting:
            worker = Worker(
                processor,
                place,
                threads,
                saver,
                from_earliest=from_earliest,
                at_gap=at_gap,
                after_turn=reporting.look,
                asker=asker,
            )
            with reporting.ending(worker), _sweeping(worker):
                yield worker


@contextmanager
def _sweeping(worker: Worker) -> Iterator[None]:
    """Have what others left open ended in the block."""
    sweeper = worker.sweeper()
    if sweeper is None:
        yield
        return
    with closing(SweepThread(sweeper)):
        yield


@contextmanager
def _states(processor: type[Processor], around: Environment) -> Iterator[StateFolder]:
    """Give the states that a processor declares: in the folder, or in the store, whose partials are merged meanwhile."""
    if not (issubclass(processor, Aggregator) and isinstance(processor.store, RemoteStore)):
        yield RocksStateFolder(around.state)
        return
    if around.store is None:
        raise StoreMissing(
            f"{processor.__name__} keeps its state in a remote store, and none is named. Nothing was read. Name it with --store "
            "postgresql://… or redis://…, or in the environment variable PENSTOCK_STORE."
        )
    with closing(remote_states(around.store, processor, write_mode=processor.store.write_mode)) as states:
        if processor.store.write_mode is not WriteMode.APPEND:
            yield states
            return
        with closing(compactor_of(around.store, processor)) as compactor:
            compactor.start()
            yield states


def backups_of(around: Environment) -> WorkerBackups | None:
    """Return what is to back up the states of one worker there; None where none are backed up."""
    if around.backups is None:
        return None
    return WorkerBackups(around.backups, around.state, around.backup_every)


YOUNG_OBJECTS = 200_000


def tune_gc() -> None:
    """Let the cycle collector run seldom, in a process that does nothing but run a worker.

    A batch makes tens of thousands of objects that are all still needed a moment later; looking at them over and over took a
    sixth of the time of a counting worker. Circles are still found, later.
    """
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 50, 100)
