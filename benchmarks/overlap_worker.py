"""The measured side: one process that stores events in Scuba's store at most once, in one of three ways.

    python overlap_worker.py BOOTSTRAP (buffered|overlapped|penstock) GROUP INTERVAL

INTERVAL is in seconds, between checkpoints. Prints the measured events, the seconds, their processor time, and the rows in the store.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, Message, TopicPartition
from events import Event, by_dim
from measuring import Measured, measured

import penstock as ps
from penstock.ops.kernel import ends_of
from penstock.ops.serve.rows.flat_columns import FlatColumns
from penstock.ops.serve.rows.sampling import ALL
from penstock.ops.serve.rows.store import SavedPositions, ScubaStore
from penstock.processors.declare import ALL_SEMANTICS, Sink, SinkBatch, plan_of
from penstock.transport.codecs import Codecs
from penstock.transport.kafka import KafkaBus, KafkaSettings

BATCH = 10_000
MEMORY_BYTES = 6 << 30
NEVER = 2**62
"""More events or bytes than the input has, so only time triggers checkpoints."""


class Rows:
    """The rows of the events, in Scuba's store in memory."""

    def __init__(self) -> None:
        self._columns = FlatColumns(by_dim)
        self._store = ScubaStore({by_dim.name: self._columns.schema}, None, MEMORY_BYTES, ALL)

    def of(self, bucket: int, events: Sequence[Event]) -> pa.Table:
        """Return the rows of events, without their offsets and arrival times."""
        unknown = np.zeros(len(events), np.int64)
        return self._columns.table(bucket, events, unknown, unknown)

    def append(self, tables: Sequence[pa.Table]) -> None:
        """Store rows."""
        self._store.append(by_dim.name, pa.concat_tables(tables), SavedPositions("", {}))

    def stored(self) -> int:
        """Return the number of different events in the store; each has a time of its own."""
        with self._store.cursor() as cursor:
            [(rows, different)] = cursor.execute(
                f"SELECT count(*), count(DISTINCT event_time) FROM {by_dim.name}"  # noqa: S608 - a name of ours
            ).fetchall()
        if rows != different:
            raise RuntimeError(f"{rows:,} rows contain only {different:,} events: some were stored twice.")
        return int(different)


class RowSink(Sink):
    """The same store as a sink, for a worker.

    Args:
        rows: receives the rows.
    """

    record = Event
    name = "rows"
    semantics = ALL_SEMANTICS

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def open(self) -> RowSink:
        """Return itself: it is its own writer."""
        return self

    def claim(self, processor: str, bucket: int) -> str:
        """Do nothing: the store belongs to one process."""
        return ""

    def write(self, batch: SinkBatch) -> None:
        """Store the rows of a checkpoint."""
        self._rows.append([self._rows.of(batch.bucket, batch.rows)])

    def close(self) -> None:
        """Keep the rows."""


def loop(bootstrap: str, group: str, rows: Rows, interval_s: float, *, is_overlapped: bool) -> Measured:
    """Store all events with a plain consumer loop, which commits offsets each interval and only then stores the events before.

    Args:
        bootstrap: the address of the broker.
        group: an unused name.
        rows: receives the rows.
        interval_s: the seconds between checkpoints.
        is_overlapped: decode events as they arrive, instead of after the checkpoint.
    """
    consumer = _consumer(bootstrap, group)
    decode = Codecs(KafkaBus(KafkaSettings(bootstrap))).of(by_dim).decode

    # Any: the client's messages have bytes or text as values by their type.
    def table(messages: Sequence[Any]) -> pa.Table:
        return rows.of(0, decode(messages).events)

    unread = wanted = sum(consumer.get_watermark_offsets(bucket)[1] for bucket in consumer.assignment())
    messages = _next_batch(consumer)
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    while messages:
        held: list[Any] = []
        deadline_s = time.monotonic() + interval_s
        while messages:
            unread -= len(messages)
            held.append(table(messages) if is_overlapped else messages)
            messages = _next_batch(consumer) if unread and time.monotonic() < deadline_s else []
        consumer.commit(asynchronous=False)
        rows.append(held if is_overlapped else [table(messages) for messages in held])
        messages = _next_batch(consumer) if unread else []
    return Measured(wanted, time.monotonic() - began_s, time.process_time() - began_cpu_s)


def penstock(bootstrap: str, group: str, rows: Rows, interval_s: float) -> Measured:
    """Store all events with one Penstock worker."""

    class Ingest(ps.Stateless):
        """Stores each event."""

        name = group
        reads, writes = by_dim, RowSink(rows)
        output_semantics = ps.Semantics.AT_MOST_ONCE
        checkpoint = ps.CheckpointInterval(events=NEVER, size_bytes=NEVER, time=timedelta(seconds=interval_s))

        def process(self, event: Event) -> tuple[Event]:
            return (event,)

    bus = KafkaBus(KafkaSettings(bootstrap))
    return measured(Ingest, bus, sum(ends_of(plan_of(Ingest).inputs, bus).values()))


def _consumer(bootstrap: str, group: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,
            "queued.min.messages": 500_000,
            "fetch.message.max.bytes": 4 * 2**20,
        }
    )
    consumer.assign([TopicPartition(by_dim.name, number, 0) for number in range(by_dim.buckets)])
    return consumer


def _next_batch(consumer: Consumer) -> list[Message]:
    """Return the next messages, at least one."""
    messages: list[Message] = []
    while not messages:
        messages = consumer.consume(BATCH, 0.1)
    return messages


def main(bootstrap: str, way: str, group: str, interval: str) -> None:
    """Store all events."""
    rows = Rows()
    if way == "penstock":
        found = penstock(bootstrap, group, rows, float(interval))
    else:
        found = loop(bootstrap, group, rows, float(interval), is_overlapped=way == "overlapped")
    print(*found, rows.stored())
    # What a worker hides from the collector would be reported by DuckDB as leaked at the end.
    gc.unfreeze()


if __name__ == "__main__":
    main(*sys.argv[1:])
