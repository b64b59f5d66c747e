"""Offset ranges of buckets: their pieces, their events, and a bus that stops sending."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.outages import SilentBus, Switch

from penstock.transport import (
    Bucket,
    BucketFollower,
    BusError,
    BusUnreachable,
    CategorySpec,
    End,
    MissingCategory,
    OffsetOutOfRange,
    OffsetRange,
    Outgoing,
    Polled,
    Position,
    TopicRecreated,
    changed_topics,
    read_offset_range,
    read_offset_ranges,
)
from penstock.transport.memory import MemoryBus
from penstock.transport.memory.readers import MemoryScanner

BUCKET, OTHER = Bucket("words", 3), Bucket("words", 0)


@settings(deadline=None)
@given(start=st.integers(0, 2000), length=st.integers(0, 2000), offsets=st.integers(1, 500))
def test_pieces_cover_an_offset_range_without_gaps(start: int, length: int, offsets: int) -> None:
    """Each offset is in one piece, in order; no piece is empty or longer than the limit."""
    pieces = OffsetRange(BUCKET, start, start + length).cut(offsets)

    assert [at for piece in pieces for at in range(piece.start, piece.end)] == list(range(start, start + length))
    assert all(0 < piece.end - piece.start <= offsets and piece.bucket == BUCKET for piece in pieces)


def bus_with(messages: int = 5, bus: MemoryBus | None = None) -> MemoryBus:
    """Return a bus with messages in one bucket."""
    bus = MemoryBus() if bus is None else bus
    bus.create(CategorySpec("words", 4))
    bus.writer().send("words", [Outgoing(None, b"%d" % number, BUCKET.number) for number in range(messages)])
    return bus


def test_a_bus_that_stops_sending_raises_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """The read fails instead of returning fewer events. Meanwhile, it logs what it waits for."""
    bus = bus_with(bus=SilentBus(["words"]))

    with pytest.raises(
        BusUnreachable, match=r"words/3 is not read completely: the bus has sent nothing for 50 s. The br"
    ):
        list(read_offset_range(bus, OffsetRange(BUCKET, 0, 5), silence_limit_s=50))
    assert [line.message.split(". ")[0] for line in caplog.records] == [
        f"Waiting: words/3 is not read completely: the bus has sent nothing for {seconds} s" for seconds in (10, 40)
    ]


def test_a_read_in_an_outage_reports_what_the_client_says(caplog: pytest.LogCaptureFixture) -> None:
    """The address and the remedy are in the client's error. After the outage, the read continues."""
    network = Switch()
    bus = bus_with(bus=MemoryBus(network=network))
    network.is_cut = True
    found = read_offset_range(bus, OffsetRange(BUCKET, 0, 5))
    with pytest.raises(BusUnreachable, match=r"120 s\. No broker answered \(describe\)\. Correct \[kafka-settings\]\."):
        next(found)
    network.is_cut = False

    assert len(caplog.records) == 4
    assert [batch.next_offset for batch in read_offset_range(bus, OffsetRange(BUCKET, 0, 5))] == [5]


def test_the_end_of_a_silence_begins_a_new_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is about progress, so a slow bus does not count as failed."""
    bus = bus_with()
    halting = Halting(bus.scanner([Position(BUCKET, 0)]), 99)
    monkeypatch.setattr(bus, "scanner", lambda _: halting)
    found = BucketFollower(bus, {BUCKET: 0}, {BUCKET: 5}).read_to_end(silence_limit_s=100)

    assert sum(len(batch.messages) for batch in found) == 5


class Halting:
    """A scanner that gets nothing for a number of polls before each message."""

    def __init__(self, scanner: MemoryScanner, polls: int) -> None:
        self._scanner = scanner
        self._scanner.poll_limit = 1
        self._polls = polls
        self._left = polls

    def poll(self, timeout_s: float) -> Polled:
        self._left -= 1
        if self._left >= 0:
            return Polled([], [])
        self._left = self._polls
        return self._scanner.poll(timeout_s)

    def close(self) -> None:
        """Do nothing."""


def test_an_end_before_the_end_of_the_range_is_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scanner may report it again and again, for example at each new connection."""
    bus = bus_with()
    monkeypatch.setattr(bus, "scanner", lambda _: Ended(End(BUCKET, 4)))
    with pytest.raises(BusUnreachable, match="has sent nothing for 5 s"):
        list(BucketFollower(bus, {BUCKET: 0}, {BUCKET: 5}).read_to_end(silence_limit_s=5))

    assert list(BucketFollower(bus, {BUCKET: 0}, {BUCKET: 4}).read_to_end(silence_limit_s=5)) == []


def test_a_follower_reads_to_the_end_once_and_goes_on() -> None:
    """Its positions follow the messages, and it stays complete when others arrive."""
    bus = bus_with()
    with closing(BucketFollower(bus, {BUCKET: 1, OTHER: None})) as follower:
        assert not follower.is_complete
        earlier = [batch.next_offset for batch in follower.read_to_end()]
        assert (earlier, follower.positions) == ([5], {BUCKET: 5, OTHER: 0})
        bus.writer().send("words", [Outgoing(None, b"x", OTHER.number)])
        assert [batch.bucket for batch in follower.poll(0.0)] == [OTHER]

        assert (follower.is_complete, follower.positions) == (True, {BUCKET: 5, OTHER: 1})


def test_a_follower_need_not_wait_for_the_report_of_an_end_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scanner reports none here, so an end in front of the position is enough, and one behind it is not."""
    bus = bus_with()
    scanner = bus.scanner([Position(BUCKET, 0)])
    monkeypatch.setattr(bus, "scanner", lambda _: Unending(scanner))
    follower = BucketFollower(bus, {BUCKET: 0})
    follower.poll(0.0)
    before = follower.is_complete
    follower.expect_ends({BUCKET: 6})
    behind = follower.is_complete
    follower.expect_ends({BUCKET: 5})

    assert (before, behind, follower.is_complete) == (False, False, True)


class Unending:
    """A scanner that reports no end."""

    def __init__(self, scanner: MemoryScanner) -> None:
        self._scanner = scanner

    def poll(self, timeout_s: float) -> Polled:
        return self._scanner.poll(timeout_s)._replace(ended=[])

    def close(self) -> None:
        """Do nothing."""


def test_changed_topics_are_the_recreated_and_resized_ones() -> None:
    """A missing one is reported by its reader."""
    bus = MemoryBus()
    for name in ("same", "recreated", "resized", "missing"):
        bus.create(CategorySpec(name, 1))
    topics = bus.catalog.topics(["same", "recreated", "resized", "missing"])
    bus.delete("recreated")
    bus.create(CategorySpec("recreated", 1))
    bus.resize("resized", 2)
    bus.delete("missing")

    assert sorted(changed_topics(bus, topics)) == ["recreated", "resized"]


class Ended:
    """A scanner that reports the same end with each poll."""

    def __init__(self, end: End) -> None:
        self._end = end

    def poll(self, timeout_s: float) -> Polled:
        return Polled([], [self._end])

    def close(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize(("messages", "error"), [(0, OffsetOutOfRange), (1, OffsetOutOfRange), (3, TopicRecreated)])
def test_a_category_that_was_created_again_fails_the_read(messages: int, error: type[BusError]) -> None:
    """The events up to the end do not arrive any more, however long a reader waits."""
    bus = bus_with(bus=SlowBus(2))
    found = read_offset_range(bus, OffsetRange(BUCKET, 0, 5))
    assert next(found).next_offset == 2
    bus.delete("words")
    bus_with(messages, bus)

    with pytest.raises(error):
        list(found)


def test_a_range_beyond_the_end_is_a_category_that_was_created_again() -> None:
    """The error has both offsets."""
    bus = bus_with(messages=5)

    with pytest.raises(TopicRecreated, match=r"words/3 has offsets up to 5 only, and was read up to 7 at first"):
        list(read_offset_range(bus, OffsetRange(BUCKET, 0, 7)))


def test_a_category_that_was_deleted_fails_the_read() -> None:
    """The read fails at once if the bus reports the deletion, and otherwise when the reader asks why nothing arrives."""
    bus = bus_with(bus=SilentBus(["words"]))
    found = read_offset_range(bus, OffsetRange(BUCKET, 0, 5))
    bus.delete("words")

    with pytest.raises(MissingCategory, match="Category words was deleted while it was read"):
        list(found)


def test_an_open_transaction_is_named_by_the_read_that_waits_for_it(caplog: pytest.LogCaptureFixture) -> None:
    """A range up to the end of the bucket includes its events. They arrive when it ends."""
    now_ms = round(time.time() * 1000) - 60_000
    bus = bus_with(bus=MemoryBus(lambda: now_ms))
    writer = bus.transactional_writer("foreign", None, 60.0, ["words"])
    writer.send("words", [Outgoing(None, b"5", BUCKET.number)])
    writer.flush()
    whole = OffsetRange(BUCKET, 0, bus.ends("words")[BUCKET.number])
    with pytest.raises(BusUnreachable, match=r"words/3 cannot be read from offset 5 on: a transaction has been open"):
        list(read_offset_range(bus, whole))
    assert re.search(r"a transaction has been open there for \d\d s", caplog.records[0].message)
    writer.commit([])

    assert [batch.next_offset for batch in read_offset_range(bus, whole)] == [6]


@settings(deadline=None)
@given(
    lengths=st.lists(st.integers(0, 30), min_size=4, max_size=4),
    cuts=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=4, max_size=4),
    poll_limit=st.integers(1, 10),
)
def test_ranges_of_several_buckets_are_read_to_their_ends_and_no_further(
    lengths: list[int], cuts: list[tuple[int, int]], poll_limit: int
) -> None:
    """Each message of a range is read once, in order, and an empty range has no messages."""
    bus = SlowBus(poll_limit)
    bus.create(CategorySpec("words", 4))
    for number, length in enumerate(lengths):
        bus.writer().send("words", [Outgoing(None, b"%d" % at, number) for at in range(length)])
    ranges = [
        OffsetRange(Bucket("words", number), min(start, length), min(end, length))
        for number, (length, (start, end)) in enumerate(zip(lengths, cuts, strict=True))
    ]
    found: dict[int, list[int]] = {number: [] for number in range(4)}
    for batch in read_offset_ranges(bus, ranges):
        found[batch.bucket.number] += [int(message.value() or b"") for message in batch.messages]

    assert found == {each.bucket.number: list(range(each.start, each.end)) for each in ranges}


class SlowBus(MemoryBus):
    """A bus whose scanners return few messages of a bucket at once."""

    def __init__(self, poll_limit: int) -> None:
        super().__init__()
        self._poll_limit = poll_limit

    def scanner(self, positions: Sequence[Position]) -> MemoryScanner:
        scanner = super().scanner(positions)
        scanner.poll_limit = self._poll_limit
        return scanner
