"""The most frequent key of a bucket, found in a sample, and named in the finding about a skewed bucket."""

from __future__ import annotations

import random
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.statuses import processor_status, shard_status

import penstock as ps
from penstock.ops.kernel import REPORTS, Driver, ReportReader, Worker
from penstock.ops.kernel.checkpoint.revocation_note import RevocationNotesOnDisk
from penstock.ops.kernel.loop import WorkerConfig
from penstock.ops.kernel.process.identity import Identity
from penstock.ops.kernel.process.status_reports import StatusReporter
from penstock.ops.kernel.telemetry.hot_keys import ENOUGH, SAMPLED, WINDOW, HotKey, HotKeys
from penstock.ops.kernel.testing import InlineExecutor
from penstock.ops.shell import SystemClock
from penstock.ops.status.findings import findings_of
from penstock.state import MemoryStateFolder
from penstock.transport import Bucket, MessageCopy, Outgoing, RawBatch, create_missing_categories


def batch(number: int, keys: list[bytes | None]) -> RawBatch:
    """Return a batch of messages with keys."""
    return RawBatch(Bucket("readings", number), [MessageCopy(b"{}", key) for key in keys])


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 99), share=st.sampled_from([0.4, 0.7, 1.0]), size=st.sampled_from([1, 7, 500]))
def test_a_hot_key_is_found_with_its_share(seed: int, share: float, size: int) -> None:
    """The size of batches does not matter, although most events are skipped."""
    found, chosen = HotKeys(), random.Random(seed)
    for _ in range(3_000 // min(size, SAMPLED)):
        found.record(
            batch(0, [b"hot" if chosen.random() < share else b"%d" % chosen.randrange(1_000) for _ in range(size)])
        )
    hot = found.of(0)
    assert hot is not None

    assert (hot.key, abs(hot.share - share) < 0.12) == ("hot", True)


def test_recent_events_replace_earlier_ones() -> None:
    """The memory is bounded for any number of keys."""
    found = HotKeys()
    for number in range(WINDOW):
        found.record(batch(0, [b"old"] if number % 2 else [b"%d" % number]))
    for number in range(4 * WINDOW):
        found.record(batch(0, [b"new"] if number % 2 else [b"%d" % number]))

    hot = found.of(0)
    assert hot is not None
    assert hot.key == "new"
    assert hot.share == pytest.approx(0.5, abs=0.1)
    assert len(found._counts[0]) <= WINDOW


def test_few_events_and_messages_without_keys_name_no_key() -> None:
    """Buckets are counted apart, and a key of bytes is shown as text."""
    found = HotKeys()
    for _ in range(ENOUGH - 1):
        found.record(batch(0, [b"few"]))
        found.record(batch(1, [None] * 20))
        found.record(batch(2, []))
    for _ in range(ENOUGH):
        found.record(batch(3, [b"\xff\x00"]))

    assert [found.of(number) for number in (0, 1, 2, 9)] == [None] * 4
    assert found.of(3) == HotKey("\\xff\x00", 1.0)


class Reading(ps.Record, frozen=True):
    """A meter's reading."""

    meter: str
    at: ps.EventTime


class Count(ps.Stateful):
    """Counts the readings."""

    reads, state = ps.Category("readings", Reading, key="meter", event_time="at", buckets=2), int

    def process(self, event: Reading, state: Any, context: ps.Context) -> tuple[Any, tuple[()]]:
        return (state or 0) + 1, ()


def test_a_worker_reports_the_key(tmp_path: Path) -> None:
    """The report has its share of the events of its own bucket."""
    driver = Driver(Count)
    create_missing_categories(driver.bus, REPORTS)
    config = WorkerConfig(driver.bus, MemoryStateFolder(), "one")
    worker = Worker(Count(), config, InlineExecutor(), InlineExecutor(), clock=driver.clock)
    identity = Identity("one", (), RevocationNotesOnDisk(tmp_path / "note"))
    with (
        closing(driver.bus.writer()) as writer,
        closing(StatusReporter(Count, driver.bus, identity, tmp_path)) as reporter,
    ):
        for number in range(4 * ENOUGH):
            meter = b"hot" if number % 4 else b"%d" % number
            writer.send("readings", [Outgoing(meter, b'{"meter":"%s","at":1}' % meter)])
            while worker.metrics.events_in <= number:
                worker.run_once()
        reporter.report_if_due(worker)
    with closing(ReportReader.open(driver.bus, datetime.fromtimestamp(0, UTC))) as reports:
        reports.read()
        [interval] = reports.intervals(SystemClock().now_ms()).values()
    own = Count.reads.bucket_of("hot")
    shares = {shard.bucket: (shard.hot_key == "hot", shard.hot_key_share or 0.0) for shard in interval.last.shards}

    assert shares[own][0]
    assert shares[own][1] > 0.5 > shares[1 - own][1]


@pytest.mark.parametrize(
    ("key", "share", "words"),
    [
        ("JFK", 0.62, "Key 'JFK' has about 62% of its recent events, so more workers do not help"),
        ("JFK", 0.1, "no single key is the cause"),
        ("a\x1b[2J", 0.9, "Key 'a\\x1b[2J' has"),
        ("", 0.0, "One key may have most of the events"),
    ],
)
def test_the_finding_about_a_skewed_bucket_names_the_key(key: str, share: float, words: str) -> None:
    """The key must have enough of the events. Control characters are escaped."""
    slow = shard_status(2, lag_s=600.0, backlog_events=100, hot_key=key, hot_key_share=share)
    status = processor_status(*(shard_status(bucket) for bucket in (0, 1, 3)), slow)
    [message] = [each.message for each in findings_of([status]) if each.kind == "skew"]

    assert words in message
