"""Workers during an outage: they keep their clients and rest, and finish their work afterwards."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import median_low

import psutil
import pytest
from support.kafka_proxy import KafkaProxy
from support.subjects import EXACT, PAIRS, Subject, events
from support.trials import create_job, expect_guarantees
from support.victims import Job

from penstock.ops.kernel import prepare
from penstock.transport import BusUnreachable
from penstock.transport.kafka import KafkaBus, KafkaSettings

EVENTS = events(1_500)
SUBJECTS = [Subject("stateful", *pair) for pair in PAIRS] + [Subject("stateless", EXACT, EXACT)]
BEGIN_S, WINDOW_S = 8.0, 15.0
"""When the measurement begins, and how long each of its two windows lasts: longer than an attempt to open a writer."""
BUSIEST = 0.1
"""The most processor time of a resting worker, as a share of one core. It needs 0.02 on a quiet machine, and one that does not rest up to 1."""
SPARE = 3
"""By how many threads or descriptors a worker may differ: a client that is left behind has at least four."""
HIDDEN_S = 15.0
"""How long metadata contains no brokers: longer than an attempt to open a writer."""
DONE_LIMIT_S = 400.0
MANY = 16
"""As many workers as a host has processors or more, which wait at the same time."""
LONG_WINDOW_S = 50.0
SLOW_BYTES_PER_S = 20_000.0

Wait = Callable[..., None]


def clients_of(processes: list[psutil.Process], seconds: float) -> list[tuple[int, int]]:
    """Return the median threads and descriptors of each process within some seconds.

    Now and then, it has another client for a comparison, and a second without a writer before it opens the next one.
    """
    counts: list[list[tuple[int, int]]] = [[] for _ in processes]
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for of_process, process in zip(counts, processes, strict=True):
            of_process.append((process.num_threads(), process.num_fds()))
        time.sleep(0.5)
    medians = [tuple(map(median_low, zip(*of_process, strict=True))) for of_process in counts]
    return [(threads, descriptors) for threads, descriptors in medians]


def window_of(processes: list[psutil.Process], seconds: float) -> tuple[list[tuple[int, int]], list[float]]:
    """Return the clients of each process within some seconds, and its processor time as a share of one core."""
    began_s, before_s = time.monotonic(), list(map(used_s, processes))
    clients = clients_of(processes, seconds)
    lasted_s = time.monotonic() - began_s
    return clients, [(used_s(process) - before) / lasted_s for process, before in zip(processes, before_s, strict=True)]


def used_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@pytest.fixture
def jobs(
    request: pytest.FixtureRequest, through_proxy: tuple[str, KafkaProxy], tmp_path: Path, prefix: str
) -> list[Job]:
    """Work for one worker of each subject, or for a given number of workers."""
    bus = KafkaBus(KafkaSettings(through_proxy[0]))
    jobs = []
    for number, subject in enumerate(islice(cycle(SUBJECTS), getattr(request, "param", len(SUBJECTS)))):
        folder = tmp_path / str(number)
        folder.mkdir()
        made = create_job(subject, EVENTS, f"{prefix}.{number}", bus, folder)
        prepare(subject.make(made.prefix), bus).close()
        jobs.append(Job(subject, made.prefix, made.kafka, folder, settings={}, batch=10, endless=True))
    return jobs


@contextmanager
def workers_of(jobs: list[Job], wait_until: Wait) -> Iterator[list[psutil.Process]]:
    """Run a worker for each job: all are in the middle of their work when the block begins, and have finished it when this ends."""
    catalog = KafkaBus(KafkaSettings(jobs[0].kafka)).catalog

    def committed(job: Job) -> int:
        with suppress(BusUnreachable):  # at the end of the outage, this client's connection ends, too
            return sum(catalog.committed(f"{job.prefix}.subject", f"{job.prefix}.events").values())
        return 0

    workers = [job.start() for job in jobs]
    try:
        wait_until(lambda: all(map(committed, jobs)), DONE_LIMIT_S)
        yield [psutil.Process(worker.pid) for worker in workers]
        wait_until(lambda: all(committed(job) >= len(EVENTS) for job in jobs), DONE_LIMIT_S)
        assert [worker.exitcode for worker in workers] == [None] * len(workers)
    finally:
        for worker in workers:
            os.kill(worker.pid or 0, signal.SIGKILL)


@pytest.mark.parametrize("fail", [KafkaProxy.hold_answers, KafkaProxy.refuse], ids=["no answers", "no connections"])
def test_workers_rest_and_finish(
    fail: Callable[[KafkaProxy], None], jobs: list[Job], proxy: KafkaProxy, wait_until: Wait
) -> None:
    """Their threads and descriptors do not grow, they use almost no processor time, and each row's guarantee holds afterwards."""
    expect_rest(fail, jobs, proxy, wait_until, WINDOW_S)


@pytest.mark.exhaustive
@pytest.mark.parametrize("jobs", [MANY], indirect=True)
@pytest.mark.parametrize(
    "fail",
    [
        KafkaProxy.hold_answers,
        KafkaProxy.hold_requests,
        KafkaProxy.refuse,
        partial(KafkaProxy.slow_down, bytes_per_s=SLOW_BYTES_PER_S),
    ],
    ids=["no answers", "no requests", "no connections", "slow"],
)
def test_many_workers_rest_and_finish(
    fail: Callable[[KafkaProxy], None], jobs: list[Job], proxy: KafkaProxy, wait_until: Wait
) -> None:
    """They rest for nearly two minutes, and return together."""
    expect_rest(fail, jobs, proxy, wait_until, LONG_WINDOW_S)


def expect_rest(
    fail: Callable[[KafkaProxy], None], jobs: list[Job], proxy: KafkaProxy, wait_until: Wait, window_s: float
) -> None:
    """Compare the clients of two windows of an outage, and the processor time of the calmer one with the limit; then the results with the guarantees."""
    with workers_of(jobs, wait_until) as processes:
        fail(proxy)
        time.sleep(BEGIN_S)
        (first, busy), (second, later_busy) = (window_of(processes, window_s) for _ in range(2))
        proxy.let_through()
    shares = list(
        map(min, zip(busy, later_busy, strict=True))
    )  # what happens once, such as a collection of garbage, is no unrest
    grown = [
        (number, before, after)
        for number, (before, after) in enumerate(zip(first, second, strict=True))
        if any(later > earlier + SPARE for earlier, later in zip(before, after, strict=True))
    ]
    assert not grown, f"worker, threads and descriptors before and after: {grown}"
    assert max(shares) < BUSIEST, shares
    for job in jobs:
        expect_guarantees(job, EVENTS)


def test_workers_finish_after_metadata_without_brokers(jobs: list[Job], proxy: KafkaProxy, wait_until: Wait) -> None:
    """Clients that connect meanwhile forget all brokers, and never connect again. No worker may stop because of it."""
    few = jobs[::5]  # without transactions, and with them
    with workers_of(few, wait_until):
        proxy.hides_brokers = True
        proxy.disconnect()
        time.sleep(HIDDEN_S)
        proxy.let_through()
    for job in few:
        expect_guarantees(job, EVENTS)
