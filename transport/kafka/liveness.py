"""Detection of clients that do not recover from an outage.

If a broker answers with metadata that contains no broker, as during a failover of the controller, the client (from 2.13 on, still in 2.16) may
forget all brokers and never connect again, until its process ends: https://github.com/confluentinc/librdkafka/issues/5301. From outside, this
looks like an outage. Only a new client shows the difference.
"""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from threading import Lock
from typing import Any, Protocol

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ..bounded_calls import RunningCall
from ..client_counts import CLIENT_COUNTS
from .client_log import quiet_outages
from .settings import KafkaSettings

_LOG = logging.getLogger("penstock.kafka")
REPLACED_AFTER_S = 10.0
"""How long a client must be without an answer before it is compared with a new one."""
ASK_EVERY_S = 10.0
"""The least time between two requests to find out whether a client is answered."""
ASK_LIMIT_S = 1.0
"""The time limit of such a request."""
COMPARISON_LIMIT_S = 5.0
"""The time limit of the request of a new client, and then of the old one: on a slow network, both may need longer than `ASK_LIMIT_S`."""


class Client(Protocol):
    """Any client of the library."""

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Return metadata of one topic, or of all."""
        ...


class _Comparison:
    """A new client of one cluster, for all clients of the process that have no answer: one at a time, and not at once after one without an answer.

    Otherwise each of them would create its own in an outage, and a worker with many would always have some more connections.
    """

    def __init__(self) -> None:
        self._asking = Lock()
        self._due_s = -math.inf

    def is_answered(self, settings: KafkaSettings, topic: str | None) -> bool:
        """Return whether a new client is answered; False while another thread asks, or for 10 s after it had no answer."""
        if not self._asking.acquire(blocking=False):
            return False
        try:
            if time.monotonic() < self._due_s:
                return False
            with quiet_outages():
                answered = is_answered(AdminClient(settings.for_admin()), topic, COMPARISON_LIMIT_S)
            if not answered:
                self._due_s = time.monotonic() + ASK_EVERY_S
            return answered
        finally:
            self._asking.release()


_COMPARISONS: defaultdict[tuple[str, frozenset[tuple[str, str]]], _Comparison] = defaultdict(_Comparison)
"""By cluster: its address and further settings."""


class Liveness:
    """Whether one client is still answered, or has to be replaced. Thread-safe.

    Its owner calls `note_answer` when it was answered, and `is_lost` while it waits for an answer. Its owner also replaces it, depending on the
    client: a member joins its group again, a scanner goes on from its offsets, a producer fails its unacknowledged messages.

    Args:
        settings: the cluster, for a new client.
        purpose: what the client does, for the log.
        topic: a topic to ask for, which exists; None for all.
    """

    def __init__(self, settings: KafkaSettings, purpose: str, topic: str | None = None) -> None:
        self._settings = settings
        self._comparison = _COMPARISONS[settings.bootstrap, frozenset(settings.further.items())]
        self._purpose = purpose
        self._topic = topic
        self._lock = Lock()
        self._due_s = time.monotonic() + ASK_EVERY_S
        self._silent_since_s: float | None = None

    def note_answer(self) -> None:
        """Note that the client was answered."""
        self._silent_since_s = None
        self._due_s = time.monotonic() + ASK_EVERY_S

    def is_lost(self, client: Client) -> bool:
        """Return whether to replace the client: it had no answer for 10 s, and a new client has one.

        Asks the client at most every 10 s, and waits at most 1 s for it. After 10 s of silence, it also asks with a new client.
        """
        now_s = time.monotonic()
        with self._lock:
            if now_s < self._due_s:
                return False
            self._due_s = now_s + ASK_EVERY_S
        if is_answered(client, self._topic, ASK_LIMIT_S):
            self.note_answer()
            return False
        if self._silent_since_s is None:
            self._silent_since_s = now_s
        silent_s = now_s - self._silent_since_s
        if silent_s < REPLACED_AFTER_S or not self._comparison.is_answered(self._settings, self._topic):
            return False
        if is_answered(client, self._topic, COMPARISON_LIMIT_S):
            self.note_answer()
            return False
        self._note_lost(silent_s)
        return True

    def is_lost_during(self, call: RunningCall[object]) -> bool:
        """Wait for a call of the client, which cannot be asked meanwhile; return whether to replace the client because the call does not end.

        An outage may last for any time. When a new client is answered, the call has a few more seconds.
        """
        began_s = time.monotonic()
        while not call.ends(REPLACED_AFTER_S):
            if self._comparison.is_answered(self._settings, self._topic) and not call.ends(COMPARISON_LIMIT_S):
                self._note_lost(time.monotonic() - began_s)
                return True
        return False

    def _note_lost(self, silent_s: float) -> None:
        self.note_answer()  # of the new one
        CLIENT_COUNTS.replaced += 1
        _LOG.warning(
            "%s: the Kafka client had no answer from %s for %.0f s, although a new client has one. It is replaced. No data was lost.",
            self._purpose,
            self._settings.bootstrap,
            silent_s,
        )


def is_answered(client: Client, topic: str | None, limit_s: float) -> bool:
    """Return whether a client gets metadata with brokers: without brokers, it reaches nothing."""
    try:
        return bool(client.list_topics(topic, limit_s).brokers)
    except KafkaException:
        return False
