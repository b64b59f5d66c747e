"""The processors that the fault tests kill: one of each kind, for any pair of semantics, any store and any categories.

Every event has a number of its own, which its outputs carry, so that what is missing and what came again can be told.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta
from itertools import product

import penstock as ps

BUCKETS = 2
KEYS = 5
HOUR_MS = 3_600_000
EVENTS_AN_HOUR = 60
DELAY_MS = 600_000
"""After how long "timers" answers."""

LEAST, MOST, EXACT = ps.Semantics.AT_LEAST_ONCE, ps.Semantics.AT_MOST_ONCE, ps.Semantics.EXACTLY_ONCE
PAIRS = ((LEAST, LEAST), (MOST, MOST), (EXACT, LEAST), (EXACT, MOST), (EXACT, EXACT))


LOCALLY = ps.Local()


class Event(ps.Record, frozen=True):
    """A numbered event."""

    key: str
    at: ps.EventTime
    number: int


class Total(ps.Record, frozen=True):
    """What a key has come to with an event."""

    key: str
    at: ps.EventTime
    number: int
    count: int
    total: int


class Hourly(ps.Record, frozen=True):
    """What a key has come to in an hour."""

    key: str
    hour: ps.EventTime
    count: int
    total: int
    smallest: int
    largest: int


class Link(ps.Record, frozen=True):
    """One step of a key's state: from what, to what, as the how-manieth."""

    key: str
    at: ps.EventTime
    number: int
    count: int
    before: int
    after: int


class Chain(ps.Record, frozen=True):
    """A key's state: how many events, and a number that depends on each of them and on their order."""

    count: int = 0
    link: int = 0


class Sums(ps.Record, frozen=True):
    """A key's state."""

    count: int = 0
    total: int = 0


@dataclass(frozen=True)
class Subject:
    """A processor to be made, described so that another process can make the same.

    Args:
        kind: "stateless", "stateful" or "aggregator"; "timers", which answers each event ten minutes later, and "closing", which writes
            hours when they are complete; "ordered", which takes events in order; "random", whose state is drawn by lot; or "merging", which reads two
            categories, whose order is as it comes.
        state: the state's semantics.
        output: the outputs' semantics.
        store: where an aggregator keeps its state.
    """

    kind: str
    state: ps.Semantics
    output: ps.Semantics
    store: ps.Local | ps.Remote = LOCALLY

    def __str__(self) -> str:
        store = f"-{self.store.writing.value}" if isinstance(self.store, ps.Remote) else ""
        return f"{self.kind}{store}-{self.state.name.lower()}-{self.output.name.lower()}"

    def make(self, prefix: str, checkpoint: ps.Every | None = None) -> type[ps.Processor]:
        """Return the processor, on categories whose names begin with `prefix`."""
        base = _BASES[self.kind]
        inputs = tuple(_category(f"{prefix}.{name}", Event) for name in inputs_of(self.kind))
        silent = self.store == ps.Remote(ps.Writing.APPEND)
        declared = {
            "name": f"{prefix}.subject",
            "reads": inputs,
            "writes": () if silent else _category(f"{prefix}.out", _WRITTEN[self.kind]),
            "state_semantics": self.state,
            "output_semantics": self.output,
            "checkpoint": checkpoint or ps.Every(),
            **({"store": self.store} if issubclass(base, ps.Aggregator) else {}),
        }
        return type("Subject", (base,), declared)


def inputs_of(kind: str) -> tuple[str, ...]:
    """Return how the names of a subject's inputs end."""
    return ("events", "more") if kind == "merging" else ("events",)


def _category(name: str, record: type[ps.Record]) -> ps.Category[ps.Record]:
    time = "hour" if record is Hourly else "at"
    return ps.Category(name, record, key="key", event_time=time, buckets=BUCKETS)


class _Stateless(ps.Stateless):
    """Passes events on."""

    def process(self, event: Event) -> list[Event]:
        return [event]


class _Stateful(ps.Stateful):
    """Counts and adds up each key."""

    state = Sums

    def process(self, event: Event, state: Sums | None, context: ps.Context) -> tuple[Sums, list[Total]]:
        before = state or Sums()
        after = Sums(before.count + 1, before.total + event.number)
        return after, [Total(context.key, context.event_time, event.number, after.count, after.total)]


class _Timers(_Stateful):
    """Counts and adds up each key, and answers each event when a timer fires."""

    watermark = ps.Behind()

    def process(self, event: Event, state: Sums | None, context: ps.Context) -> tuple[Sums, list[Total]]:
        after, _ = super().process(event, state, context)
        context.timer(event.at + DELAY_MS, str(event.number))
        return after, []

    def on_timer(self, timer: ps.Timer, state: Sums, context: ps.Context) -> tuple[Sums, list[Total]]:
        return state, [Total(context.key, timer.at, int(timer.tag), state.count, state.total)]


class _Ordered(_Stateful):
    """The same, in order of event time."""

    watermark = ps.Behind()
    ordered = True


class _Aggregator(ps.Aggregator):
    """Counts and adds up each key's hours, with the smallest and the largest number."""

    monoid = ps.TupleOf(ps.Count(), ps.Sum(), ps.Min(), ps.Max())
    window = ps.Tumbling(timedelta(hours=1))

    def observe(self, event: Event) -> tuple[int, int, int, int]:
        return (event.number,) * 4

    def result(self, key: str, window: ps.Window, value: tuple[int, int, int, int]) -> Hourly:
        return Hourly(key, window.start, *value)


class _Closing(_Aggregator):
    """The same, each hour when it is complete."""

    watermark = ps.Behind()
    emit = ps.AtWatermark()
    late = ps.OnLate.DROP


class _Merging(ps.Stateful):
    """Chains the events of two inputs, in the order in which they come."""

    state = Chain

    def process(self, event: Event, state: Chain | None, context: ps.Context) -> tuple[Chain, list[Link]]:
        before = state or Chain()
        link = (before.link * 1_000_003 + event.number + self.lot()) % 2**61
        after = Chain(before.count + 1, link)
        made = Link(context.key, context.event_time, event.number, after.count, before.link, after.link)
        return after, [made]

    def lot(self) -> int:
        """Return what is added to each link."""
        return 0


class _Random(_Merging):
    """Chains events with numbers drawn by lot."""

    deterministic = False

    def lot(self) -> int:
        return random.randrange(2**32)


_BASES: dict[str, type[ps.Processor]] = {
    "stateless": _Stateless,
    "stateful": _Stateful,
    "aggregator": _Aggregator,
    "timers": _Timers,
    "closing": _Closing,
    "ordered": _Ordered,
    "merging": _Merging,
    "random": _Random,
}
_WRITTEN: dict[str, type[ps.Record]] = {
    "stateless": Event,
    "stateful": Total,
    "aggregator": Hourly,
    "timers": Total,
    "closing": Hourly,
    "ordered": Total,
    "merging": Link,
    "random": Link,
}

STATELESS = [Subject("stateless", output, output) for output in (LEAST, MOST, EXACT)]
CHAINED = [Subject(kind, EXACT, EXACT) for kind in ("merging", "random")]
REMOTE = [Subject("aggregator", *pair, ps.Remote(writing)) for pair, writing in product(PAIRS, ps.Writing)]
TIMED = [Subject(kind, *pair) for kind, pair in product(("timers", "closing", "ordered"), PAIRS)]
LOCAL = [Subject(kind, *pair) for kind, pair in product(("stateful", "aggregator"), PAIRS)]


def events(count: int, *, start: int = 0) -> list[Event]:
    """Give numbered events of a few keys, sixty to the hour."""
    return [Event(f"k{n % KEYS}", n * HOUR_MS // EVENTS_AN_HOUR, n) for n in range(start, start + count)]
