"""Continuous input of a category for tests under load."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Event, Thread
from typing import final

from confluent_kafka import Producer


@final
class Feeding:
    """Sends batches of messages continuously, in order, until it is stopped.

    Args:
        kafka: the broker's address.
        category: the category.
        batch_from: returns the keys and values of a batch, given the number of the messages before it.
        every_s: the time between two batches.
    """

    def __init__(
        self, kafka: str, category: str, batch_from: Callable[[int], Iterable[tuple[str, str]]], every_s: float
    ) -> None:
        self._producer = Producer({"bootstrap.servers": kafka, "partitioner": "murmur2_random"})
        self._category = category
        self._batch_from = batch_from
        self._every_s = every_s
        self._stop = Event()
        self._thread = Thread(target=self._feed)
        self.sent = 0

    def __enter__(self) -> Feeding:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop, with all sent messages on the bus."""
        self._stop.set()
        self._thread.join()
        self._producer.flush()

    def _feed(self) -> None:
        while not self._stop.wait(self._every_s):
            batch = list(self._batch_from(self.sent))
            for key, value in batch:
                self._producer.produce(self._category, value, key)
            self.sent += len(batch)
            self._producer.poll(0)
