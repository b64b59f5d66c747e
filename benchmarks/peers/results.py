"""The results of a run, read back from the broker, and the truth about them, recomputed from the input with the standard library only."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, Message, TopicPartition

WINDOW_MS = 300_000
KEPT = ("dim_id", "event_time", "topic")

Row = tuple[object, ...]
Results = Mapping[Row, int]
"""How often each click occurs, or the last count of each key and window."""


@dataclass(frozen=True)
class Written:
    """The results of a run.

    Args:
        results: the results.
        last_s: when the last one arrived at the broker, in seconds since 1970.
    """

    results: Results
    last_s: float


class Broker:
    """Reads committed messages of topics. Use it within `contextlib.closing`."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "peer-results",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )

    def ends(self, topic: str) -> dict[int, int]:
        """Return the end of each partition, after which the next run's results follow."""
        partitions = self._consumer.list_topics(topic).topics[topic].partitions
        return {one: self._consumer.get_watermark_offsets(TopicPartition(topic, one))[1] for one in partitions}

    def expected(self, topic: str, field: str | None) -> Results:
        """Return the correct results of a topic of events.

        Args:
            topic: the topic.
            field: the field of the counted key; None for clicks.
        """
        found: Counter[Row] = Counter()
        for message in self._messages(topic, dict.fromkeys(self.ends(topic), 0)):
            event = json.loads(message.value() or b"")
            if field is not None:
                found[event[field], event["event_time"] - event["event_time"] % WINDOW_MS] += 1
            elif event["event"] == "click":
                found[tuple((name, event[name]) for name in KEPT)] += 1
        return found

    def written(self, topic: str, begins: dict[int, int], field: str | None) -> Written:
        """Return the results of a topic from these offsets on."""
        found: dict[Row, int] = {}
        last_ms = 0
        for message in self._messages(topic, begins):
            last_ms = max(last_ms, message.timestamp()[1])
            result = json.loads(message.value() or b"")
            if field is None:
                row = tuple(sorted(result.items()))
                found[row] = found.get(row, 0) + 1
            else:
                found[result["key"], result["window"]] = result["n"]
        return Written(found, last_ms / 1000)

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _messages(self, topic: str, begins: dict[int, int]) -> Iterator[Message]:
        self._consumer.assign([TopicPartition(topic, *begin) for begin in begins.items()])
        unread = set(begins)
        while unread:
            for message in self._consumer.consume(10_000, 1.0):
                if message.error():
                    unread.discard(message.partition() or 0)
                else:
                    yield message
        self._consumer.unassign()


def difference(results: Results, expected: Results) -> str | None:
    """Return how results differ from the expected ones; None if they are equal."""
    if results == expected:
        return None
    wrong = [row for row in results.keys() | expected.keys() if results.get(row) != expected.get(row)]
    example = min(wrong, key=repr)
    return (
        f"{len(wrong):,} of {len(expected):,} results are wrong, such as {example}: {results.get(example)} instead of "
        f"{expected.get(example)}"
    )
