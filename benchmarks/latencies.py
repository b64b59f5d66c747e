"""Latency from an event's time, set by its producer, to the arrival of the first output that covers it.

One thread sends events at a steady rate and reads committed answers.
"""

from __future__ import annotations

import subprocess
import time
from collections import defaultdict, deque
from collections.abc import Sequence

from events import Event
from semantics_rows import Answer, answers

from penstock.processors.declare import Category
from penstock.transport import Bucket, Bus, Outgoing, Position
from penstock.transport.codecs import Codecs

RATE = 2_000
"""Events per second, far below the capacity of any row."""

ANSWER_LIMIT_S = 60.0
POLL_WAIT_S = 0.002


class Exchange:
    """Sends events with the current time, and records the time until each event's answer.

    Args:
        bus: the bus of events and answers.
        asks: the category of the events.
    """

    def __init__(self, bus: Bus, asks: Category[Event]) -> None:
        self._asks = asks
        self._codecs = Codecs(bus)
        self._writer = bus.writer()
        ends = bus.catalog.describe(answers.name).ends
        self._reader = bus.scanner([Position(Bucket(answers.name, number), end) for number, end in ends.items()])
        self._unanswered: dict[str, deque[int]] = defaultdict(deque)
        self._waiting = 0
        self.waited_ms: list[int] = []

    def send(self, events: Sequence[Event]) -> None:
        """Send events with the current time."""
        now = _now_ms()
        stamped = [Event(now, event.event, event.dim_id, event.topic, event.text) for event in events]
        for event in stamped:
            self._unanswered[event.dim_id].append(now)
        self._waiting += len(stamped)
        keys = [key.encode() for key in self._asks.keys_of(stamped)]
        self._writer.send(self._asks.name, map(Outgoing, keys, self._codecs.of(self._asks).encode(stamped)))

    def receive(self) -> None:
        """Receive the available answers; wait briefly for the first."""
        for batch in self._reader.poll(POLL_WAIT_S).batches:
            now = _now_ms()
            for answer in self._codecs.of(answers).decode(batch.messages).events:
                self._note(answer, now)

    def await_all(self, worker: subprocess.Popen[str]) -> None:
        """Receive until every event has its answer.

        Raises:
            RuntimeError: the worker has ended, or answers are missing after a limit.
        """
        deadline = time.monotonic() + ANSWER_LIMIT_S
        while self._waiting:
            if worker.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self._waiting:,} events wait for an answer that does not come")
            self.receive()

    def close(self) -> None:
        """Close the connections."""
        self._writer.flush()
        self._writer.close()
        self._reader.close()

    def _note(self, answer: Answer, now: int) -> None:
        unanswered = self._unanswered[answer.key]
        while unanswered and unanswered[0] <= answer.newest:
            self.waited_ms.append(now - unanswered.popleft())
            self._waiting -= 1


def ask_steadily(exchange: Exchange, worker: subprocess.Popen[str], events: Sequence[Event]) -> list[int]:
    """Return the milliseconds from each event except the first and the last to its answer.

    The first shows that the worker runs. The last lets the worker end; a worker saves early at its end, so its answer would be too fast.
    """
    first, *steady, last = events
    exchange.send([first])
    exchange.await_all(worker)
    exchange.waited_ms.clear()
    began, sent = time.monotonic(), 0
    while sent < len(steady):
        due = int((time.monotonic() - began) * RATE)
        exchange.send(steady[sent:due])
        sent = min(due, len(steady))
        exchange.receive()
    exchange.await_all(worker)
    waited_ms = list(exchange.waited_ms)
    exchange.send([last])
    return waited_ms


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
