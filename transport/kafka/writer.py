"""Producers: messages are sent in the background, and a flush reports failures."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ...processors import counted
from ..errors import BusError, DeliveryFailed, Fenced, OutputsTimedOut
from ..messages import Outgoing
from .error_translation import TIMED_OUT, is_outage, is_retryable, translate, translated
from .kept_client import KeptClient
from .sending_pause import SendingPause
from .settings import BOOTSTRAP_BROKER, DEFAULT_DELIVERY_LIMIT_MS, KafkaSettings

ROOM_WAIT_S = 0.05
FLUSH_STEP_S = 0.2
"""The time between two looks at what was acknowledged."""
CLOSE_LIMIT_S = 1.0
"""The time limit for the reports of dropped messages."""
SENDING_S = 0.001
"""How long a flush has to run until the client's threads have noticed that `linger.ms` does not hold."""
CONNECT_LIMIT_S = 1.0
"""How long a new writer waits for its connection. Later, it connects in the background."""


class KafkaWriter:
    """A producer that collects delivery failures until the next flush.

    Args:
        settings: the cluster.
        configuration: the client's; None for a plain producer's.
        connect_limit_s: how long to wait for the connection.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        configuration: dict[str, Any] | None = None,
        connect_limit_s: float = CONNECT_LIMIT_S,
    ) -> None:
        self._configuration = settings.for_writer() if configuration is None else configuration
        self._failed: list[tuple[KafkaError, str]] = []
        self._partitions: dict[str, int] = {}
        self._new_categories: set[str] = set()
        self._acknowledged = 0
        self._handed_over = self._failures = 0
        self._flushed = 0
        """The number of messages that were acknowledged with the last flush."""
        # It refuses settings that are no numbers.
        self._kept = KeptClient(settings, Producer, self._configuration, "Writing")
        self._begin_pausing()
        self._limit_s = float(self._configuration.get("message.timeout.ms", DEFAULT_DELIVERY_LIMIT_MS)) / 1000
        self._connect(connect_limit_s)

    def _begin_pausing(self) -> None:
        self._pause = SendingPause(self._kept.handle, float(self._configuration.get("linger.ms", 0)) / 1000)

    @property
    def _producer(self) -> Producer:
        if not self._kept.is_open:
            raise DeliveryFailed("The writer is closed. Messages that were not flushed before may be lost.")
        return self._kept.client

    def _connect(self, limit_s: float) -> None:
        """Wait for a connection to a broker of the cluster.

        Before that, the client looks for its producer id and its coordinator only every half second. The connection to the address that it
        was given does not count: the client ends it when it knows the brokers.
        """
        deadline = time.monotonic() + limit_s
        with suppress(KafkaException):
            while self._producer.list_topics(timeout=limit_s).orig_broker_id == BOOTSTRAP_BROKER:
                if time.monotonic() > deadline:
                    return

    def send(self, category: str, messages: Iterable[Outgoing]) -> None:
        """Queue messages; waits while the client's queue is full."""
        if not len(self._producer):
            self._pause.begin(self._partitions)
        if category not in self._partitions:
            self._new_categories.add(category)
        with _translated_callbacks(f"Writing to {category}"):
            self._produce(category, iter(messages))
            self._producer.poll(0)
        self._observe()

    def _produce(self, category: str, messages: Iterator[Outgoing]) -> None:
        produce, failed, number = self._producer.produce, self._record_failure, 0
        try:
            for number, message in enumerate(messages, 1):  # noqa: B007 - the last one is their number
                key, value, bucket, headers = message
                try:
                    if headers is None:  # about every message; keyword arguments take time
                        produce(category, value, key, bucket, failed)
                    else:
                        produce(category, value, key, bucket, failed, headers=list(headers))
                except BufferError:
                    self._produce_when_not_full(category, message)
        except (KafkaException, BusError, SystemError):
            rest = sum(1 for _ in messages)  # counts as not accepted
            number += rest
            self._failures += 1 + rest
            raise
        finally:
            self._handed_over += number

    def _produce_when_not_full(self, category: str, message: Outgoing) -> None:
        key, value, bucket, headers = message
        while True:
            self._producer.poll(ROOM_WAIT_S)
            self._observe()
            self._raise_failures()
            try:
                self._producer.produce(category, value, key, bucket, self._record_failure, headers=list(headers or ()))
            except BufferError:
                continue
            return

    def _record_failure(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failures += 1
            self._failed.append((error, str(message.topic())))

    def _observe(self) -> None:
        """Pause a client whose broker acknowledges nothing, and replace one that never recovers."""
        producer = self._producer
        waiting = len(producer)
        acknowledged = self._handed_over - self._failures - waiting
        if self._new_categories and acknowledged != self._acknowledged:
            self._learn_partitions()  # the broker has just answered
        self._acknowledged = acknowledged
        self._pause.observe(producer, acknowledged, waiting, self._partitions)
        if not self._pause.is_waiting:
            self._kept.note_answer()
        elif waiting and self._kept.is_lost():
            self._replace()

    def _learn_partitions(self) -> None:
        for category in list(self._new_categories):
            with suppress(KafkaException):
                topics = self._producer.list_topics(category, CONNECT_LIMIT_S).topics
                self._partitions[category] = len(topics[category].partitions)
                self._new_categories.remove(category)

    def _replace(self) -> None:
        """Fail the unacknowledged messages, which the next flush reports, and go on with a new client."""
        self._drop_waiting()
        self._kept.replace()
        self._begin_pausing()

    def _drop_waiting(self) -> None:
        with _translated_callbacks("Unsent messages were not dropped"):
            self._producer.purge()
            self._producer.flush(CLOSE_LIMIT_S)

    def send_now(self) -> None:
        """Send queued messages without the rest of their `linger.ms`."""
        if len(self._producer):
            with _translated_callbacks("Messages were not sent"):
                self._producer.flush(SENDING_S)
            self._observe()

    def flush(self) -> None:
        """Wait until all sent messages are durable. A message fails after `message.timeout.ms`."""
        with _translated_callbacks("Messages were not delivered"):
            while self._producer.flush(FLUSH_STEP_S) and not self._failed:
                self._observe()
        self._raise_failures()
        self._flushed = self._handed_over - self._failures

    def _raise_failures(self) -> None:
        if self._failed:
            failed, self._failed = self._failed, []
            raise self._failure(failed)

    def _failure(self, failed: Sequence[tuple[KafkaError, str]]) -> BusError:
        """Return the error for failed messages: DeliveryFailed if sending them again may succeed."""
        error, category = next((failure for failure in failed if not _is_temporary(failure[0])), failed[0])
        if error.code() in TIMED_OUT:
            return self._timed_out(f"{counted(len(failed), 'message')} to {category} were not delivered")
        translation = translate(error, f"{counted(len(failed), 'message')} to {category} not delivered")
        return DeliveryFailed(str(translation)) if _is_temporary(error) else translation

    def _timed_out(self, failure: str) -> OutputsTimedOut:
        return OutputsTimedOut(
            f"{failure} within {self._limit_s:.0f} s. The brokers do not answer, or they accept less in this time: behind a quota, over a slow link, or "
            "because they are overloaded. No data was lost.",
            self._accepted_share(),
        )

    def _accepted_share(self) -> float:
        """Return the share of the messages since the last flush that were acknowledged."""
        waiting = len(self._kept.client) if self._kept.is_open else 0
        acknowledged = self._handed_over - self._failures - waiting - self._flushed
        return max(0.0, acknowledged / max(1, self._handed_over - self._flushed))

    def close(self) -> None:
        """Close the connection and drop messages that were not flushed."""
        try:
            self._drop_waiting()
        finally:
            self._kept.close()


def _is_temporary(error: KafkaError) -> bool:
    return is_outage(error) or is_retryable(error)


@contextmanager
def _translated_callbacks(request: str) -> Iterator[None]:
    """Translate errors of calls during which the client calls back.

    After a fatal error, the client may enter the next callback with its exception set, and Python raises a SystemError. Or it loses the
    first exception in a second fatal error.
    """
    try:
        with translated(request):
            yield
    except SystemError as error:
        if isinstance(error.__cause__, KafkaException):
            raise translate(error.__cause__.args[0], request) from error
        if error.__cause__ is None:
            raise Fenced(
                f"{request}: the Kafka client has failed, probably because a later writer of the same identity was opened. Unflushed messages were "
                "not sent. Stop using this writer."
            ) from error
        raise
