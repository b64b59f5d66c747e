"""Worker processes that kill themselves at a named point of a checkpoint: SIGKILL, so that nothing is tidied up.

They are forked from a process that has imported everything and opened nothing, so one is there in milliseconds.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from multiprocessing import forkserver, get_context
from multiprocessing.context import ForkServerContext, ForkServerProcess
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

import penstock as ps
from penstock.ops.cli.signals import stop_on_signals
from penstock.ops.worker.assembly import Environment, assemble_worker
from penstock.ops.worker.preflight import ends_of, prepare
from penstock.ops.worker.until_end import UntilEnd
from penstock.processors.errors import PenstockError
from penstock.processors.shard.checkpoints import Gap
from penstock.state.files.local_files import LocalFileStore
from penstock.state.local.rocksdb import RocksShardState
from penstock.transport.kafka import KafkaBus, KafkaSettings
from penstock.transport.kafka.reader import GroupReader

from .subjects import Subject

LIMIT_S = 90.0
REFUSED = 3
"""How a worker ends that was stopped by one of our errors."""
STACKS = signal.SIGUSR1
"""Has a worker print what each of its threads is doing."""

HASTY = {"session.timeout.ms": "2000", "heartbeat.interval.ms": "500", "transaction.timeout.ms": "2000"}
"""A group that misses a dead member, and a broker that ends its transaction, sooner than they would in earnest."""

_processes = get_context("forkserver")


@cache
def forking() -> ForkServerContext:
    """Return where worker processes come from: the server that forks them is there, and has imported this module.

    Until Python 3.13 such a server looks for what it is to import on its own path instead of ours, and is silent about what it does not find:
    each worker would import everything again.
    """
    _processes.set_forkserver_preload(["support.victims"])
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        forkserver.ensure_running()
    return _processes


EVERY_BATCH = ps.CheckpointInterval(events=1)


@dataclass(frozen=True)
class Death:
    """Where a worker dies, or stands still.

    Args:
        gap: the point of the checkpoint; None for an operation of a state.
        checkpoint: in which of its checkpoints, from 1.
        by: SIGKILL, or SIGSTOP.
        operation: the operation of a local state before which it dies, in whichever shard that comes first: as it is opened, for example.
    """

    gap: Gap | None
    checkpoint: int = 2
    by: signal.Signals = signal.SIGKILL
    operation: str = ""


@dataclass(frozen=True)
class Job:
    """What a worker process does.

    Args:
        subject: its processor.
        prefix: how its categories' names begin.
        kafka: the broker.
        folder: its state folder.
        backups: where its states are backed up, once a second.
        store: the address of its remote store.
        settings: further settings of librdkafka.
        batch: how many messages it takes at most at a time; a checkpoint follows each batch.
        endless: whether it works until it is told to stop, and not to the end of its input.
        checkpoint: when its checkpoints fall.
    """

    subject: Subject
    prefix: str
    kafka: str
    folder: Path
    settings: Mapping[str, str] = field(default_factory=lambda: HASTY)
    batch: int = 40
    endless: bool = False
    checkpoint: ps.CheckpointInterval = EVERY_BATCH
    backups: Path | None = None
    store: str | None = None

    def around(self) -> Environment:
        """Return what the worker has around it."""
        place = None if self.backups is None else LocalFileStore(self.backups)
        return Environment(self.folder, place, timedelta(seconds=1), self.store)

    def start(self, death: Death | None = None, up: Event | None = None) -> ForkServerProcess:
        """Start the worker; it ends when it has read what is there now, or dies before. It sets `up` when it is a member."""
        process = forking().Process(target=_work, args=(self, death, up), daemon=True)
        process.start()
        return process

    def run(self, death: Death | None = None) -> int:
        """Run the worker to its end; how it ended."""
        process = self.start(death)
        return ended(process, LIMIT_S)


def ended(process: ForkServerProcess, within_s: float) -> int:
    """Wait for a worker to end; how it ended.

    Raises:
        AssertionError: it does not; what its threads are doing is printed, and it is killed.
    """
    process.join(within_s)
    if process.exitcode is None:
        os.kill(process.pid or 0, STACKS)
        process.join(1.0)  # for its stacks to be written
        process.kill()
        process.join()
        raise AssertionError(
            f"a worker did not end within {within_s:.0f} s; what it was doing is in the captured output"
        )
    return process.exitcode


def event() -> Event:
    """Return an event to share with a worker."""
    return forking().Event()


def _work(job: Job, death: Death | None, up: Event | None = None) -> None:
    faulthandler.enable()
    faulthandler.register(STACKS)
    GroupReader.poll_limit = job.batch  # only here: promises are read as in earnest
    bus = KafkaBus(KafkaSettings(job.kafka, job.settings))
    processor = job.subject.make(job.prefix, job.checkpoint)
    seen = 0

    def at_gap(gap: Gap) -> None:
        nonlocal seen
        if death is not None and gap == death.gap:
            seen += 1
            if seen == death.checkpoint:
                os.kill(os.getpid(), death.by)

    if death is not None and death.operation:
        setattr(RocksShardState, death.operation, lambda *_, **__: os.kill(os.getpid(), death.by))
    try:
        targets = ends_of(processor.inputs(), bus)
        with (
            assemble_worker(prepare(processor, bus), bus, job.around(), at_gap=at_gap) as worker,
            stop_on_signals(worker.stop),
        ):
            at_end = UntilEnd(targets, processor.name, bus)
            if up is not None:
                up.set()
            worker.run(lambda it: not job.endless and at_end(it))
    except PenstockError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(REFUSED)
