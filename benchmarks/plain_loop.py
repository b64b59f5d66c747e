"""The baseline: a tuned plain confluent-kafka loop that does the same work without durable state.

    python plain_loop.py BOOTSTRAP [sql_](filter|columns|few|many|once) GROUP

Prints the messages read, and the seconds from the first message to the last acknowledged output and offset.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import msgspec
from confluent_kafka import Consumer, Producer, TopicPartition

SOURCES = {
    "filter": "bench_by_dim",
    "columns": "bench_by_dim",
    "once": "bench_by_dim",
    "few": "bench_by_topic",
    "many": "bench_by_dim",
}
SINKS = {"few": "bench_few_counts", "many": "bench_many_counts"}
COMMIT_EVERY_S = 1.0


def main(bootstrap: str, work: str, group: str) -> None:
    """Read the source to its end."""
    work = work.removeprefix("sql_")  # the same work
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,
            "queued.min.messages": 500_000,
            "fetch.message.max.bytes": 4 * 2**20,
        }
    )
    producer = open_producer(bootstrap, group if work == "once" else None)
    partitions = [TopicPartition(SOURCES[work], number) for number in range(4)]
    wanted = sum(consumer.get_watermark_offsets(partition)[1] for partition in partitions)
    consumer.subscribe([SOURCES[work]])
    decode, encode = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode
    counts: dict[tuple[str, int], int] = {}
    changed: set[tuple[str, int]] = set()
    field, sink = {"few": "topic", "many": "dim_id"}.get(work, ""), SINKS.get(work, "bench_clicks")
    done, began, next_commit = 0, 0.0, 0.0

    def commit() -> None:
        if work == "once":
            offsets, member = consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction(offsets, member)
            producer.commit_transaction()
            producer.begin_transaction()
            return
        for key, window in changed:
            producer.produce(sink, encode({"key": key, "window": window, "n": counts[key, window]}), key)
        changed.clear()
        producer.flush()
        consumer.commit(asynchronous=False)

    while done < wanted:
        messages = consumer.consume(1000, 0.1)
        if messages and not began:
            began = time.monotonic()
            next_commit = began + COMMIT_EVERY_S
        for message in messages:
            event: dict[str, Any] = decode(message.value() or b"")
            if field:
                slot = event[field], event["event_time"] // 300_000 * 300_000
                counts[slot] = counts.get(slot, 0) + 1
                changed.add(slot)
            elif event["event"] == "click":
                kept = {name: event[name] for name in ("event_time", "dim_id", "topic")}
                producer.produce(sink, encode(kept), message.key())
        producer.poll(0)
        done += len(messages)
        if began and time.monotonic() >= next_commit:
            commit()
            next_commit = time.monotonic() + COMMIT_EVERY_S
    commit()
    print(done, time.monotonic() - began)
    consumer.close()


def open_producer(bootstrap: str, transactional_id: str | None) -> Producer:
    """Return a producer; with an id, in its first transaction."""
    identity: dict[str, Any] = {} if transactional_id is None else {"transactional.id": transactional_id}
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": "lz4",
            "linger.ms": 5,
            "acks": "all",
            "queue.buffering.max.messages": 1_000_000,
            **identity,
        }
    )
    if transactional_id is not None:
        producer.init_transactions()
        producer.begin_transaction()
    return producer


if __name__ == "__main__":
    main(*sys.argv[1:])
