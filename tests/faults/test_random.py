"""Three workers under load, and whatever may befall them at moments that nobody chose; the seed is printed.

`make soak SECONDS=600` runs it for longer.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import synchronize
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
from support.kinds import Event
from support.subjects import EXACT, Subject, events
from support.trials import expect_kept, prepared
from support.verdicts import send
from support.victims import Job, event

import penstock as ps
from penstock.ops.local import LocalServices
from penstock.transport.kafka import KafkaBus, KafkaSettings

SECONDS = float(os.environ.get("SECONDS", "60"))
WORKERS = 3
PIECE = 100
PIECE_EVERY_S = 0.2
END_LIMIT_S = 120.0


class Load:
    """Writes events all the time; remembers how many."""

    def __init__(self, kafka: str, category: str) -> None:
        self._kafka = kafka
        self._category = category
        self._ending = threading.Event()
        self.sent: list[Event] = []

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
            piece = events(PIECE, start=len(self.sent))
            send(self._kafka, self._category, piece)
            self.sent.extend(piece)


class Trouble:
    """Three workers, and what befalls them.

    Args:
        job: what each does.
        rng: chooses.
        restart_broker: takes the broker down and up again.
    """

    def __init__(self, job: Job, rng: random.Random, restart_broker: Callable[[], None]) -> None:
        self._job = job
        self._rng = rng
        self._restart_broker = restart_broker
        self._up: dict[ForkServerProcess, synchronize.Event] = {}
        self._workers = [self._started() for _ in range(WORKERS)]
        self.log: list[str] = []

    def _started(self) -> ForkServerProcess:
        up = event()
        worker = self._job.start(up=up)
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
        worker = self._workers.pop(self._rng.randrange(WORKERS))
        _signal(worker, by)
        worker.join(END_LIMIT_S)
        in_good_order = 0 if by is signal.SIGTERM else -by
        assert worker.exitcode in {in_good_order, -by}, (
            f"a worker ended with {worker.exitcode}"
        )  # -by: it had just begun
        time.sleep(self._rng.choice([0.0, 0.5, 3.0]))  # back at once, or when its buckets have gone to others
        self._workers.append(self._started())

    def _restart(self) -> None:
        for worker in self._workers:  # one that is just starting is told that there is no broker, and ends
            assert self._up[worker].wait(END_LIMIT_S)
        self._restart_broker()

    def _pause(self) -> None:
        worker = self._rng.choice(self._workers)
        _signal(worker, signal.SIGSTOP)
        time.sleep(self._rng.choice([0.3, 1.5, 4.0]))  # shorter and longer than its session
        _signal(worker, signal.SIGCONT)

    def end(self) -> None:
        """Stop all workers in good order."""
        for worker in self._workers:
            _signal(worker, signal.SIGTERM)
        for worker in self._workers:
            worker.join(END_LIMIT_S)
        assert {worker.exitcode for worker in self._workers} <= {0, -signal.SIGTERM}

    def kill_all(self) -> None:
        """Leave no process behind."""
        for worker in self._workers:
            worker.kill()
            worker.join()


def _signal(worker: ForkServerProcess, number: signal.Signals) -> None:
    assert worker.exitcode is None, f"a worker had ended by itself, with {worker.exitcode}"
    os.kill(worker.pid or 0, number)


@pytest.mark.parametrize("kind", ["stateful", "aggregator"])
def test_exactly_once_whatever_happens(kind: str, prefix: str, tmp_path: Path) -> None:
    """Counts, sums, smallest and largest, recomputed from what was sent, are what state and outputs say."""
    seed = int(os.environ.get("SEED", random.randrange(2**32)))
    print(f"seed {seed}: run again with SEED={seed}")  # noqa: T201 - the way back to a failure
    rng = random.Random(seed)
    services = LocalServices(tmp_path / "own")
    kafka = services.up(["kafka"], progress=print)["kafka"].endpoints["bootstrap"]

    def restart_broker() -> None:
        services.down(["kafka"], progress=print)
        services.up(["kafka"], progress=print)

    try:
        often = ps.Every(events=300)
        bus = KafkaBus(KafkaSettings(kafka))
        job = replace(
            prepared(Subject(kind, EXACT, EXACT), [], prefix, bus, tmp_path / "state"),
            endless=True,
            batch=200,
            checkpoint=often,
        )
        load, trouble = Load(kafka, f"{prefix}.events"), Trouble(job, rng, restart_broker)
        try:
            deadline = time.monotonic() + SECONDS / 2
            with load.running():
                while time.monotonic() < deadline:
                    time.sleep(rng.uniform(0.2, 2.0))
                    trouble.strike()
            trouble.end()
        finally:
            trouble.kill_all()
            print(f"{len(load.sent):,} events; {', '.join(trouble.log)}")  # noqa: T201 - what happened
        assert replace(job, endless=False).run() == 0
        expect_kept(job, load.sent)
    finally:
        services.down(["kafka"], progress=print)
