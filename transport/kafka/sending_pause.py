"""Pauses of a producer whose broker acknowledges nothing.

An idempotent producer has at most five requests of a partition in flight. While these are not acknowledged and a message of the partition waits
behind them, the client (2.16) computes a next wake-up in the past, again and again, and its thread uses a whole core. Several workers on
a machine then take from the broker what it needs to come back. A paused partition computes no wake-up; its messages stay in the queue, and
acknowledgements still arrive.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping
from functools import cache

from confluent_kafka import Producer, cimpl

from .client_handle import client_versions, handle_obstacle

PATIENCE_S = 1.0
"""The time without an acknowledgement after which a producer pauses, beside the time for which its messages wait for more (`linger.ms`)."""
FIRST_TRIAL_S, LAST_TRIAL_S = 1.0, 5.0
"""The times between two trials, which double. Messages that a lost connection returned to the queue are sent by a trial."""
TRIAL_S = 0.02
"""How long a trial lasts."""


@cache
def _library() -> ctypes.CDLL | None:
    """Return the librdkafka that the Kafka client has loaded; None where the client hides it."""
    pointer = ctypes.c_void_p
    try:
        rdkafka = ctypes.CDLL(cimpl.__file__)
        for name, restype, argtypes in (
            ("topic_partition_list_new", pointer, [ctypes.c_int]),
            ("topic_partition_list_add", pointer, [pointer, ctypes.c_char_p, ctypes.c_int32]),
            ("topic_partition_list_destroy", None, [pointer]),
            ("pause_partitions", ctypes.c_int, [pointer, pointer]),
            ("resume_partitions", ctypes.c_int, [pointer, pointer]),
        ):
            function = getattr(rdkafka, f"rd_kafka_{name}")
            function.restype, function.argtypes = restype, argtypes
    except (OSError, AttributeError):
        return None
    return rdkafka


def writer_obstacle() -> str | None:
    """Return why producers cannot pause; None if they can."""
    obstacle = handle_obstacle()
    if obstacle is None and _library() is None:
        return f"{client_versions()} hides its librdkafka"
    return obstacle


class SendingPause:
    """Pauses one producer while nothing is acknowledged. One thread at a time. Does nothing without its handle.

    Args:
        handle: the rd_kafka_t of an open producer; None where it is not available. The producer is not kept, so that its owner can release it.
        linger_s: how long its messages wait for more.
        clock: monotonic seconds.
    """

    def __init__(self, handle: int | None, linger_s: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._library = None if handle is None else _library()
        self._handle = handle
        self._patience_s = PATIENCE_S + linger_s
        self._clock = clock
        self._acknowledged = 0
        self._since_s = clock()
        self._trial_s = 0.0
        self._trials_s = FIRST_TRIAL_S
        self.is_paused = False
        """Whether the producer sends nothing at present."""

    def begin(self, partitions: Mapping[str, int]) -> None:
        """Begin to wait for acknowledgements: no message waits yet, however long ago the last one was sent."""
        self._since_s, self._trials_s = self._clock(), FIRST_TRIAL_S
        self._set(partitions, is_paused=False)

    def observe(self, producer: Producer, acknowledged: int, waiting: int, partitions: Mapping[str, int]) -> None:
        """Pause or resume. Call this often while messages wait.

        Args:
            producer: the same one.
            acknowledged: a number that changes with each acknowledged message.
            waiting: the number of messages that are not acknowledged.
            partitions: the number of partitions of each topic of these messages.
        """
        now_s = self._clock()
        if not waiting or acknowledged != self._acknowledged:
            self._acknowledged = acknowledged
            self.begin(partitions)
        elif not self.is_paused and now_s - self._since_s >= self._patience_s:
            self._set(partitions, is_paused=True)
            self._trial_s = now_s + self._trials_s
        elif self.is_paused and now_s >= self._trial_s:
            self._trials_s = min(2 * self._trials_s, LAST_TRIAL_S)
            self._trial_s = now_s + self._trials_s
            self._set(partitions, is_paused=False)
            # Unlike `poll`, it wakes the threads of the client, and lasts.
            producer.flush(TRIAL_S)
            self._set(partitions, is_paused=True)

    @property
    def is_waiting(self) -> bool:
        """Whether messages wait for longer than usual."""
        return self._clock() - self._since_s >= self._patience_s

    def _set(self, partitions: Mapping[str, int], *, is_paused: bool) -> None:
        library = self._library
        if library is None or is_paused == self.is_paused:
            return
        self.is_paused = is_paused
        change = library.rd_kafka_pause_partitions if is_paused else library.rd_kafka_resume_partitions
        # The client would create partitions that the topic does not have.
        changed = library.rd_kafka_topic_partition_list_new(sum(partitions.values()))
        for topic, count in partitions.items():
            for number in range(count):
                library.rd_kafka_topic_partition_list_add(changed, topic.encode(), number)
        change(self._handle, changed)
        library.rd_kafka_topic_partition_list_destroy(changed)
