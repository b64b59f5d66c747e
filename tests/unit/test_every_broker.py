"""A metadata change is complete when every broker of the cluster reports it."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import ClusterMetadata

from penstock.transport.kafka import KafkaSettings
from penstock.transport.kafka.every_broker import all_brokers_show

LIMIT_S = 10.0
TOPIC = "readings"


class OneBroker:
    """A mock broker of librdkafka in this process; it knows a topic after the first write to it."""

    def __init__(self) -> None:
        self._producer = Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": 1, "log_level": 0})
        [self.broker] = self._producer.list_topics(timeout=LIMIT_S).brokers.values()

    def learn(self) -> None:
        """Make the broker know the topic."""
        self._producer.produce(TOPIC, b"")
        assert not self._producer.flush(LIMIT_S)

    def metadata(self) -> Any:
        """Return the broker's metadata."""
        return self._producer.list_topics(timeout=LIMIT_S)


@pytest.fixture
def brokers() -> list[OneBroker]:
    return [OneBroker(), OneBroker()]


def metadata_of(first: OneBroker, *others: OneBroker) -> ClusterMetadata:
    """Return the metadata of the first broker of a cluster of several."""
    metadata = ClusterMetadata()
    metadata.brokers = dict(enumerate([first.broker, *(other.broker for other in others)]))
    metadata.orig_broker_id = 0
    metadata.topics = first.metadata().topics
    return metadata


def is_there(metadata: Any) -> bool:
    return TOPIC in metadata.topics


def test_a_topic_unknown_to_one_broker_is_not_visible_on_all(brokers: list[OneBroker]) -> None:
    """A client that asks this broker next would get an unknown-topic error."""
    quick, slow = brokers
    settings = KafkaSettings("unused")
    quick.learn()
    early = all_brokers_show(metadata_of(quick, slow), is_there, settings, LIMIT_S)
    slow.learn()

    assert not early
    assert all_brokers_show(metadata_of(quick, slow), is_there, settings, LIMIT_S)


def test_an_unreachable_broker_confirms_no_topic(brokers: list[OneBroker]) -> None:
    """It may restart with old metadata; a dead broker soon leaves the cluster."""
    first, unreachable = brokers
    first.learn()
    metadata = metadata_of(first, unreachable)
    unreachable.broker.port = 1

    assert not all_brokers_show(metadata, is_there, KafkaSettings("unused"), 0.1)
    assert all_brokers_show(metadata_of(first), is_there, KafkaSettings("unused"), 0.1)


def test_each_broker_answers_for_itself() -> None:
    """Every second client has connected to some other broker before it asks: that answer says nothing of the intended one."""
    cluster = Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": 3, "log_level": 0})
    metadata = cluster.list_topics(timeout=LIMIT_S)
    others = [node for node in metadata.brokers if node != metadata.orig_broker_id]
    answering: list[int] = []

    def record(answer: ClusterMetadata) -> bool:
        answering.append(answer.orig_broker_id)
        return True

    for _ in range(20):
        answering.clear()

        assert all_brokers_show(metadata, record, KafkaSettings("unused"), LIMIT_S)
        assert all(got in (node, -1) for got, node in zip(answering[1:], others, strict=True))
