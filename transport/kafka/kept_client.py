"""Keepers of Kafka clients: they alone open clients, detect clients that do not recover, and close them.

user --client--> calls, each with its own limit, or the keeper's
     --is_lost--> a client without an answer for 10 s is compared with a new one
     --replace, close--> the old client ends, without a wait for one that hangs

If a broker answers with metadata that contains no broker, as during a failover of the controller, the client (from 2.13 on, still in 2.16) may
forget all brokers and never connect again, until its process ends: https://github.com/confluentinc/librdkafka/issues/5301. From outside, this
looks like an outage. Only a new client shows the difference.
"""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any, Generic, TypeVar

from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient

from ..bounded_calls import NoAnswer, RunningCall
from ..client_counts import CLIENT_COUNTS
from ..errors import BusError
from .client_handle import open_with_handle
from .client_log import quiet_outages
from .error_translation import open_client
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


CLOSE_LIMIT_S = 10.0
"""The time limit for closing a client that does not call back, which takes milliseconds."""

C = TypeVar("C")
T = TypeVar("T")


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
            with quiet_outages(), brief_client(AdminClient, settings.for_admin(), "Comparing Kafka clients") as client:
                answered = is_answered(client, topic, COMPARISON_LIMIT_S)
            if not answered:
                self._due_s = time.monotonic() + ASK_EVERY_S
            return answered
        finally:
            self._asking.release()


_COMPARISONS: defaultdict[tuple[str, frozenset[tuple[str, str]]], _Comparison] = defaultdict(_Comparison)
"""By cluster: its address and further settings."""


class KeptClient(Generic[C]):
    """Opens one client of the library for its user, limits calls of it, detects that it does not recover from an outage, and closes it.

    What is lost with a client differs, so its user decides what follows: a catalog asks the new client, a scanner continues at its offsets, a
    writer fails its unacknowledged messages, and a member joins its group again. A transactional writer ends, because only another one of its
    identity can end its transaction.

    One thread uses the client; any threads ask for `is_lost`, and may use the client of a catalog.

    Args:
        settings: the cluster.
        kind: the class of the client.
        configuration: its settings.
        purpose: what it is for, as the start of a sentence.
        topic: the topic that `is_lost` asks about: a reader's user need not see others.
        calls_back: whether the client calls its user back when it is closed. Then the user's thread closes it, and waits without a limit, since
            the user saves what it owns meanwhile.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        kind: Callable[[dict[str, Any]], C],
        configuration: dict[str, Any],
        purpose: str,
        *,
        topic: str | None = None,
        calls_back: bool = False,
    ) -> None:
        self._settings = settings
        self._kind = kind
        self._configuration = configuration
        self._purpose = purpose
        self._topic = topic
        self._calls_back = calls_back
        self._client: C | None = None
        self._call: RunningCall[Any] | None = None
        self._comparison = _COMPARISONS[settings.bootstrap, frozenset(settings.further.items())]
        self._lock = Lock()
        self.replace()

    @property
    def client(self) -> C:
        """The client.

        Raises:
            BusError: it is closed.
        """
        if self._client is None:
            raise BusError(f"{self._purpose}: the Kafka client is closed. Nothing was sent or read.")
        return self._client

    @property
    def is_open(self) -> bool:
        """Whether there is a client."""
        return self._client is not None

    def replace(self) -> None:
        """Open a client, and then close the one before: calls of other threads end with that one, and the next ones use the new one.

        Raises:
            SettingsRefused: the client rejects a setting, or the environment variable has no meaning.
            BusUnreachable: there is no token for the client yet.
        """
        client, self.handle = open_with_handle(self._kind, self._configuration, self._purpose)
        former, self._client = self._client, client
        CLIENT_COUNTS.kept.add(self)
        self.is_stuck = False
        """Whether a call has not returned in time, so that the client must not be used, even if it returns later."""
        self.note_answer()
        self._release(former)

    def note_answer(self) -> None:
        """Note that the client was answered."""
        self._silent_since_s: float | None = None
        self._due_s = time.monotonic() + ASK_EVERY_S

    def is_answered(self, limit_s: float = ASK_LIMIT_S) -> bool:
        """Return whether the client gets an answer now."""
        return is_answered(self.client, self._topic, limit_s)

    def is_lost(self) -> bool:
        """Return whether to replace the client: it had no answer for 10 s, and a new client has one.

        Asks the client at most every 10 s, and waits at most 1 s for it. After 10 s of silence, it also asks with a new client.
        """
        now_s = time.monotonic()
        with self._lock:
            if now_s < self._due_s:
                return False
            self._due_s = now_s + ASK_EVERY_S
        if self.is_answered():
            self.note_answer()
            return False
        if self._silent_since_s is None:
            self._silent_since_s = now_s
        silent_s = now_s - self._silent_since_s
        if silent_s < REPLACED_AFTER_S or not self._comparison.is_answered(self._settings, self._topic):
            return False
        if self.is_answered(COMPARISON_LIMIT_S):
            self.note_answer()
            return False
        self._note_lost(silent_s)
        return True

    def call(self, call: Callable[[], T], within_s: float) -> T:
        """Run a call of the client that may ignore its own limit, and return its result.

        Raises:
            NoAnswer: it did not return in time, and may still complete. The client `is_stuck`.
        """
        running = RunningCall(call)
        self._call = running
        if not running.ends(within_s):
            self.is_stuck = True
            raise NoAnswer
        return running.result()

    def call_unless_lost(self, call: Callable[[], T]) -> T:
        """Run a call of the client during which it cannot be asked, and return its result.

        An outage may last for any time. When a new client is answered, the call has a few more seconds.

        Raises:
            NoAnswer: the client is lost: replace it.
        """
        running = RunningCall(call)
        self._call = running
        began_s = time.monotonic()
        while not running.ends(REPLACED_AFTER_S):
            if self._comparison.is_answered(self._settings, self._topic) and not running.ends(COMPARISON_LIMIT_S):
                self._note_lost(time.monotonic() - began_s)
                self.is_stuck = True
                raise NoAnswer
        return running.result()

    def _note_lost(self, silent_s: float) -> None:
        self.note_answer()  # of the new one
        CLIENT_COUNTS.replaced += 1
        _LOG.warning(
            "%s: the Kafka client had no answer from %s for %.0f s, although a new client has one. It is replaced. No data was lost.",
            self._purpose,
            self._settings.bootstrap,
            silent_s,
        )

    def close(self) -> None:
        """Release the client with its threads and connections; a stuck one ends after its call. May be repeated.

        Raises:
            KafkaException: the client was not closed properly.
        """
        former, self._client = self._client, None
        CLIENT_COUNTS.kept.discard(self)
        self._release(former)

    def _release(self, client: C | None) -> None:
        call, self._call = self._call, None
        if call is not None and not call.ends(0):
            RunningCall(partial(_close, client, after=call))
        elif self._calls_back and isinstance(client, Consumer):
            client.close()
        else:
            _close(client)


def _close(client: object, after: RunningCall[Any] | None = None) -> None:
    """Close a consumer, perhaps after its call; one that takes too long is left to its thread.

    Other clients end with their last reference: `Producer.close` would abort an open transaction first, and wait for a broker without a limit.
    """
    if after is not None:
        after.ends()
    if isinstance(client, Consumer):
        closing = RunningCall(client.close)
        if closing.ends(CLOSE_LIMIT_S):
            closing.result()


@contextmanager
def brief_client(kind: Callable[[dict[str, Any]], C], configuration: dict[str, Any], purpose: str) -> Iterator[C]:
    """Yield a client for a few requests, which nothing has to replace.

    Raises:
        SettingsRefused: the client rejects a setting.
        BusUnreachable: there is no token for the client yet.
    """
    client = open_client(kind, configuration, purpose)
    try:
        yield client
    finally:
        _close(client)


def is_answered(client: Any, topic: str | None, limit_s: float) -> bool:
    """Return whether a client gets metadata with brokers: without brokers, it reaches nothing."""
    try:
        return bool(client.list_topics(topic, limit_s).brokers)
    except KafkaException:
        return False
