"""From an event's time, as its producer wrote it down, to the arrival of the first output that covers it.

One thread both sends events at a steady rate and looks for answers, which it sees as a reader of committed messages does.
"""

from __future__ import annotations

import subprocess
import time
from collections import defaultdict, deque
from collections.abc import Sequence

from events import Event
from semantics_rows import Answer, answers

from penstock.processors.declare.categories import Category
from penstock.transport.bus import Bus
from penstock.transport.codecs.by_category import Codecs
from penstock.transport.messages import Bucket, Outgoing, Position

RATE = 2_000
"""Events per second: far less than any row can handle."""

ANSWER_LIMIT_S = 60.0
POLL_WAIT_S = 0.002


class Exchange:
    """Sends events, stamped with the time, and notes how long each of them waits for an answer.

    Args:
        bus: where both are.
        asks: where the events go.
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
        """Send events with the present time as theirs."""
        now = _now_ms()
        stamped = [Event(now, event.event, event.dim_id, event.topic, event.text) for event in events]
        for event in stamped:
            self._unanswered[event.dim_id].append(now)
        self._waiting += len(stamped)
        keys = [key.encode() for key in self._asks.keys_of(stamped)]
        self._writer.send(self._asks.name, map(Outgoing, keys, self._codecs.of(self._asks).encode(stamped)))

    def receive(self) -> None:
        """Take the answers that are there, waiting a moment for the first."""
        for batch in self._reader.poll(POLL_WAIT_S).batches:
            now = _now_ms()
            for answer in self._codecs.of(answers).decode(batch.messages).events:
                self._note(answer, now)

    def await_all(self, worker: subprocess.Popen[str]) -> None:
        """Receive until every event has its answer.

        Raises:
            RuntimeError: the worker has ended before, or answers do not come.
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
    """Return how many milliseconds each event but the first and the last waited for its answer.

    The first shows that the worker is up, the last lets it end: a worker that ends saves early, and would answer too soon.
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
