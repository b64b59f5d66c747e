"""Asks each broker of a cluster by itself: what the cluster has agreed to reaches one broker later than another.

A broker that has not heard of a new topic yet says that there is none, and a client asks now this one, now that one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from .settings import KafkaSettings


def is_shown_by_all(
    metadata: Any, shown: Callable[[Any], bool], settings: KafkaSettings, answer_limit_s: float
) -> bool:
    """Return whether the metadata of every broker shows something.

    A broker that does not answer shows nothing; if it is dead, it belongs to the cluster no more when its session has ended.

    Args:
        metadata: what one of the brokers has said, with those that belong to the cluster.
        shown: what is asked of metadata.
        settings: how to reach the cluster.
        answer_limit_s: how long a broker may take to answer.
    """
    others = [broker for node, broker in metadata.brokers.items() if node != metadata.orig_broker_id]
    return shown(metadata) and all(_shows(broker, shown, settings, answer_limit_s) for broker in others)


def _shows(broker: Any, shown: Callable[[Any], bool], settings: KafkaSettings, answer_limit_s: float) -> bool:
    # A client that knows one broker only asks that one first.
    client = AdminClient(settings.for_admin() | {"bootstrap.servers": f"{broker.host}:{broker.port}"})
    try:
        return shown(client.list_topics(timeout=answer_limit_s))
    except KafkaException:
        return False
