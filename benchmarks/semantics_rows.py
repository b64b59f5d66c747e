"""The rows of the semantics benchmark: a processor of each kind for each valid pair of semantics.

All kinds write the same answers; each answer covers its key's events up to a time.
"""

from __future__ import annotations

from typing import NamedTuple

from events import Event, by_dim

import penstock as ps
from penstock.processors.declare import Category

LEAST, MOST, EXACT = ps.Semantics.AT_LEAST_ONCE, ps.Semantics.AT_MOST_ONCE, ps.Semantics.EXACTLY_ONCE


class Answer(ps.Record, frozen=True):
    """A key's count."""

    key: str
    newest: ps.EventTime
    n: int


answers = ps.Category("bench_answers", Answer, key="key", event_time="newest", buckets=4, retention=None)


def live(name: str) -> Category[Event]:
    """Return a category for events that are written during the measurement."""
    return ps.Category(name, Event, key="dim_id", event_time="event_time", buckets=by_dim.buckets, retention=None)


class Row(NamedTuple):
    """A kind of processor with the semantics of its state and its outputs."""

    kind: str
    state: ps.Semantics
    output: ps.Semantics

    @property
    def pair(self) -> str:
        """The semantics in words, of state and output for a processor with state."""
        return self.output.value if self.kind == "stateless" else f"{self.state.value}, {self.output.value}"

    def processor(self, name: str, reads: Category[Event]) -> type[ps.Processor]:
        """Return the processor with this name."""
        declared = {
            "name": name,
            "reads": reads,
            "writes": answers,
            "state_semantics": self.state,
            "output_semantics": self.output,
        }
        return type("Measured", (_KINDS[self.kind],), declared)


class _Answering(ps.Stateless):
    """Answers each event."""

    def process(self, event: Event) -> tuple[Answer]:
        """Return the answer."""
        return (Answer(event.dim_id, event.event_time, 1),)


class _Counting(ps.Stateful):
    """Answers each event with its key's count."""

    state = int

    def process(self, event: Event, state: int | None, context: ps.Context) -> tuple[int, tuple[Answer]]:
        """Return the count and the answer."""
        n = (state or 0) + 1
        return n, (Answer(context.key, event.event_time, n),)


class _Aggregating(ps.Aggregator):
    """Answers at each checkpoint with the count of each key that changed."""

    monoid = ps.monoids.TupleOf(ps.monoids.Count(), ps.monoids.Max())

    def observe(self, event: Event) -> tuple[Event, int]:
        """Return the event and its count."""
        return event, event.event_time

    def result(self, key: str, window: ps.windows.Window, value: tuple[int, int]) -> Answer:
        """Return the count so far."""
        n, newest = value
        return Answer(key, newest, n)


_KINDS: dict[str, type[ps.Processor]] = {
    "stateless": _Answering,
    "stateful": _Counting,
    "aggregator": _Aggregating,
}
PAIRS = ((LEAST, LEAST), (MOST, MOST), (EXACT, LEAST), (EXACT, MOST), (EXACT, EXACT))
ROWS = (
    *(Row("stateless", output, output) for output in (LEAST, MOST, EXACT)),
    *(Row(kind, *pair) for kind in ("stateful", "aggregator") for pair in PAIRS),
)
