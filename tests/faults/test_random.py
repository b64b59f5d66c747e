"""Workers under load, with faults at random times; the seed is printed.

`make soak SECONDS=600` runs it for longer.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import synchronize
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
from support.subjects import EXACT, Subject, events
from support.trials import Source, expect_kept, prepared
from support.victims import Job, ended, event

import penstock as ps
from penstock.ops.dev_services import LocalServices
from penstock.transport.kafka import KafkaBus, KafkaSettings

SECONDS = float(os.environ.get("SECONDS", "60"))
WORKERS = 3
PIECE = 100
PIECE_EVERY_S = 0.2
END_LIMIT_S = 120.0
TOGETHER = [("stateful", "sessions"), ("aggregator", "joining"), ("timers", "downstream")]
"""What is in trouble together, on one broker: counting and merging, what writes updates and what reads two inputs, and promises from one to
the other. "closing" and "injected" are within "downstream"; "ordered" and "merging" are not here: what they add lies in the state alone,
which the killing in every gap looks at. All exactly once, where any loss and any repetition shows.
"""


class Load:
    """Writes events all the time; the sources remember which."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._ending = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Write until the block is left."""
        thread = threading.Thread(target=self._write)
        thread.start()
        try:
            yield
        finally:
            self._ending.set()
            thread.join()

    def _write(self) -> None:
        while not self._ending.wait(PIECE_EVERY_S):
            for source in self._sources:
                source.send(events(PIECE, start=len(source.sent)))


class Trouble:
    """Three workers of each job, and what befalls them.

    Args:
        jobs: what they do.
        rng: chooses.
        restart_broker: takes the broker down and up again.
    """

    def __init__(self, jobs: Sequence[Job], rng: random.Random, restart_broker: Callable[[], None]) -> None:
        self._rng = rng
        self._restart_broker = restart_broker
        self._up: dict[ForkServerProcess, synchronize.Event] = {}
        self._workers = [(job, self._started(job)) for job in jobs for _ in range(WORKERS)]
        self.log: list[str] = []

    def _started(self, job: Job) -> ForkServerProcess:
        up = event()
        worker = job.start(up=up)
        self._up[worker] = up
        return worker

    def strike(self) -> None:
        """Let something happen."""
        happens = self._rng.choices([self._kill, self._pause, self._stop, self._restart], [4, 3, 3, 1])[0]
        self.log.append(happens.__name__.strip("_"))
        happens()

    def _kill(self) -> None:
        self._end(signal.SIGKILL)

    def _stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, by: signal.Signals) -> None:
        job, worker = self._workers.pop(self._rng.randrange(len(self._workers)))
        _signal(worker, by)
        in_good_order = 0 if by is signal.SIGTERM else -by
        assert ended(worker, END_LIMIT_S) in {in_good_order, -by}  # -by: it had just begun
        time.sleep(self._rng.choice([0.0, 0.5, 3.0]))  # back at once, or when its buckets have gone to others
        self._workers.append((job, self._started(job)))

    def _restart(self) -> None:
        for _, worker in self._workers:  # a starting worker finds no broker, and ends
            assert self._up[worker].wait(END_LIMIT_S)
        self._restart_broker()

    def _pause(self) -> None:
        _, worker = self._rng.choice(self._workers)
        _signal(worker, signal.SIGSTOP)
        time.sleep(self._rng.choice([0.3, 1.5, 4.0]))  # shorter and longer than its session
        _signal(worker, signal.SIGCONT)

    def end(self) -> None:
        """Stop all workers cleanly."""
        for _, worker in self._workers:
            _signal(worker, signal.SIGTERM)
        assert {ended(worker, END_LIMIT_S) for _, worker in self._workers} <= {0, -signal.SIGTERM}

    def kill_all(self) -> None:
        """Leave no process behind."""
        for _, worker in self._workers:
            worker.kill()
            worker.join()


def _signal(worker: ForkServerProcess, number: signal.Signals) -> None:
    assert worker.exitcode is None, f"a worker had ended by itself, with {worker.exitcode}"
    os.kill(worker.pid or 0, number)


@pytest.mark.parametrize("kinds", TOGETHER, ids="-".join)
def test_exactly_once_whatever_happens(kinds: tuple[str, str], prefix: str, tmp_path: Path) -> None:
    """Counts, sums, sessions and pairs, recomputed from what was sent, are what state and outputs say."""
    seed = int(os.environ.get("SEED", random.randrange(2**32)))
    print(f"seed {seed}: run again with SEED={seed}")  # noqa: T201 - the way back to a failure
    rng = random.Random(seed)
    services = LocalServices(tmp_path / "own")
    kafka = services.up(["kafka"], progress=print)["kafka"].endpoints["bootstrap"]

    def restart_broker() -> None:
        services.down(["kafka"], progress=print)
        services.up(["kafka"], progress=print)

    try:
        bus = KafkaBus(KafkaSettings(kafka))
        trials = trials_of(kinds, prefix, bus, tmp_path)
        trouble = Trouble([job for job, _ in trials], rng, restart_broker)
        try:
            deadline = time.monotonic() + SECONDS / len(TOGETHER)
            with Load([source for job, source in trials if job.subject.kind != "downstream"]).running():
                while time.monotonic() < deadline:
                    time.sleep(rng.uniform(0.1, 1.0))
                    trouble.strike()
            trouble.end()
        finally:
            trouble.kill_all()
            print(f"{len(trials[0][1].sent):,} events; {', '.join(trouble.log)}")  # noqa: T201 - what happened
        for job, source in trials:
            assert replace(job, endless=False).run() == 0
            expect_kept(job, source.sent)
    finally:
        services.down(["kafka"], progress=print)


def trials_of(kinds: Sequence[str], prefix: str, bus: KafkaBus, folder: Path) -> list[tuple[Job, Source]]:
    """Prepare subjects, in the order in which they read from one another; with what writes their events, or those of the one before."""
    often = ps.CheckpointInterval(events=300)
    trials: list[tuple[Job, Source]] = []
    for kind in kinds:
        subject = Subject(kind, EXACT, EXACT)
        of_its_own = prefix if "downstream" in kinds else f"{prefix}.{kind}"
        job = prepared(subject, [], of_its_own, bus, folder / "state")
        source = trials[-1][1] if kind == "downstream" else Source(subject, of_its_own, bus)
        trials.append((replace(job, endless=True, batch=200, checkpoint=often), source))
    return trials
