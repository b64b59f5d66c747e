"""Worker processes that kill themselves with SIGKILL at a named point of a checkpoint, without any cleanup.

A fork server with all imports and no open resources forks them, so they start within milliseconds.
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
from penstock.ops.kernel import Environment, assemble_worker, ends_of, prepare
from penstock.ops.kernel.loop.until_end import UntilEnd
from penstock.ops.shell import stop_on_signals
from penstock.processors import PenstockError
from penstock.processors.declare import plan_of
from penstock.processors.shard import Gap
from penstock.state.files import LocalFileStore
from penstock.state.local import RocksShardState
from penstock.transport.kafka import KafkaBus, KafkaSettings
from penstock.transport.kafka.reader import GroupReader

from .subjects import Subject

LIMIT_S = 240.0
REFUSED = 3
"""The exit code of a worker that ends with a Penstock error."""
STACKS = signal.SIGUSR1
"""Makes a worker print the stacks of its threads."""

SHORT_TIMEOUTS = {"session.timeout.ms": "2000", "heartbeat.interval.ms": "500", "transaction.timeout.ms": "2000"}
"""Short timeouts, so the group and the broker detect a dead worker sooner than in production."""

_processes = get_context("forkserver")


@cache
def fork_server() -> ForkServerContext:
    """Return the context of worker processes, with a fork server that has imported this module.

    Until Python 3.13, a fork server searches its own path for the modules to preload and silently ignores missing ones;
    then each worker would import everything again.
    """
    _processes.set_forkserver_preload(["support.victims"])
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        forkserver.ensure_running()
    return _processes


EVERY_BATCH = ps.CheckpointInterval(events=1)


@dataclass(frozen=True)
class Kill:
    """The point at which a worker is killed or stopped.

    Args:
        gap: the point of the checkpoint; None for an operation of a state.
        checkpoint: the number of the checkpoint, from 1.
        by: the signal, SIGKILL or SIGSTOP.
        operation: the operation of a local state, such as opening, before which the worker is killed, in any shard.
    """

    gap: Gap | None
    checkpoint: int = 2
    by: signal.Signals = signal.SIGKILL
    operation: str = ""


@dataclass(frozen=True)
class Job:
    """The work of a worker process.

    Args:
        subject: the processor.
        prefix: the prefix of its categories.
        kafka: the broker.
        folder: its state folder.
        backups: the backup store for its states, once a second.
        store: the address of its remote store.
        standby: whether it keeps copies of the states of other machines.
        settings: further settings of librdkafka.
        batch: the maximum number of messages of a poll; a checkpoint follows each batch.
        endless: whether it runs until it is stopped, instead of to the end of its input.
        checkpoint: the interval of its checkpoints.
    """

    subject: Subject
    prefix: str
    kafka: str
    folder: Path
    settings: Mapping[str, str] = field(default_factory=lambda: SHORT_TIMEOUTS)
    batch: int = 40
    endless: bool = False
    checkpoint: ps.CheckpointInterval = EVERY_BATCH
    backups: Path | None = None
    store: str | None = None
    standby: bool = False

    def environment(self) -> Environment:
        """Return the worker's environment."""
        backups = None if self.backups is None else LocalFileStore(self.backups)
        return Environment(self.folder, backups, timedelta(seconds=1), self.store, standby=self.standby)

    def start(self, death: Kill | None = None, up: Event | None = None) -> ForkServerProcess:
        """Start the worker, which ends at the current end of its input. It sets `up` when it has joined its group."""
        process = fork_server().Process(target=_work, args=(self, death, up), daemon=True)
        process.start()
        return process

    def run(self, death: Kill | None = None) -> int:
        """Run the worker to its end, and return its exit code."""
        process = self.start(death)
        return exit_code_of(process, LIMIT_S)


def exit_code_of(process: ForkServerProcess, within_s: float) -> int:
    """Wait for the end of a worker, and return its exit code.

    Raises:
        AssertionError: the worker does not end; it prints the stacks of its threads and is killed.
    """
    process.join(within_s)
    if process.exitcode is None:
        os.kill(process.pid or 0, STACKS)
        process.join(1.0)  # time to print the stacks
        process.kill()
        process.join()
        raise AssertionError(f"a worker did not end within {within_s:.0f} s; its stacks are in the captured output")
    return process.exitcode


def shared_event() -> Event:
    """Return an event to share with a worker."""
    return fork_server().Event()


def _work(job: Job, death: Kill | None, up: Event | None = None) -> None:
    faulthandler.enable()
    faulthandler.register(STACKS)
    GroupReader.poll_limit = job.batch  # only for its input; watermarks are read with the usual limit
    bus = KafkaBus(KafkaSettings(job.kafka, job.settings))
    processor = job.subject.make(job.prefix, job.checkpoint)
    checkpoints = 0

    def at_gap(gap: Gap) -> None:
        nonlocal checkpoints
        if death is not None and gap == death.gap:
            checkpoints += 1
            if checkpoints == death.checkpoint:
                os.kill(os.getpid(), death.by)

    if death is not None and death.operation:
        setattr(RocksShardState, death.operation, lambda *_, **__: os.kill(os.getpid(), death.by))
    try:
        targets = ends_of(plan_of(processor).inputs, bus)
        with (
            assemble_worker(prepare(processor, bus), bus, job.environment(), at_gap=at_gap) as worker,
            stop_on_signals(worker.stop),
        ):
            at_end = UntilEnd(targets, processor.name, bus)
            if up is not None:
                up.set()
            worker.run(lambda running: not job.endless and at_end(running))
    except PenstockError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(REFUSED)
