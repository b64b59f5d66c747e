"""Workers report the sink or store for which they wait, and findings name it instead of its consequences."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from support.machines import create_categories, write
from support.statuses import processor_status, shard_status, worker_status

import penstock as ps
from penstock.ops.kernel import REPORTS, STOPPED, Driver, Report, ReportReader, Worker, prepare
from penstock.ops.kernel.checkpoint.revocation_note import RevocationNotesOnDisk
from penstock.ops.kernel.loop import WorkerConfig
from penstock.ops.kernel.process import status_reports
from penstock.ops.kernel.process.identity import Identity
from penstock.ops.kernel.process.status_reports import StatusReporter
from penstock.ops.kernel.shards.bus_snapshot import read_bus_snapshot
from penstock.ops.kernel.shards.sink_writers import SinkWriters
from penstock.ops.kernel.telemetry.waits import STATE_STORE, Wait, Waits
from penstock.ops.kernel.testing import InlineExecutor
from penstock.ops.shell import SystemClock
from penstock.ops.status.finding import Severity
from penstock.ops.status.findings import findings_of
from penstock.ops.status.metrics import PROCESSOR_METRICS
from penstock.state import MemoryStateFolder
from penstock.state.remote import StoreInterrupted, StoreRetry, StoreUnreachable
from penstock.transport import Bucket, create_missing_categories
from penstock.transport.memory import MemoryBus


def test_a_wait_lasts_until_its_service_answers() -> None:
    """It does not end with a call, because an outage continues between attempts. An error of another kind is an answer."""
    waits = Waits()

    def named() -> str | None:
        return waits.longest and waits.longest.name

    with waits.until_answered("table"):
        assert named() == "table"
    assert named() is None
    for error, after in ((ps.sinks.SinkUnreachable("no"), "table"), (ps.sinks.SinkRefused("never"), None)):
        with pytest.raises(type(error)), waits.until_answered("table"):
            raise error
        assert named() == after
    with pytest.raises(ps.sinks.SinkUnreachable), waits.until_answered("table"):
        raise ps.sinks.SinkUnreachable("no")
    with waits.until_answered("store"):
        assert named() == "table"  # since it began first
    waits.end("table")
    assert named() is None


def test_a_wait_for_a_shard_lasts_until_the_shard_has_an_answer() -> None:
    """The wait also ends with an answer for all shards, or when the shard belongs to another worker. An answer for no shard ends no wait for shards."""
    waits = Waits()

    def is_waiting() -> bool:
        return waits.longest is not None

    def fail(*shards: int) -> None:
        with pytest.raises(ps.sinks.SinkUnreachable), waits.until_answered("table", shards, answers_all=False):
            raise ps.sinks.SinkUnreachable("no")

    def answer(*shards: int, answers_all: bool = False) -> bool:
        with waits.until_answered("table", shards, answers_all=answers_all):
            pass
        return not is_waiting()

    fail()
    assert answer()
    fail(1)
    fail(2)
    assert [answer(), answer(1), answer(3), answer(2)] == [False, False, False, True]
    fail(1)
    with pytest.raises(ps.sinks.SinkRefused), waits.until_answered("table", answers_all=False):
        raise ps.sinks.SinkRefused("never")
    assert not answer(2)
    assert answer(answers_all=True)
    fail(1)
    fail(2)
    waits.release("table", [1])
    assert is_waiting()
    waits.release("table", [2])
    assert not is_waiting()
    fail()
    waits.release("table", [1])
    assert is_waiting()


class Row(ps.Record, frozen=True):
    """A row."""

    key: str
    at: ps.EventTime


events = ps.Category("waits.events", Row, key="key", event_time="at", buckets=1)


class Copy(ps.Stateless):
    """Copies events."""

    reads, writes = events, ps.sinks.MemorySink(Row, "the table")

    def process(self, event: Row) -> list[Row]:
        """Return the row."""
        return [event]


class Asked:
    """A writer that does not answer at first, and notes what the worker waits for."""

    def __init__(self, waits: Waits) -> None:
        self._waits = waits
        self.noted: list[Wait | None] = []

    def claim(self, processor: str, bucket: int) -> str:
        """Answer the second time."""
        self.noted.append(self._waits.longest)
        if len(self.noted) == 1:
            raise ps.sinks.SinkUnreachable("no answer")
        return ""

    def write(self, batch: ps.sinks.SinkBatch) -> None:
        """Write nothing."""

    def close(self) -> None:
        """Do nothing."""


def test_a_worker_waits_for_its_sink_by_name() -> None:
    """It reports the sink from the first call without an answer."""
    bus, waits = MemoryBus(), Waits()
    create_categories(bus, [Copy])
    asked = Asked(waits)
    writers, snapshot = SinkWriters(Copy, lambda _: asked, waits), read_bus_snapshot(Copy, bus)
    with pytest.raises(ps.sinks.SinkUnreachable):
        writers.claim(0, snapshot)
    between = waits.longest
    writers.claim(0, snapshot)

    assert [wait and wait.name for wait in (*asked.noted, between)] == ["the table"] * 3
    assert waits.longest is None


class Noted(Waits):
    """Notes the ends of waits for the table."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[str] = []

    def end(self, name: str) -> None:
        """End a wait."""
        self.ended += [name] * (name == "the table")
        super().end(name)


class Silent:
    """A writer whose claims ask nothing, as those of an HTTP endpoint, and whose first writes of rows are not answered."""

    def __init__(self, waits: Noted) -> None:
        self._waits = waits
        self.calls: list[tuple[str, int]] = []

    def claim(self, processor: str, bucket: int) -> str:
        """Answer, and note how many waits have ended before."""
        self.calls.append(("claim", len(self._waits.ended)))
        return ""

    def write(self, batch: ps.sinks.SinkBatch) -> None:
        """Answer the third write of rows."""
        self.calls.append(("write", len(self._waits.ended)))
        if batch.rows and sum(name == "write" for name, _ in self.calls) < 3:
            raise ps.sinks.SinkUnreachable("no answer")

    def close(self) -> None:
        """Do nothing."""


def test_a_claim_does_not_end_the_wait_of_a_write() -> None:
    """A worker that returns to its last checkpoint claims its shards again, after each attempt: the wait would never be long."""
    driver, waits = Driver(Copy), Noted()
    write(driver.bus, events, [Row("a", 1_700_000_000_000)])
    silent = Silent(waits)
    config = WorkerConfig(driver.bus, MemoryStateFolder(), "one", waits=waits, open_sink=lambda _: silent)
    worker = Worker(Copy(), config, InlineExecutor(), InlineExecutor(), clock=driver.clock)
    while sum(name == "write" for name, _ in silent.calls) < 3:
        worker.run_once()
        driver.clock.advance(5)

    assert silent.calls == [("claim", 0), ("write", 1), ("claim", 1), ("write", 1), ("claim", 1), ("write", 1)]
    assert waits.longest is None


def test_a_lost_bucket_ends_the_wait_of_its_write() -> None:
    """Its rows belong to another worker. A worker without buckets would wait for the sink forever."""
    driver, waits = Driver(Copy), Noted()
    write(driver.bus, events, [Row("a", 1_700_000_000_000)])
    silent = Silent(waits)
    config = WorkerConfig(driver.bus, MemoryStateFolder(), "one", waits=waits, open_sink=lambda _: silent)
    worker = Worker(Copy(), config, InlineExecutor(), InlineExecutor(), clock=driver.clock)
    while silent.calls[-1:] != [("write", 1)]:
        worker.run_once()
        driver.clock.advance(5)
    waited = waits.longest
    worker._parts.ownership.lost([Bucket(events.name, 0)])

    assert waited is not None
    assert (waited.name, waits.longest) == ("the table", None)


@pytest.fixture
def reports(tmp_path: Path) -> Iterator[tuple[Driver, Worker, StatusReporter]]:
    """A worker of `Copy` that has begun, and reports its status."""
    driver, waits = Driver(Copy), Waits()
    create_missing_categories(driver.bus, REPORTS)
    config = WorkerConfig(driver.bus, MemoryStateFolder(), "one", waits=waits)
    worker = Worker(Copy(), config, InlineExecutor(), InlineExecutor(), clock=driver.clock)
    while not (worker.owned and worker.is_settled):
        worker.run_once()
    identity = Identity("one", (), RevocationNotesOnDisk(tmp_path / "note"))
    with closing(StatusReporter(Copy, driver.bus, identity, tmp_path)) as reporter:
        yield driver, worker, reporter


def reported(bus: MemoryBus) -> list[Report]:
    """Return the last report of each worker."""
    with closing(ReportReader.open(bus, datetime.fromtimestamp(0, UTC))) as reader:
        reader.read()
        return [interval.last for interval in reader.intervals(SystemClock().now_ms()).values()]


def report_in_loop(reporter: StatusReporter, worker: Worker) -> None:
    """Report in a thread that no code of this test called, as the loop of a worker does."""
    loop = threading.Thread(target=reporter.report_if_due, args=[worker])
    loop.start()
    loop.join()


def test_a_loop_that_waits_reports_from_another_thread(
    reports: tuple[Driver, Worker, StatusReporter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker is not silent, and says what it waits for; a loop that hangs elsewhere is silent, and an ended worker stays ended."""
    driver, worker, reporter = reports
    monkeypatch.setattr(status_reports, "REPORT_INTERVAL_S", 0.0)
    report_in_loop(reporter, worker)
    reporter.report_wait(worker)
    [first] = reported(driver.bus)
    worker.metrics.saving_since_s = worker.metrics.loop.now_s() - 40.0
    with worker.metrics.waits.until_answered("the table"):
        reporter.report_wait(worker)
        [waiting] = reported(driver.bus)
        with reporter.reporting_end(worker):
            pass
        reporter.report_wait(worker)
    [ended] = reported(driver.bus)

    assert (first.waits_for, first.checkpoint_running_s) == ("", None)
    assert (waiting.waits_for, waiting.counts, waiting.shards) == ("the table", first.counts, first.shards)
    assert (waiting.checkpoint_running_s or 0.0) >= 40.0
    assert ended.end_reason == STOPPED


def test_a_loop_in_code_of_the_processor_reports_the_line(
    reports: tuple[Driver, Worker, StatusReporter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A silent worker would count as lost."""
    driver, worker, reporter = reports
    monkeypatch.setattr(status_reports, "REPORT_INTERVAL_S", 0.0)
    entered, may_return = threading.Event(), threading.Event()

    def slow_call(*_: object) -> list[Row]:
        entered.set()
        assert may_return.wait(120)
        return []

    def loop() -> None:
        reporter.report_if_due(worker)
        slow_call()

    with ThreadPoolExecutor() as threads:
        running = threads.submit(loop)
        assert entered.wait(120)
        reporter.report_wait(worker)
        [in_code] = reported(driver.bus)
        may_return.set()
        running.result()

    assert re.fullmatch(r"the processor's code, slow_call \(test_waits.py, line \d+\)", in_code.waits_for)


def test_a_worker_reports_its_buckets_during_a_long_first_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its loop has sent no report with them yet. They would seem to have no owner, and its worker to be killed."""
    monkeypatch.setattr(status_reports, "REPORT_INTERVAL_S", 0.0)
    bus, seen = MemoryBus(), list[Report]()

    class Reading(ps.Stateless):
        """Reads the reports during its first event."""

        name = "waits.reading"
        reads, writes = events, ps.Category("waits.read", Row, key="key", event_time="at", buckets=1)

        def process(self, event: Row) -> list[Row]:
            """Note what its worker reports."""
            reporter.report_wait(worker)
            seen.extend(reported(bus))
            return [event]

    create_categories(bus, [Reading])
    create_missing_categories(bus, REPORTS)
    write(bus, events, [Row("a", 1)])
    identity = Identity("one", (), RevocationNotesOnDisk(tmp_path / "note"))
    with closing(StatusReporter(Reading, bus, identity, tmp_path)) as reporter:
        worker = Worker(
            prepare(Reading, bus),
            WorkerConfig(bus, MemoryStateFolder(), "one"),
            InlineExecutor(),
            InlineExecutor(),
            after_opening=reporter.add_opened,
            after_turn=reporter.report_if_due,
        )
        for _ in range(100):
            if not seen:
                worker.run_once()
    [during] = seen

    assert "process (test_waits.py, line" in during.waits_for
    assert [shard.bucket for shard in during.shards] == [0]


def test_code_that_runs_the_loop_is_no_code_of_the_processor(
    reports: tuple[Driver, Worker, StatusReporter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's program may run the worker, and its line is the same before and during a call of the processor."""
    driver, worker, reporter = reports
    monkeypatch.setattr(status_reports, "REPORT_INTERVAL_S", 0.0)
    lines = iter(["main (run.py, line 9): worker.run()"] * 2 + ["process (shop.py, line 12): ask()"])
    monkeypatch.setattr(status_reports, "busy_line", lambda _: next(lines))
    reporter.report_if_due(worker)
    reporter.report_wait(worker)
    [outside] = reported(driver.bus)
    reporter.report_wait(worker)
    [inside] = reported(driver.bus)

    assert (outside.waits_for, inside.waits_for) == ("", "the processor's code, process (shop.py, line 12)")


@pytest.mark.parametrize("until_end", [True, False])
def test_a_long_checkpoint_is_reported_in_a_run_that_others_wait_for(
    until_end: bool,
    reports: tuple[Driver, Worker, StatusReporter],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others are silent, because a checkpoint may be long in an outage of the bus, which would not accept the report."""
    driver, worker, _ = reports
    monkeypatch.setattr(status_reports, "REPORT_INTERVAL_S", 0.0)
    identity = Identity("two", (), RevocationNotesOnDisk(tmp_path / "note"))
    with closing(StatusReporter(Copy, driver.bus, identity, tmp_path, until_end=until_end)) as reporter:
        report_in_loop(reporter, worker)
        worker.metrics.saving_since_s = worker.metrics.loop.now_s() - 40.0
        reporter.report_wait(worker)
    [last] = [report for report in reported(driver.bus) if report.worker == "two"]

    assert (last.checkpoint_running_s is not None) == until_end


def test_slow_code_is_a_finding_and_no_outage() -> None:
    """The line is named, and the remedies and alerts of a service are not."""
    worker = worker_status(waits_for="the processor's code, process (shop.py, line 12)", waits_s=45.0)
    status = processor_status(shard_status(lag_s=4_000.0, backlog_events=5_000), workers=(worker,))
    found = {finding.kind: finding for finding in findings_of([status])}

    assert "it is in the processor's code, process (shop.py, line 12)" in found["slow code"].message
    assert "waits" not in found
    assert "lag" in found
    assert PROCESSOR_METRICS["waiting_seconds"].of(status) == 0.0


def test_slow_code_explains_buckets_that_no_worker_reads() -> None:
    """Its worker opens no bucket, and the advice for a killed worker would be wrong."""
    shards = (shard_status(), shard_status(1, owner="", backlog_events=3))
    slow, quick = (
        worker_status(waits_for="the processor's code, process (shop.py, line 12)", waits_s=waits_s)
        for waits_s in (45.0, 5.0)
    )
    during, before = (findings_of([processor_status(*shards, workers=(worker,))]) for worker in (slow, quick))

    assert [finding.kind for finding in during] == ["slow code"]
    assert (
        "It opens no further bucket either: no worker reads bucket 1 with a backlog of 3 events." in during[0].message
    )
    assert [finding.kind for finding in before] == ["without owner"]


def test_a_store_of_states_is_waited_for_by_name() -> None:
    """The wait begins with any request, also of the loop, and ends when one is answered."""
    waits, noted = Waits(), list[str | None]()

    def unanswered() -> None:
        noted.append(waits.longest and waits.longest.name)
        raise StoreInterrupted("no answer")

    retry = StoreRetry(0.0, waiting=partial(waits.until_answered, STATE_STORE))
    with pytest.raises(StoreUnreachable):
        retry.call(unanswered)
    noted.append(waits.longest and waits.longest.name)
    retry.call(lambda: None)

    assert set(noted) == {STATE_STORE}
    assert waits.longest is None


def test_a_wait_is_critical_and_hides_its_consequences() -> None:
    """More workers would not help, and a bucket without an owner is one whose sink does not answer."""
    shards = (shard_status(0, owner="", backlog_events=5, lag_s=900.0),)
    waiting = processor_status(shards=shards, workers=(worker_status(waits_for="the table", waits_s=65.0, buckets=()),))
    normal = processor_status(shards=shards, workers=(worker_status(waits_for="the table", waits_s=5.0, buckets=()),))

    [finding] = findings_of([waiting])
    assert (finding.severity, finding.kind) == (Severity.CRITICAL, "waits")
    assert "has waited for the table for" in finding.message
    assert "waits" not in {finding.kind for finding in findings_of([normal])}
    assert "without owner" in {finding.kind for finding in findings_of([normal])}
    assert PROCESSOR_METRICS["waiting_seconds"].of(waiting) == 65.0


def test_a_backup_store_that_does_not_answer_is_a_warning_before_a_backup_is_late() -> None:
    """The workers continue, so it hides nothing. The warning begins with the first attempt without an answer, if the outage lasts."""
    out, back = (
        processor_status(
            shard_status(backup_age_s=30.0), workers=(worker_status(backup_interval_s=60.0, backup_outage_s=outage_s),)
        )
        for outage_s in (25.0, 5.0)
    )

    [finding] = findings_of([out])
    assert (finding.severity, finding.kind) == (Severity.WARNING, "backup")
    assert "has not answered for 25 s" in finding.message
    assert findings_of([back]) == ()
    assert [PROCESSOR_METRICS["backup_late"].of(status) for status in (out, back)] == [1.0, 0.0]


def test_a_silent_worker_is_shown_with_its_last_wait() -> None:
    """The wait may be the cause. It may concern all of its workers, or one."""
    silent = worker_status("two", report_age_s=300.0, waits_for="the table", waits_s=5.0)
    for workers in ((worker_status(), silent), (silent,)):
        messages = [finding.message for finding in findings_of([processor_status(shard_status(), workers=workers)])]

        assert any("It last reported that it waits for the table." in message for message in messages)
