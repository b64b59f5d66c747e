"""Producers: messages are sent in the background, and a flush reports failures."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ...processors.wording import counted
from ..errors import BusError, DeliveryFailed, Fenced
from ..messages import Outgoing
from .error_translation import is_outage, is_retryable, translate, translated
from .settings import BOOTSTRAP_BROKER

ROOM_WAIT_S = 0.05
FLUSH_STEP_S = 1.0
SENDING_S = 0.001
"""How long a flush has to run until the client's threads have noticed that `linger.ms` does not hold."""
CONNECT_LIMIT_S = 1.0
"""How long a new writer waits for its connection. Later, it connects in the background."""


class KafkaWriter:
    """A producer that collects delivery failures until the next flush.

    Args:
        configuration: the client's.
        connect_limit_s: how long to wait for the connection.
    """

    def __init__(self, configuration: dict[str, Any], connect_limit_s: float = CONNECT_LIMIT_S) -> None:
        with translated("The writer was not opened"):
            self._producer = Producer(configuration)
        self._connect(connect_limit_s)
        self._failed: list[tuple[KafkaError, str]] = []

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
        produce, failed = self._producer.produce, self._record_failure
        with _translated_callbacks(f"Writing to {category}"):
            for message in messages:
                key, value, bucket, headers = message
                try:
                    if headers is None:  # about every message; keyword arguments take time
                        produce(category, value, key, bucket, failed)
                    else:
                        produce(category, value, key, bucket, failed, headers=list(headers))
                except BufferError:
                    self._produce_when_not_full(category, message)
            self._producer.poll(0)

    def _produce_when_not_full(self, category: str, message: Outgoing) -> None:
        key, value, bucket, headers = message
        while True:
            self._producer.poll(ROOM_WAIT_S)
            try:
                self._producer.produce(category, value, key, bucket, self._record_failure, headers=list(headers or ()))
            except BufferError:
                continue
            return

    def _record_failure(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed.append((error, str(message.topic())))

    def send_now(self) -> None:
        """Send queued messages without the rest of their `linger.ms`."""
        if len(self._producer):
            with _translated_callbacks("Messages were not sent"):
                self._producer.flush(SENDING_S)

    def flush(self) -> None:
        """Wait until all sent messages are durable. A message fails after `message.timeout.ms`."""
        with _translated_callbacks("Messages were not delivered"):
            while self._producer.flush(FLUSH_STEP_S) and not self._failed:
                continue
        if self._failed:
            failed, self._failed = self._failed, []
            raise self._failure(failed)

    def _failure(self, failed: Sequence[tuple[KafkaError, str]]) -> BusError:
        """Return the error for failed messages: DeliveryFailed if sending them again may succeed."""
        error, category = next((failure for failure in failed if not _is_temporary(failure[0])), failed[0])
        translation = translate(error, f"{counted(len(failed), 'message')} to {category} not delivered")
        return DeliveryFailed(str(translation)) if _is_temporary(error) else translation

    def close(self) -> None:
        """Close the connection and drop messages that were not flushed."""
        try:
            self._producer.purge()
            self._producer.flush(FLUSH_STEP_S)
        except KafkaException as error:
            raise translate(error.args[0], "The writer was not closed") from error


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
