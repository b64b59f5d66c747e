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
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import synchronize
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
from support.kinds import KINDS
from support.subjects import EXACT, Subject, events
from support.trials import Source, create_job, expect_guarantees
from support.victims import Job, exit_code_of, shared_event

import penstock as ps
from penstock.ops.start.dev_services.services import LocalServices
from penstock.transport import BusUnreachable
from penstock.transport.kafka import KafkaBus, KafkaSettings

SECONDS = float(os.environ.get("SECONDS", "60"))
WORKERS = 3
PIECE = 100
PIECE_EVERY_S = 0.2
END_LIMIT_S = 240.0
TOGETHER = [("stateful", "sessions"), ("aggregator", "joining"), ("timers", "downstream")]
"""Kinds under test on one broker: counting and merging, a writer of updates with a join, and watermarks from one to the other.
"downstream" includes "closing" and "injected". "ordered" and "merging" are absent: they differ only in their state, which
the tests of every gap cover. All run exactly once, where any loss and any repetition shows.
"""


class Load:
    """Writes events continuously; the sources record them."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._ending = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Write until the block ends."""
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


class FaultInjector:
    """Three workers of each job, with random faults.

    Args:
        jobs: the jobs of the workers.
        rng: the source of choices.
        bus: contains the outputs.
        services: the broker.
        wait_until: waits for a condition, with a limit.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        rng: random.Random,
        bus: KafkaBus,
        services: LocalServices,
        wait_until: Callable[[Callable[[], bool]], None],
    ) -> None:
        self._rng = rng
        self._bus = bus
        self._services = services
        self._wait_until = wait_until
        self._outputs = [f"{job.prefix}.{KINDS[job.subject.kind].writes}" for job in jobs]
        self._up: dict[ForkServerProcess, synchronize.Event] = {}
        self._workers = [(job, self._started(job)) for job in jobs for _ in range(WORKERS)]
        self.log: list[str] = []

    def _started(self, job: Job) -> ForkServerProcess:
        up = shared_event()
        worker = job.start(up=up)
        self._up[worker] = up
        return worker

    def inject_fault(self) -> None:
        """Inject one random fault."""
        fault = self._rng.choices([self._kill, self._pause, self._stop, self._restart], [4, 3, 3, 1])[0]
        self.log.append(fault.__name__.strip("_"))
        fault()

    def _kill(self) -> None:
        self._end(signal.SIGKILL)

    def _stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, by: signal.Signals) -> None:
        job, worker = self._workers.pop(self._rng.randrange(len(self._workers)))
        _signal(worker, by)
        clean_exit = 0 if by is signal.SIGTERM else -by
        assert exit_code_of(worker, END_LIMIT_S) in {clean_exit, -by}  # -by: it had only just started
        time.sleep(self._rng.choice([0.0, 0.5, 3.0]))  # at once, or after its buckets have moved
        self._workers.append((job, self._started(job)))

    def _restart(self) -> None:
        for _, worker in self._workers:  # a worker that is starting ends without a broker
            assert self._up[worker].wait(END_LIMIT_S)
        # Kafka 4.3 with one replica forgets markers of a transaction that it is ending when it stops: a committed transaction then counts in a
        # part of its buckets only. So the workers are paused until their transactions have ended; the outage begins before they continue.
        self._signal_all(signal.SIGSTOP)
        self._wait_until(self._have_transactions_ended)
        self._services.down(["kafka"], progress=print)
        self._signal_all(signal.SIGCONT)
        self._services.up(["kafka"], progress=print)

    def _have_transactions_ended(self) -> bool:
        catalog = self._bus.catalog
        with suppress(BusUnreachable):  # after a restart, this process's client rests before it connects again
            return all(catalog.stable_ends(name) == catalog.ends(name) for name in self._outputs)
        return False

    def _signal_all(self, number: signal.Signals) -> None:
        for _, worker in self._workers:
            _signal(worker, number)

    def _pause(self) -> None:
        _, worker = self._rng.choice(self._workers)
        _signal(worker, signal.SIGSTOP)
        time.sleep(self._rng.choice([0.3, 1.5, 4.0]))  # shorter and longer than its session
        _signal(worker, signal.SIGCONT)

    def end(self) -> None:
        """Stop all workers cleanly."""
        self._signal_all(signal.SIGTERM)
        assert {exit_code_of(worker, END_LIMIT_S) for _, worker in self._workers} <= {0, -signal.SIGTERM}

    def kill_all(self) -> None:
        """Kill all workers."""
        for _, worker in self._workers:
            worker.kill()
            worker.join()


def _signal(worker: ForkServerProcess, number: signal.Signals) -> None:
    assert worker.exitcode is None, f"a worker had ended by itself, with {worker.exitcode}"
    os.kill(worker.pid or 0, number)


@pytest.mark.parametrize(
    "kinds", [TOGETHER[0], *(pytest.param(kinds, marks=pytest.mark.exhaustive) for kinds in TOGETHER[1:])], ids="-".join
)
def test_random_faults_keep_results_exactly_once(
    kinds: tuple[str, str], prefix: str, tmp_path: Path, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    """Counts, sums, sessions and pairs in state and outputs equal those recomputed from the sent events."""
    seed = int(os.environ.get("SEED", random.randrange(2**32)))
    print(f"seed {seed}: run again with SEED={seed}")  # noqa: T201 - to reproduce a failure
    rng = random.Random(seed)
    services = LocalServices(tmp_path / "own")
    kafka = services.up(["kafka"], progress=print)["kafka"].endpoints["bootstrap"]

    try:
        bus = KafkaBus(KafkaSettings(kafka))
        trials = trials_of(kinds, prefix, bus, tmp_path)
        faults = FaultInjector([job for job, _ in trials], rng, bus, services, wait_until)
        try:
            deadline = time.monotonic() + SECONDS / len(TOGETHER)
            with Load([source for job, source in trials if job.subject.kind != "downstream"]).running():
                while time.monotonic() < deadline:
                    time.sleep(rng.uniform(0.1, 1.0))
                    faults.inject_fault()
            faults.end()
        finally:
            faults.kill_all()
            print(f"{len(trials[0][1].sent):,} events; {', '.join(faults.log)}")  # noqa: T201 - the log of faults
        for job, source in trials:
            assert replace(job, endless=False).run() == 0
            expect_guarantees(job, source.sent)
    finally:
        services.down(["kafka"], progress=print)


def trials_of(kinds: Sequence[str], prefix: str, bus: KafkaBus, folder: Path) -> list[tuple[Job, Source]]:
    """Prepare jobs, upstream first, each with the source of its events or of its upstream job's."""
    often = ps.CheckpointInterval(events=300)
    trials: list[tuple[Job, Source]] = []
    for kind in kinds:
        subject = Subject(kind, EXACT, EXACT)
        of_its_own = prefix if "downstream" in kinds else f"{prefix}.{kind}"
        job = create_job(subject, [], of_its_own, bus, folder / "state")
        source = trials[-1][1] if kind == "downstream" else Source(subject, of_its_own, bus)
        trials.append((replace(job, endless=True, batch=200, checkpoint=often), source))
    return trials
