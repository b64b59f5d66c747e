"""The baseline of the archiver: a tuned plain confluent-kafka loop that only decodes flights.

    python plain_read.py BOOTSTRAP

Prints the messages read, and the seconds from the first message to the last.
"""

from __future__ import annotations

import sys
import time

import msgspec
from confluent_kafka import Consumer, TopicPartition
from flights_app import Flight, flights


def main(bootstrap: str) -> None:
    """Read all messages."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "plain_read",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,
            "queued.min.messages": 500_000,
            "fetch.message.max.bytes": 4 * 2**20,
        }
    )
    buckets = [TopicPartition(flights.name, number, 0) for number in range(flights.buckets)]
    wanted = sum(consumer.get_watermark_offsets(bucket)[1] for bucket in buckets)
    consumer.assign(buckets)
    decode = msgspec.json.Decoder(Flight).decode
    done, began = 0, 0.0
    while done < wanted:
        messages = consumer.consume(10_000, 1.0)
        began = began or time.monotonic()
        for message in messages:
            decode(message.value() or b"")
        done += len(messages)
    print(done, time.monotonic() - began)


if __name__ == "__main__":
    main(*sys.argv[1:])
