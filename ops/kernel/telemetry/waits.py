"""What a worker waits for: calls of sinks, stores, lookups, the backup store and Kafka that have not succeeded yet, for its reports and its health."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ....processors.declare import SinkUnreachable
from ....state.remote import StoreUnreachable

STATE_STORE = "the store of its state"
LOOKUP = "the source of its lookup"
BUS = "Kafka"


class Wait(NamedTuple):
    """A wait.

    Args:
        name: what the worker waits for, such as the name of a sink.
        seconds: how long it has waited.
    """

    name: str
    seconds: float


class Waits:
    """The waits of one worker. Thread-safe."""

    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}
        self._unanswered: dict[str, set[int]] = {}
        """The shards whose last block was not answered, by name."""
        self._lock = threading.RLock()

    @contextmanager
    def until_answered(self, name: str, shards: Collection[int] = (), *, answers_all: bool = True) -> Iterator[None]:
        """Wait for the block. After an outage, the wait goes on until a later block for the same name ends without one.

        Args:
            name: what the block asks.
            shards: the shards for which it asks, if their outage ends only with an answer for them, or for all.
            answers_all: whether an answer shows that all shards would be answered. If not, the wait goes on while others have no answer.
        """
        self.begin(name)
        try:
            yield
        except (SinkUnreachable, StoreUnreachable):
            with self._lock:
                self._unanswered.setdefault(name, set()).update(shards)
            raise
        except BaseException:
            self._note_answer(name, None if answers_all else shards)
            raise
        else:
            self._note_answer(name, None if answers_all else shards)

    def release(self, name: str, shards: Collection[int]) -> None:
        """End the wait for answers for shards that belong to another worker now, unless others have no answer."""
        with self._lock:
            if self._unanswered.get(name):
                self._note_answer(name, shards)

    def begin(self, name: str) -> None:
        """Begin a wait, unless it has begun."""
        with self._lock:
            self._since_s.setdefault(name, time.monotonic())

    def end(self, name: str) -> None:
        """End a wait, if it has begun."""
        with self._lock:
            self._since_s.pop(name, None)
            self._unanswered.pop(name, None)

    def _note_answer(self, name: str, shards: Collection[int] | None) -> None:
        """End a wait, unless shards are left without an answer. None is an answer for all."""
        with self._lock:
            left = set() if shards is None else self._unanswered.get(name, set()).difference(shards)
            if left:
                self._unanswered[name] = left
            else:
                self.end(name)

    @property
    def longest(self) -> Wait | None:
        """The longest wait; None without one."""
        return self._longest(reported=False)

    @property
    def longest_reported(self) -> Wait | None:
        """The longest wait for its reports, which Kafka transports: a report that arrives shows that Kafka answers."""
        return self._longest(reported=True)

    def _longest(self, *, reported: bool) -> Wait | None:
        with self._lock:
            waits = [(since_s, name) for name, since_s in self._since_s.items() if not (reported and name == BUS)]
        since_s, name = min(waits, default=(0.0, ""))
        return Wait(name, time.monotonic() - since_s) if name else None
