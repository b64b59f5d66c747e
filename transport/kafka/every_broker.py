"""Checks of the metadata of every broker: a change reaches the brokers at different times.

A broker without the change reports a new topic as missing, and a client may ask any broker.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from .kept_client import brief_client
from .settings import BOOTSTRAP_BROKER, KafkaSettings


def all_brokers_show(
    metadata: Any, is_visible: Callable[[Any], bool], settings: KafkaSettings, answer_limit_s: float
) -> bool:
    """Return whether the metadata of every broker passes a check.

    A broker that does not answer fails the check. A dead broker leaves the cluster when its session ends.

    Args:
        metadata: the metadata of one broker, with the list of brokers.
        is_visible: the check of metadata.
        settings: the settings of the cluster.
        answer_limit_s: the time limit for each broker.
    """
    others = [broker for node, broker in metadata.brokers.items() if node != metadata.orig_broker_id]
    return is_visible(metadata) and all(
        _is_visible_on(broker, is_visible, settings, answer_limit_s) for broker in others
    )


def _is_visible_on(
    broker: Any, is_visible: Callable[[Any], bool], settings: KafkaSettings, answer_limit_s: float
) -> bool:
    deadline = time.monotonic() + answer_limit_s
    while time.monotonic() < deadline:
        # A client with one bootstrap broker asks that broker, unless it has meanwhile connected to another: every
        # second client does. It then keeps to that one, so that only a new client can ask the intended broker.
        configuration = settings.for_admin() | {"bootstrap.servers": f"{broker.host}:{broker.port}"}
        with brief_client(AdminClient, configuration, "A broker was not asked") as client:
            try:
                metadata = client.list_topics(timeout=answer_limit_s)
            except KafkaException:
                return False
        if metadata.orig_broker_id in (broker.id, BOOTSTRAP_BROKER):
            return is_visible(metadata)
    return False
