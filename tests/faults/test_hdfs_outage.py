"""HDFS fails under a running worker: events are processed without interruption, and backups recover afterwards.

These tests back a state up twice a second and give HDFS three seconds to answer, so ten seconds here equal twenty minutes
with the default interval of a minute.
"""

from __future__ import annotations

import logging
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import psutil
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from support.kinds import Event
from support.subjects import BUCKETS, EXACT, Subject, events
from support.trials import create_job, expect_guarantees
from support.verdicts import send
from support.victims import Job

from penstock.ops.kernel import Environment
from penstock.ops.kernel.shards import backups
from penstock.ops.start.dev_services.hdfs import HdfsService
from penstock.ops.start.dev_services.services import LocalServices
from penstock.processors.declare import plan_of
from penstock.processors.shard import StatePosition
from penstock.state import ShardIdentity
from penstock.state.backups import newest_position
from penstock.state.files import FileStore, hdfs_files, open_file_store
from penstock.state.local import current
from penstock.transport.kafka import KafkaBus

SUBJECT = Subject("stateful", EXACT, EXACT)
EVERY = timedelta(seconds=0.5)
LONG_S = 20 * EVERY.total_seconds()
ANSWER_LIMIT_S = 3.0
STOP_LIMIT_S = 60.0
STEADY = {"session.timeout.ms": "45000"}
"""A session that a worker keeps on a busy machine, too: one that joins again waits again, and logs it again."""
WaitUntil = Callable[..., None]


class Gated:
    """A store whose uploads pause in the middle of a file while a gate is shut.

    Args:
        place: the folder of the files.
        gate: a folder; the gate is shut while it contains the file `shut`, and an upload at the gate creates `reached`.
    """

    def __init__(self, place: FileStore, gate: Path) -> None:
        self._place = place
        self._gate = gate
        self.location = place.location
        self.create, self.read = place.create, place.read
        self.list_folder, self.tags, self.delete = place.list_folder, place.tags, place.delete

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        self._place.write(path, self._halved(chunks))

    def _halved(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            half = len(chunk) // 2
            yield chunk[:half]
            while (self._gate / "shut").exists():
                (self._gate / "reached").touch()
                time.sleep(0.02)
            yield chunk[half:]


@dataclass(frozen=True)
class BackedUp(Job):
    """A job with backups.

    Args:
        location: the backup store.
        webhdfs: its WebHDFS address.
        gate: a folder for the gate and the worker's log.
        answer_limit_s: how long the worker waits for an answer of HDFS.
    """

    location: str = ""
    webhdfs: str = ""
    gate: Path = Path()
    answer_limit_s: float = ANSWER_LIMIT_S

    def environment(self) -> Environment:
        """Prepare the worker's process as well."""
        logging.basicConfig(filename=self.gate / "log", level=logging.WARNING)
        hdfs_files.ANSWER_LIMIT_S = self.answer_limit_s
        backups.LOG_EVERY_S = 3600.0  # once for each wait, however long the machine needs to start HDFS
        return Environment(self.folder, Gated(self.place(), self.gate), EVERY)

    def place(self) -> FileStore:
        return open_file_store(self.location, self.webhdfs)

    @property
    def category(self) -> str:
        return f"{self.prefix}.events"

    @property
    def log(self) -> str:
        log = self.gate / "log"
        return log.read_text() if log.exists() else ""

    def shards(self) -> list[Path]:
        return [self.folder / f"{self.prefix}.subject" / f"{number:05d}" for number in range(BUCKETS)]

    def backed_up(self) -> list[int]:
        """Return the position of each bucket's newest backup."""
        place, shape = self.place(), plan_of(self.subject.make(self.prefix)).state_shape or ""
        identities = [ShardIdentity(f"{self.prefix}.subject", number, shape) for number in range(BUCKETS)]
        found: list[StatePosition] = [newest_position(place, identity) or StatePosition() for identity in identities]
        return [position.offsets.get(self.category, 0) for position in found]


class Cluster:
    """An HDFS whose daemons can be killed, frozen and restarted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._services = LocalServices(folder)

    def up(self) -> dict[str, str]:
        """Restart missing daemons at the same addresses, and return when files can be written."""
        for process in self.processes().values():
            process.resume()
        return self._services.up(["hdfs"], lambda _: None)["hdfs"].endpoints

    def down(self) -> None:
        for process in self.processes().values():
            process.resume()  # a frozen process ignores SIGTERM
        self._services.down(["hdfs"], lambda _: None)

    def processes(self) -> dict[str, psutil.Process]:
        """Return the live daemons."""
        hdfs = HdfsService(self._folder)
        found = {"NameNode": hdfs._name_node.process(), "DataNode": hdfs._data_node.process()}
        return {name: process for name, process in found.items() if process is not None}

    def send_signal(self, name: str, number: signal.Signals) -> None:
        self.processes()[name].send_signal(number)


class Load:
    """Sends events of a few keys, some hundred a second, within a block; records them."""

    def __init__(self, kafka: str, category: str) -> None:
        self.sent: list[Event] = []
        self._kafka = kafka
        self._category = category
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)

    def __enter__(self) -> Load:  # noqa: PYI034 - Self needs Python 3.11
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Stop sending."""
        self._ended.set()
        self._thread.join()

    def _send(self) -> None:
        while not self._ended.wait(0.1):
            batch = events(30, start=len(self.sent))
            send(self._kafka, self._category, batch)
            self.sent += batch


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One HDFS for all tests of this file."""
    cluster = Cluster(tmp_path_factory.mktemp("hdfs"))
    try:
        yield cluster
    finally:
        cluster.down()


@pytest.fixture
def job(cluster: Cluster, kafka_bus: KafkaBus, prefix: str, tmp_path: Path) -> Iterator[BackedUp]:
    """A job with backups on HDFS; HDFS is healthy before and after the test."""
    endpoints = cluster.up()
    yield backed_up_job(f"{endpoints['rpc']}/{tmp_path.name}", endpoints["webhdfs"], kafka_bus, prefix, tmp_path)
    cluster.up()


def backed_up_job(location: str, webhdfs: str, bus: KafkaBus, prefix: str, folder: Path) -> BackedUp:
    made = create_job(SUBJECT, [], prefix, bus, folder / "state")
    (folder / "gate").mkdir()
    return BackedUp(SUBJECT, prefix, made.kafka, made.folder, location=location, webhdfs=webhdfs, gate=folder / "gate")


@contextmanager
def working(job: BackedUp) -> Iterator[ForkServerProcess]:
    """Keep a worker running; kill it in the end if it is still alive."""
    worker = replace(job, endless=True).start()
    try:
        yield worker
    finally:
        worker.kill()
        worker.join()


def stop(worker: ForkServerProcess) -> int | None:
    """Ask a worker to end; return its exit code, or None after the limit."""
    worker.terminate()
    worker.join(STOP_LIMIT_S)
    return worker.exitcode


def committed(bus: KafkaBus, job: BackedUp) -> list[int]:
    found = bus.catalog.committed(f"{job.prefix}.subject", job.category)
    return [found.get(number, 0) for number in range(BUCKETS)]


def is_done(bus: KafkaBus, job: BackedUp) -> bool:
    """Return whether all sent events are processed."""
    ends = bus.catalog.describe(job.category).ends
    return committed(bus, job) == [ends[number] for number in range(BUCKETS)]


def expect_progress(bus: KafkaBus, job: BackedUp, wait_until: WaitUntil) -> None:
    """Expect a hundred further events of each bucket to be processed."""
    before = committed(bus, job)
    wait_until(lambda: all(now > then + 100 for now, then in zip(committed(bus, job), before, strict=True)))


def await_backup(bus: KafkaBus, job: BackedUp, wait_until: WaitUntil) -> None:
    """Wait for backups of all events that are processed now."""
    now = committed(bus, job)
    wait_until(lambda: all(made >= then for made, then in zip(job.backed_up(), now, strict=True)))


def forget_what_is_backed_up(job: BackedUp) -> None:
    """Lose the disk, and delete the backed-up events from Kafka: only the backups contain them now."""
    shutil.rmtree(job.folder)
    admin = AdminClient({"bootstrap.servers": job.kafka})
    dropped = [TopicPartition(job.category, number, offset) for number, offset in enumerate(job.backed_up())]
    for future in admin.delete_records(dropped).values():
        future.result(timeout=30)


def expect_exact(bus: KafkaBus, job: BackedUp, worker: ForkServerProcess, sent: list[Event], wait: WaitUntil) -> None:
    """Expect exact results, also from a worker that has only the backups to continue from."""
    wait(lambda: is_done(bus, job))
    assert stop(worker) == 0
    expect_guarantees(job, sent)
    forget_what_is_backed_up(job)
    later = events(100, start=len(sent))
    send(job.kafka, job.category, later)
    assert job.run() == 0
    expect_guarantees(job, sent + later)


def fail_during_an_upload(
    job: BackedUp, cluster: Cluster, name: str, by: signal.Signals, wait_until: WaitUntil
) -> None:
    """Fail a daemon when half a file has been sent."""
    (job.gate / "shut").touch()
    wait_until((job.gate / "reached").exists)
    cluster.send_signal(name, by)
    (job.gate / "shut").unlink()


def test_a_worker_starts_without_hdfs_and_backs_up_when_it_is_there(
    cluster: Cluster, job: BackedUp, kafka_bus: KafkaBus, wait_until: WaitUntil
) -> None:
    """It processes events meanwhile."""
    cluster.down()
    with Load(job.kafka, job.category) as load, working(job) as worker:
        expect_progress(kafka_bus, job, wait_until)
        wait_until(lambda: "are falling behind" in job.log)
        cluster.up()
        await_backup(kafka_bus, job, wait_until)
        wait_until(lambda: "have caught up" in job.log)
        load.end()
        expect_exact(kafka_bus, job, worker, load.sent, wait_until)


@pytest.mark.parametrize(
    ("name", "by"),
    [
        pytest.param("NameNode", signal.SIGKILL, id="NameNode-killed"),
        pytest.param("DataNode", signal.SIGSTOP, id="DataNode-frozen", marks=pytest.mark.exhaustive),
        pytest.param("DataNode", signal.SIGKILL, id="DataNode-killed", marks=pytest.mark.exhaustive),
        pytest.param("NameNode", signal.SIGSTOP, id="NameNode-frozen", marks=pytest.mark.exhaustive),
    ],
)
def test_a_daemon_lost_during_an_upload_affects_no_event(
    name: str, by: signal.Signals, cluster: Cluster, job: BackedUp, kafka_bus: KafkaBus, wait_until: WaitUntil
) -> None:
    """A frozen daemon accepts connections and never answers. When it is back, backups resume."""
    with Load(job.kafka, job.category) as load, working(job) as worker:
        wait_until(lambda: all(job.backed_up()))
        fail_during_an_upload(job, cluster, name, by, wait_until)
        wait_until(lambda: "are falling behind" in job.log)
        expect_progress(kafka_bus, job, wait_until)
        cluster.up()
        await_backup(kafka_bus, job, wait_until)
        load.end()
        expect_exact(kafka_bus, job, worker, load.sent, wait_until)


def test_a_long_hang_of_hdfs_affects_no_event(
    cluster: Cluster, job: BackedUp, kafka_bus: KafkaBus, wait_until: WaitUntil
) -> None:
    """It lasts twenty intervals, twenty minutes by default; the worker logs it, but not at each attempt."""
    with Load(job.kafka, job.category) as load, working(job) as worker:
        wait_until(lambda: all(job.backed_up()))
        for name in cluster.processes():
            cluster.send_signal(name, signal.SIGSTOP)
        log_lines, began_s = job.log.count("are falling behind"), time.monotonic()
        while time.monotonic() < began_s + LONG_S:
            expect_progress(kafka_bus, job, wait_until)
        log_lines = job.log.count("are falling behind") - log_lines
        cluster.up()
        await_backup(kafka_bus, job, wait_until)
        wait_until(lambda: "have caught up" in job.log)
        late_lines = job.log.count(
            "more than 3 intervals"
        )  # by this worker: the next one may start slowly, and log it as well
        load.end()
        expect_exact(kafka_bus, job, worker, load.sent, wait_until)

    assert late_lines == 1
    assert log_lines <= 1


def test_a_worker_can_be_stopped_while_hdfs_hangs(
    cluster: Cluster, job: BackedUp, kafka_bus: KafkaBus, wait_until: WaitUntil
) -> None:
    """It ends cleanly during an upload, long before HDFS times out, and a later worker continues."""
    job = replace(job, answer_limit_s=3 * STOP_LIMIT_S)
    with Load(job.kafka, job.category) as load, working(job) as worker:
        wait_until(lambda: all(job.backed_up()))
        fail_during_an_upload(job, cluster, "NameNode", signal.SIGSTOP, wait_until)
        assert stop(worker) == 0
    cluster.up()
    with working(job) as worker:
        expect_exact(kafka_bus, job, worker, load.sent, wait_until)


def test_a_lost_state_waits_for_hdfs(
    cluster: Cluster, job: BackedUp, kafka_bus: KafkaBus, wait_until: WaitUntil
) -> None:
    """The worker logs this once, not at each attempt; when stopped, it ends and leaves no empty state that counts."""
    job, sent = replace(job, settings=STEADY), events(1000)
    send(job.kafka, job.category, sent)
    with working(job) as worker:
        wait_until(lambda: is_done(kafka_bus, job))
        await_backup(kafka_bus, job, wait_until)
        assert stop(worker) == 0
    forget_what_is_backed_up(job)
    cluster.send_signal("NameNode", signal.SIGSTOP)
    with working(job) as worker:
        wait_until(lambda: job.log.count("waits for its backup") == BUCKETS)
        assert stop(worker) == 0
    assert [current(shard) for shard in job.shards()] == [None] * BUCKETS
    (job.gate / "log").unlink()
    with working(job) as worker:
        wait_until(lambda: job.log.count("waits for its backup") == BUCKETS)
        cluster.up()
        wait_until(lambda: job.log.count("for its backup.") == BUCKETS)
        assert stop(worker) == 0

    assert job.log.count("waits for its backup") == BUCKETS
    expect_guarantees(job, sent)


def test_an_unwritable_backup_folder_stops_no_worker(
    kafka_bus: KafkaBus, prefix: str, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """A file is in the place of the folder: the error gives the remedy, and backups succeed after it."""
    (tmp_path / "file").touch()
    job = backed_up_job(str(tmp_path / "file" / "backups"), "", kafka_bus, prefix, tmp_path)
    with Load(job.kafka, job.category) as load, working(job) as worker:
        expect_progress(kafka_bus, job, wait_until)
        wait_until(lambda: "A file is where a folder should be" in job.log and "more than 3 intervals" in job.log)
        expect_progress(kafka_bus, job, wait_until)
        (tmp_path / "file").unlink()
        await_backup(kafka_bus, job, wait_until)
        load.end()
        expect_exact(kafka_bus, job, worker, load.sent, wait_until)

    assert job.log.count("A file is where a folder should be") == 1
