"""Clients of a broker that answers nothing: they rest, and those that do not recover are replaced."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
from support.kafka_proxy import KafkaProxy

from penstock.transport import (
    CLIENT_COUNTS,
    Bucket,
    BusError,
    BusUnreachable,
    CategorySpec,
    DeliveryFailed,
    MembershipLost,
    Outgoing,
    Position,
    Reader,
    bucket_follower,
    ranges_to_end,
    read_offset_range,
)
from penstock.transport.kafka import KafkaBus, KafkaSettings, catalog, kept_client

LIMIT_S = 240.0
BURSTS, BURST = 30, 4
"""More requests than may be in flight, since a flush of a millisecond sends the messages of each burst."""
ASKING = 3
"""Threads with a request each while a client is replaced."""
WRITERS = 6
REFUSED_S = 4.0
"""An outage in which writers pause."""
SENT_AGAIN_S = 60.0
"""The trials of a writer are at most 5 s apart, and its connections at most 0.2 s late."""
SPANS, SPAN_S = 5, 1.0
"""How often the processor time of a resting process is measured: something else in it may work in one of these times."""
BUSIEST = 0.1
"""The most processor time of a resting writer, as a share of one core. It needs 0.01, and a thread that does not rest needs 1."""

Wait = Callable[..., None]


@pytest.fixture
def bus(through_proxy: tuple[str, KafkaProxy], prefix: str, monkeypatch: pytest.MonkeyPatch) -> KafkaBus:
    """A bus with the category `prefix`, whose clients are compared with new ones after a second."""
    monkeypatch.setattr(kept_client, "REPLACED_AFTER_S", 1.0)
    monkeypatch.setattr(kept_client, "ASK_EVERY_S", 0.2)
    # A client that ends its silent connections recovers without a replacement.
    bus = KafkaBus(KafkaSettings(through_proxy[0], {"socket.timeout.ms": "300000"}))
    KafkaBus(KafkaSettings(through_proxy[0])).catalog.create(CategorySpec(prefix, 1))
    return bus


@pytest.fixture
def short_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of catalogs that soon end without an answer. One may do so on a busy machine, although it would be answered."""
    monkeypatch.setattr(catalog, "ANSWER_LIMIT_S", 2.0)


class Joined:
    """A member that records its buckets."""

    def __init__(self) -> None:
        self.buckets: list[Bucket] = []

    def assigned(self, buckets: Sequence[Bucket]) -> None:
        self.buckets += buckets

    def revoked(self, buckets: Sequence[Bucket]) -> None:
        pass

    lost = revoked


def replaced_while(act: Callable[[], object], proxy: KafkaProxy, wait_until: Wait) -> None:
    """Repeat an act on silent connections until a client was replaced. New ones are silenced before each act: a client opens them when it needs them."""
    before = CLIENT_COUNTS.replaced

    def is_replaced() -> bool:
        proxy.silence_present()
        act()
        return CLIENT_COUNTS.replaced > before

    wait_until(is_replaced, LIMIT_S)


@pytest.mark.usefixtures("short_requests")
def test_the_client_of_the_catalog_is_replaced(
    bus: KafkaBus, proxy: KafkaProxy, prefix: str, wait_until: Wait, caplog: pytest.LogCaptureFixture
) -> None:
    """Requests succeed again, and one line reports it."""
    caplog.set_level(logging.WARNING, "penstock.kafka")

    def is_known() -> bool:
        with suppress(BusUnreachable):
            return prefix in bus.catalog.names()
        return False

    replaced_while(is_known, proxy, wait_until)
    lines = [record.getMessage() for record in caplog.records if "It is replaced" in record.getMessage()]
    wait_until(is_known, LIMIT_S)

    assert len(lines) == 1


def client_threads() -> int:
    """Return the number of threads of all clients in this process."""
    return sum(_name_of(thread).startswith("rdk:") for thread in Path("/proc/self/task").iterdir())


def _name_of(thread: Path) -> str:
    """Return the name of a thread; an empty name if it has ended meanwhile."""
    try:
        return (thread / "comm").read_text()
    except OSError:
        return ""


@pytest.mark.usefixtures("short_requests")
def test_a_replaced_client_is_released(bus: KafkaBus, proxy: KafkaProxy, prefix: str, wait_until: Wait) -> None:
    """Its threads and connections end, and so do requests in other threads, which can be repeated."""
    bus.catalog.names()
    before, replaced = client_threads(), CLIENT_COUNTS.replaced
    failed: list[BaseException] = []

    def ask_until_answered() -> None:
        while True:
            if CLIENT_COUNTS.replaced == replaced:
                proxy.silence_present()  # a client opens connections when it needs them
            try:
                bus.catalog.topics([prefix])
            except BusError as error:
                failed.append(error)
            else:
                if CLIENT_COUNTS.replaced > replaced:
                    return

    with ThreadPoolExecutor() as threads:
        for asking in [threads.submit(ask_until_answered) for _ in range(ASKING)]:
            asking.result()
    wait_until(lambda: client_threads() <= before, LIMIT_S)

    assert {type(error) for error in failed} == {BusUnreachable}


def test_a_scanner_goes_on_where_it_was(bus: KafkaBus, proxy: KafkaProxy, prefix: str, wait_until: Wait) -> None:
    """A scanner with a new client returns each message once."""
    read: list[int] = []
    with closing(bus.writer()) as writer, closing(bus.scanner([Position(Bucket(prefix, 0), None)])) as scanner:

        def poll() -> None:
            read.extend(message.offset() for batch in scanner.poll(0.1).batches for message in batch.messages)

        def has_read(count: int) -> bool:
            poll()
            return len(read) >= count

        writer.send(prefix, [Outgoing(None, b"1", 0)])
        writer.flush()
        wait_until(lambda: has_read(1), LIMIT_S)
        proxy.silence_present()  # before the next message, which is not read on them
        with closing(bus.writer()) as other:
            other.send(prefix, [Outgoing(None, b"2", 0)])
            other.flush()
        replaced_while(poll, proxy, wait_until)
        wait_until(lambda: has_read(2), LIMIT_S)

    assert read == [0, 1]


def joined(bus: KafkaBus, prefix: str, wait_until: Wait) -> Reader:
    """Return a reader that has its bucket. It may open further connections to read it."""
    member = Joined()
    reader = bus.reader(f"{prefix}.group", [prefix], member, "one")

    def has_joined() -> bool:
        reader.poll(0.1)
        return bool(member.buckets)

    wait_until(has_joined, LIMIT_S)
    return reader


def test_a_member_joins_again(bus: KafkaBus, proxy: KafkaProxy, prefix: str, wait_until: Wait) -> None:
    """A member whose client does not recover reports the end of its membership, after which a worker joins with a new client."""
    with (
        closing(joined(bus, prefix, wait_until)) as reader,
        pytest.raises(MembershipLost, match="does not recover"),
    ):
        replaced_while(lambda: reader.poll(0.1), proxy, wait_until)


def test_a_member_that_commits_joins_again(bus: KafkaBus, proxy: KafkaProxy, prefix: str, wait_until: Wait) -> None:
    """The client keeps the commit, and nothing polls meanwhile. When the reader is closed, the client is released after its call."""
    before = client_threads()
    reader = joined(bus, prefix, wait_until)
    proxy.silence_present()
    with pytest.raises(MembershipLost, match="does not recover"):
        reader.commit([Position(Bucket(prefix, 0), 0)])
    reader.close()
    with closing(joined(bus, prefix, wait_until)) as again:
        again.commit([Position(Bucket(prefix, 0), 0)])
    wait_until(lambda: client_threads() <= before, 2 * LIMIT_S)


def test_a_writer_fails_its_messages_and_writes_again(bus: KafkaBus, proxy: KafkaProxy, prefix: str) -> None:
    """The flush reports messages that were not acknowledged, and the next ones are delivered by a new client."""
    with closing(bus.writer()) as writer:
        writer.send(prefix, [Outgoing(None, b"1", 0)])
        writer.flush()
        proxy.silence_present()
        writer.send(prefix, [Outgoing(None, b"2", 0)])
        with pytest.raises(DeliveryFailed):
            writer.flush()
        writer.send(prefix, [Outgoing(None, b"3", 0)])
        writer.flush()

    assert KafkaBus(bus.settings).catalog.ends(prefix)[0] >= 2


def processor_share(act: Callable[[], object]) -> float:
    """Repeat an act for a time, and return this process's processor time as a share of one core."""
    cpu_s, wall_s = time.process_time(), time.monotonic()
    while time.monotonic() < wall_s + SPAN_S:
        act()
        time.sleep(0.1)
    return (time.process_time() - cpu_s) / (time.monotonic() - wall_s)


def test_a_writer_rests_while_nothing_is_acknowledged(
    through_proxy: tuple[str, KafkaProxy], proxy: KafkaProxy, prefix: str
) -> None:
    """It has more requests than may be in flight. It uses almost no processor time, and delivers every message once afterwards."""
    bus = KafkaBus(KafkaSettings(through_proxy[0]))
    bus.catalog.create(CategorySpec(prefix, 1))
    with closing(bus.writer()) as writer:
        for _ in range(2):
            writer.send(prefix, [Outgoing(None, b"acknowledged", 0)])
            writer.flush()
        proxy.hold_answers()
        for _ in range(BURSTS):
            writer.send(prefix, [Outgoing(None, b"waiting" * 20, 0)] * BURST)
            writer.send_now()
            time.sleep(0.05)
        shares = [processor_share(writer.send_now) for _ in range(SPANS)]
        proxy.let_through()
        writer.flush()

    assert min(shares) < BUSIEST, shares
    assert bus.catalog.ends(prefix)[0] == BURSTS * BURST + 2


def test_writers_send_again_when_connections_are_accepted_again(
    through_proxy: tuple[str, KafkaProxy], proxy: KafkaProxy, prefix: str, wait_until: Wait
) -> None:
    """The next trials send what the lost connection returned to the queue, because the client's threads do not sleep through them."""
    bus = KafkaBus(KafkaSettings(through_proxy[0], {"reconnect.backoff.max.ms": "200"}))
    bus.catalog.create(CategorySpec(prefix, 1))
    with ExitStack() as opened:
        writers = [opened.enter_context(closing(bus.writer())) for _ in range(WRITERS)]
        for writer in writers:
            writer.send(prefix, [Outgoing(None, b"1", 0)])
            writer.flush()
        proxy.refuse()
        for writer in writers:
            writer.send(prefix, [Outgoing(None, b"2", 0)])
        threads = opened.enter_context(ThreadPoolExecutor(WRITERS))
        flushes = [threads.submit(writer.flush) for writer in writers]
        time.sleep(REFUSED_S)
        assert not any(flush.done() for flush in flushes)
        proxy.let_through()
        wait_until(lambda: all(flush.done() for flush in flushes), SENT_AGAIN_S)
        for flush in flushes:
            flush.result()

    assert bus.catalog.ends(prefix)[0] == 2 * WRITERS


def test_a_read_to_an_end_fails_in_an_outage_or_continues_after_it(
    through_proxy: tuple[str, KafkaProxy], proxy: KafkaProxy, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reports the outage, and the reason is the client's."""
    bus = KafkaBus(KafkaSettings(through_proxy[0]))
    bus.catalog.create(CategorySpec(prefix, 1))
    with closing(bus.writer()) as writer:
        writer.send(prefix, [Outgoing(b"k", b"%d" % number, 0) for number in range(20)])
        writer.flush()
    [whole] = ranges_to_end(bus, prefix, {0: 0})
    monkeypatch.setattr(bucket_follower, "BLOCKED_AFTER_S", 1.0)
    monkeypatch.setattr(catalog, "ANSWER_LIMIT_S", 1.0)
    proxy.cut_off()
    with pytest.raises(BusUnreachable, match=rf"{prefix}/0 is not read completely: .* No Kafka broker answers at 127"):
        list(read_offset_range(bus, whole, silence_limit_s=2.0))
    handler = Restores(proxy)
    logging.getLogger("penstock.kafka").addHandler(handler)
    try:
        found = [message.value() for batch in read_offset_range(bus, whole) for message in batch.messages]
    finally:
        logging.getLogger("penstock.kafka").removeHandler(handler)

    assert found == [b"%d" % number for number in range(20)]
    assert handler.waits[0].startswith(f"Waiting: {prefix}/0 is not read completely")


class Restores(logging.Handler):
    """Ends an outage when a read reports that it waits."""

    def __init__(self, proxy: KafkaProxy) -> None:
        super().__init__(logging.WARNING)
        self._proxy = proxy
        self.waits: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("Waiting: "):
            self.waits.append(record.getMessage())
            self._proxy.let_through()
