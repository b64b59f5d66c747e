"""A remote store fails under a running worker: lost connections, outages, restarts, ended sessions; each event counts once.

The tests print their random seeds.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.context import ForkServerProcess
from multiprocessing.synchronize import Event as Up
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from support import victims
from support.databases import Postgres, Redis
from support.kinds import Event
from support.proxy import Proxy
from support.subjects import BUCKETS, EXACT, LEAST, Subject, events
from support.trials import create_job, expect_remote_guarantees
from support.verdicts import send
from support.victims import SHORT_TIMEOUTS, Job, Kill

import penstock as ps
from penstock.ops.kernel.process import assembly
from penstock.state.remote import remote_states
from penstock.transport.kafka import KafkaBus

PIECE = 50
UNREAD = 500
"""The maximum number of unread events, so that a slow machine can finish in time."""
WAIT_LIMIT_S = 240.0
LOCKED_FOR_S = 10
"""How long the client that takes locks waits before it looks for deadlocks. The worker does so after a second."""
CUTS = 12
RESTARTS = 2
TERMINATIONS = 6
LONGEST_POLL_S = 10.0
GIVES_UP_S = 0.3
"""How long a write waits for its store in workers that must give up."""

HASTY_POLLS = {
    **SHORT_TIMEOUTS,
    # As long as possible: a worker that gets no processor for a while stays a member, too.
    "session.timeout.ms": str(int(LONGEST_POLL_S * 1000)),
    "max.poll.interval.ms": str(int(LONGEST_POLL_S * 1000)),
}
EXACTLY = {writing: Subject("aggregator", EXACT, EXACT, ps.RemoteStore(writing)) for writing in ps.WriteMode}
READING = EXACTLY[ps.WriteMode.READ_MODIFY_WRITE]
"""Reads values from the store between checkpoints, too."""
APPENDING = EXACTLY[ps.WriteMode.APPEND]
"""A repeated merge counts twice, since nothing is overwritten."""
AT_LEAST = Subject("aggregator", LEAST, LEAST, ps.RemoteStore(ps.WriteMode.APPEND))

SAVED = {Postgres: b"COMMIT\0", Redis: b"*3\r\n$32"}
"""A part of the answer to a commit: the merge succeeded, and only the answer is lost."""

Wait = Callable[..., None]
Store = Postgres | Redis


@dataclass(frozen=True)
class LoggedJob(Job):
    """A worker with a log file, and with a shorter store timeout on request.

    Args:
        patience_s: how long a write waits for the store; the product's default without one.
    """

    patience_s: float | None = field(default=None, kw_only=True)

    def start(self, death: Kill | None = None, up: Up | None = None) -> ForkServerProcess:
        """Start the worker."""
        process = victims.fork_server().Process(target=_work, args=(self, death, up), daemon=True)
        process.start()
        return process

    def logged(self, words: str) -> int:
        """Count the log lines with these words."""
        log = self.folder / "log"
        return sum(words in line for line in log.read_text().splitlines()) if log.exists() else 0


def _work(job: LoggedJob, death: Kill | None, up: Up | None) -> None:
    logging.basicConfig(filename=job.folder / "log", level=logging.INFO)
    with pytest.MonkeyPatch.context() as patch:
        if job.patience_s is not None:
            patch.setattr(assembly, "remote_states", partial(remote_states, retry_limit_s=job.patience_s))
        victims._work(job, death, up)


class Trial:
    """A running worker, and its events."""

    def __init__(self, job: LoggedJob, bus: KafkaBus, wait_until: Wait) -> None:
        self.job = job
        self.wait_until = wait_until
        self._bus = bus
        self._sent: list[Event] = []
        self._worker = job.start()

    def _load(self) -> None:
        """Send a few more events, unless enough are unread."""
        if len(self._sent) - self._committed() >= UNREAD:
            return
        piece = events(PIECE, start=len(self._sent))
        send(self.job.kafka, f"{self.job.prefix}.events", piece)
        self._sent.extend(piece)

    def until(self, condition: Callable[[], bool]) -> None:
        """Send events until the condition is true."""

        def holds() -> bool:
            assert self._worker.exitcode is None, f"the worker ended with {self._worker.exitcode}"
            if condition():
                return True
            self._load()
            return False

        self.wait_until(holds, WAIT_LIMIT_S)

    def proceed(self) -> None:
        """Send events until the worker saves checkpoints again."""
        before = self._committed()
        self.until(lambda: self._committed() > before)

    def end(self) -> list[Event]:
        """Wait until all events are processed, stop the worker cleanly, and return the outputs."""
        self.wait_until(lambda: self._committed() == len(self._sent), WAIT_LIMIT_S)
        os.kill(self._worker.pid or 0, signal.SIGTERM)
        self._worker.join(WAIT_LIMIT_S)
        assert self._worker.exitcode == 0
        return self._sent

    def kill(self) -> None:
        """Kill the worker."""
        self._worker.kill()
        self._worker.join()

    def _committed(self) -> int:
        return sum(self._bus.catalog.committed(f"{self.job.prefix}.subject", f"{self.job.prefix}.events").values())


Begin = Callable[..., Trial]


@pytest.fixture
def begin(kafka_bus: KafkaBus, tmp_path: Path, prefix: str, wait_until: Wait) -> Iterator[Begin]:
    """Start a worker of a subject on a store, and wait until it saves checkpoints."""
    with ExitStack() as ending:

        def start(subject: Subject, url: str, **how: Any) -> Trial:
            made = create_job(subject, [], prefix, kafka_bus, tmp_path)
            job = LoggedJob(subject, prefix, made.kafka, tmp_path, store=url, endless=True, **how)
            trial = Trial(job, kafka_bus, wait_until)
            ending.callback(trial.kill)
            trial.proceed()
            return trial

        yield start


@pytest.fixture(params=["postgres", "redis_server"])
def store(request: pytest.FixtureRequest) -> Store:
    """Each kind of store."""
    server: Store = request.getfixturevalue(request.param)
    return server


@pytest.fixture
def proxy(store: Store) -> Iterator[Proxy]:
    """A proxy between the worker and the store."""
    with closing(Proxy(store.target)) as proxy:
        yield proxy


@pytest.fixture
def rng() -> random.Random:
    """Random moments."""
    seed = int(os.environ.get("SEED", random.randrange(2**32)))
    print(f"seed {seed}: run again with SEED={seed}")  # noqa: T201 - to reproduce a failure
    return random.Random(seed)


def through(proxy: Proxy, store: Store) -> str:
    """Return the address of a store behind a proxy."""
    return store.url.replace(f":{store.target[1]}/", f":{proxy.port}/")


def expect_each_counted(trial: Trial, store: Store) -> None:
    """Let the worker finish, and compare the store and the outputs with the sent events."""
    sent = trial.end()
    expect_remote_guarantees(replace(trial.job, store=store.url), sent)


@pytest.mark.parametrize("subject", [*EXACTLY.values(), AT_LEAST], ids=str)
def test_lost_connections_change_nothing(
    subject: Subject, store: Store, proxy: Proxy, begin: Begin, rng: random.Random
) -> None:
    """A request breaks in transit, or the answer to a commit is lost: the merge is repeated and counts once."""
    trial = begin(subject, through(proxy, store))
    for cuts in range(1, CUTS + 1):
        if cuts % 2:
            proxy.cut_after(rng.randrange(4_000))
        else:
            proxy.lose_answer(SAVED[type(store)], after=rng.randrange(4))
        trial.until(partial(have_been_lost, proxy, cuts))

    expect_each_counted(trial, store)


def have_been_lost(proxy: Proxy, cuts: int) -> bool:
    """Return whether a proxy has lost that many requests and answers."""
    return proxy.losses >= cuts


def owned(kafka: str, group: str) -> list[int]:
    """Return the number of buckets of each member of a group."""
    admin = AdminClient({"bootstrap.servers": kafka})  # its futures resolve only while it exists
    members = admin.describe_consumer_groups([group])[group].result(timeout=30).members
    return [len(member.assignment.topic_partitions) for member in members]


@pytest.mark.parametrize("subject", [READING, APPENDING], ids=str)
def test_a_worker_waits_for_its_store_and_continues(subject: Subject, store: Store, proxy: Proxy, begin: Begin) -> None:
    """The outage exceeds the write timeout and the poll interval: the worker stays a member and continues afterwards."""
    trial = begin(subject, through(proxy, store), patience_s=GIVES_UP_S, settings=HASTY_POLLS)
    job = trial.job
    proxy.refuse()
    trial.until(lambda: job.logged("It was retried for") > 0)
    waited_s = time.monotonic() + LONGEST_POLL_S + 1
    trial.wait_until(lambda: job.logged("pauses its buckets") > 0 and time.monotonic() > waited_s)
    members = owned(job.kafka, f"{job.prefix}.subject")
    proxy.resume()
    trial.proceed()

    assert members == [BUCKETS]
    assert job.logged("pauses its buckets") == 1
    expect_each_counted(trial, store)


@pytest.mark.parametrize("patience_s", [GIVES_UP_S, None], ids=["gives_up", "waits"])
def test_a_worker_continues_after_its_store_restarts(patience_s: float | None, store: Store, begin: Begin) -> None:
    """Acknowledged merges are there after the restart, and all others are merged once."""
    trial = begin(APPENDING, store.url, patience_s=patience_s)
    for _ in range(RESTARTS):
        with down(store):
            trial.until(lambda: trial.job.logged("failed temporarily") > 0)
        trial.proceed()

    expect_each_counted(trial, store)


@contextmanager
def down(store: Store) -> Iterator[None]:
    """Stop a store within the block, with all sessions ended."""
    store.stop()
    try:
        yield
    finally:
        store.start()


@pytest.mark.parametrize("subject", [READING, APPENDING], ids=str)
def test_a_session_ended_by_an_administrator_changes_nothing(
    subject: Subject, postgres: Postgres, begin: Begin
) -> None:
    """Sessions end repeatedly, within merges or between them: each merge counts once."""
    trial = begin(subject, postgres.url)
    for _ in range(TERMINATIONS):
        with postgres.session() as session:
            trial.until(partial(terminated, session))

    trial.until(lambda: trial.job.logged("failed temporarily") > 0)
    expect_each_counted(trial, postgres)


def terminated(session: psycopg.Connection) -> bool:
    """End the worker's sessions that are in a transaction, and wait until they have ended; return whether there were any."""
    return bool(
        session.execute(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name = 'penstock' AND state <> 'idle'"
        ).fetchall()
    )


@pytest.mark.parametrize("subject", [READING, APPENDING], ids=str)
def test_a_merge_is_repeated_after_a_deadlock(subject: Subject, postgres: Postgres, begin: Begin) -> None:
    """A client takes the same locks in reverse order, so PostgreSQL rolls a merge back; it is repeated once."""
    trial = begin(subject, postgres.url)
    while not trial.job.logged("deadlock detected"):
        with (
            # If the worker has looked for deadlocks before the cycle was complete, PostgreSQL ends this session instead.
            suppress(psycopg.errors.DeadlockDetected),
            postgres.session(options=f"-c deadlock_timeout={LOCKED_FOR_S}s") as session,
            postgres.session() as watching,
        ):
            cross(session, watching, trial)

    expect_each_counted(trial, postgres)


def cross(session: psycopg.Connection, watching: psycopg.Connection, trial: Trial) -> None:
    """Lock parts, let a merge lock its shard and wait for the parts, then request the shard, which completes the cycle."""
    with session.transaction(force_rollback=True):
        session.execute("LOCK TABLE penstock_parts IN EXCLUSIVE MODE")
        trial.until(lambda: waits_for_lock(watching))
        # The worker waits first, so it usually looks for deadlocks first and is ended.
        session.execute(
            "UPDATE penstock_shards SET saves = saves WHERE processor = %s", (f"{trial.job.prefix}.subject",)
        )


def waits_for_lock(session: psycopg.Connection) -> bool:
    """Return whether a session of the worker waits for a lock."""
    asked = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'penstock' AND wait_event_type = 'Lock'"
    return session.execute(asked).fetchone() != (0,)
