"""What a cluster has agreed to is done when each of its brokers knows of it."""

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
    """A broker that librdkafka plays, in this process; it knows of a topic when something was written there."""

    def __init__(self) -> None:
        self._producer = Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": 1, "log_level": 0})
        [self.broker] = self._producer.list_topics(timeout=LIMIT_S).brokers.values()

    def learn(self) -> None:
        """Let it know of the topic."""
        self._producer.produce(TOPIC, b"")
        assert not self._producer.flush(LIMIT_S)

    def metadata(self) -> Any:
        """Return what it says."""
        return self._producer.list_topics(timeout=LIMIT_S)


@pytest.fixture
def brokers() -> list[OneBroker]:
    return [OneBroker(), OneBroker()]


def said_by(first: OneBroker, *others: OneBroker) -> ClusterMetadata:
    """Return what the first broker says, where others belong to the cluster, too."""
    said = ClusterMetadata()
    said.brokers = dict(enumerate([first.broker, *(other.broker for other in others)]))
    said.orig_broker_id = 0
    said.topics = first.metadata().topics
    return said


def is_there(metadata: Any) -> bool:
    return TOPIC in metadata.topics


def test_what_one_broker_has_not_heard_of_is_not_shown_by_all(brokers: list[OneBroker]) -> None:
    """A client that asks this one next would be told that there is no such category."""
    quick, slow = brokers
    settings = KafkaSettings("unused")
    quick.learn()
    early = all_brokers_show(said_by(quick, slow), is_there, settings, LIMIT_S)
    slow.learn()

    assert not early
    assert all_brokers_show(said_by(quick, slow), is_there, settings, LIMIT_S)


def test_a_broker_that_does_not_answer_shows_nothing(brokers: list[OneBroker]) -> None:
    """It may come back knowing of nothing; if it is dead, it soon belongs to the cluster no more."""
    first, gone = brokers
    first.learn()
    said = said_by(first, gone)
    gone.broker.port = 1

    assert not all_brokers_show(said, is_there, KafkaSettings("unused"), 0.1)
    assert all_brokers_show(said_by(first), is_there, KafkaSettings("unused"), 0.1)
