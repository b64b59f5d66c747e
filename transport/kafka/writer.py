"""Writing topics: messages leave in the background; a flush says whether they arrived."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ..errors import BusError, DeliveryFailed, Fenced
from ..messages import Outgoing
from .error_translation import is_outage, is_retryable, translate, translated

ROOM_WAIT_S = 0.05
FLUSH_STEP_S = 1.0


class KafkaWriter:
    """A producer whose failures are remembered until the next flush reports them."""

    def __init__(self, configuration: dict[str, Any]) -> None:
        with translated("The writer was not opened"):
            self._producer = Producer(configuration)
        self._failed: list[tuple[KafkaError, str]] = []

    def send(self, category: str, messages: Iterable[Outgoing]) -> None:
        """Hand messages over; waits while the client's queue is full."""
        produce, failed = self._producer.produce, self._note_failure
        with _served(f"Writing to {category}"):
            for key, value, bucket in messages:
                try:
                    produce(category, value, key, bucket, failed)
                except BufferError:
                    self._send_when_there_is_room(category, key, value, bucket)
            self._producer.poll(0)

    def _send_when_there_is_room(self, category: str, key: bytes | None, value: bytes | None, bucket: int) -> None:
        while True:
            self._producer.poll(ROOM_WAIT_S)
            try:
                self._producer.produce(category, value, key, bucket, self._note_failure)
            except BufferError:
                continue
            return

    def _note_failure(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed.append((error, str(message.topic())))

    def flush(self) -> None:
        """Return when all that was sent is durable; the client gives a message up after its `message.timeout.ms`."""
        with _served("What was written is not on the bus"):
            while self._producer.flush(FLUSH_STEP_S) and not self._failed:
                continue
        if self._failed:
            failed, self._failed = self._failed, []
            raise self._failure(failed)

    def _failure(self, failed: Sequence[tuple[KafkaError, str]]) -> BusError:
        """Return what it means that messages did not arrive: an outage passes, a message that is refused would be so again."""
        error, category = next((each for each in failed if not _passes(each[0])), failed[0])
        meaning = translate(error, f"{len(failed):,} messages to {category} did not arrive")
        return DeliveryFailed(str(meaning)) if _passes(error) else meaning

    def close(self) -> None:
        """Let go of the connection; what was not flushed is dropped here."""
        try:
            self._producer.purge()
            self._producer.flush(FLUSH_STEP_S)
        except KafkaException as error:
            raise translate(error.args[0], "The writer was not closed") from error


def _passes(error: KafkaError) -> bool:
    return is_outage(error) or is_retryable(error)


@contextmanager
def _served(what: str) -> Iterator[None]:
    """Raise our errors in place of the client's, where it calls back.

    Having met a fatal error, the client may run on into the next callback with its exception set, of which Python makes another; or
    into a second fatal error, over which it loses the first.
    """
    try:
        with translated(what):
            yield
    except SystemError as error:
        if isinstance(error.__cause__, KafkaException):
            raise translate(error.__cause__.args[0], what) from error
        if error.__cause__ is None:
            raise Fenced(
                f"{what}: the Kafka client has given up, as it does for one where a later one was opened."
            ) from error
        raise
