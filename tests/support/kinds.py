"""The processors that the fault tests kill, one of each kind.

Every event has a number of its own, which its outputs carry, so that what is missing and what came again can be told.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, Literal

import penstock as ps

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
DELAY_MS = 10 * MINUTE_MS
"""After how long "timers" answers."""
GAP_MS = 8 * MINUTE_MS
"""How long a key is silent between two sessions."""
BEFORE_MS, AFTER_MS = 2 * MINUTE_MS, 4 * MINUTE_MS
"""How much earlier and how much later than the left event the right one may be that is joined with it."""
BEHIND_MS = 8 * MINUTE_MS
"""How far the watermark lies behind the newest event."""

LONGEST_CHAIN = 4
"""After how many events "forgetting" drops a key's state."""
LATENESS_MS = HOUR_MS
"""How long after an hour is complete "differences" still takes events."""

IN_TIME = ps.watermarks.BoundedOutOfOrderness(timedelta(milliseconds=BEHIND_MS))


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


class Answer(Event, frozen=True):
    """The same, of another category."""


class Met(ps.Record, frozen=True):
    """The numbers of an event and of an answer that met; of one alone, where none did."""

    key: str
    at: ps.EventTime
    number: int | None
    answer: int | None


class Row(ps.Record, frozen=True):
    """What is known of a key, outside of all categories."""

    number: int


ROWS = {"k0": Row(100), "k1": Row(101), "k3": Row(103)}


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

    watermark = IN_TIME

    def process(self, event: Event, state: Sums | None, context: ps.Context) -> tuple[Sums, list[Total]]:
        after, _ = super().process(event, state, context)
        context.timer(event.at + DELAY_MS, str(event.number))
        return after, []

    def on_timer(self, timer: ps.Timer, state: Sums, context: ps.Context) -> tuple[Sums, list[Total]]:
        return state, [Total(context.key, timer.at, int(timer.tag), state.count, state.total)]


class _Ordered(_Stateful):
    """The same, in order of event time."""

    watermark = IN_TIME
    ordered = True


class _Aggregator(ps.Aggregator):
    """Counts and adds up each key's hours, with the smallest and the largest number."""

    monoid = ps.monoids.TupleOf(ps.monoids.Count(), ps.monoids.Sum(), ps.monoids.Min(), ps.monoids.Max())
    window: ClassVar[ps.windows.WindowAssigner] = ps.windows.Tumbling(timedelta(hours=1))

    def observe(self, event: Event) -> tuple[int, int, int, int]:
        return (event.number,) * 4

    def result(self, key: str, window: ps.windows.Window, value: tuple[int, int, int, int]) -> Hourly:
        return Hourly(key, window.start, *value)


class _Closing(_Aggregator):
    """The same, each hour when it is complete."""

    watermark: ClassVar[ps.watermarks.Watermark] = IN_TIME
    emit = ps.AtWatermark()
    late = ps.OnLate.DROP


class _Early(_Closing):
    """The same, and before that what changed in a while by the clock."""

    emit = ps.AtWatermark(early=timedelta(milliseconds=20))


class _Sliding(_Closing):
    """What happened in the hour up to each event."""

    window = ps.windows.Sliding(timedelta(hours=1))


class _Windowed(ps.Windowed):
    """Adds up each key's hours, and writes each when it is complete."""

    state = Sums
    window = ps.windows.Tumbling(timedelta(hours=1))
    watermark = IN_TIME

    def fold(
        self, event: Event, state: Sums | None, window: ps.windows.Window, context: ps.Context
    ) -> tuple[Sums, list[Total]]:
        before = state or Sums()
        return Sums(before.count + 1, before.total + event.number), []

    def complete(self, state: Sums, window: ps.windows.Window, context: ps.Context) -> list[Total]:
        return [Total(context.key, window.start, window.start // HOUR_MS, state.count, state.total)]


class _Unsure(_Stateful):
    """The same, which says that it may give another state each time."""

    deterministic = False


class _Clock(_Timers):
    """Counts and adds up each key, and answers each event when the clock is looked at next."""

    deterministic = False

    def process(self, event: Event, state: Sums | None, context: ps.Context) -> tuple[Sums, list[Total]]:
        before = state or Sums()
        context.timer(event.at, str(event.number), clock=ps.Clock.WALL)
        return Sums(before.count + 1, before.total + event.number), []


class _Sessions(_Closing):
    """The same of sessions."""

    window = ps.windows.Session(timedelta(milliseconds=GAP_MS))


class _Promised(_Closing):
    """Each hour when those say that it is complete who write the events."""

    watermark = ps.watermarks.UpstreamWatermark()


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


class _Forgetting(_Merging):
    """Chains events, and forgets a key's chain when it is long."""

    def process(  # type: ignore[override]  # it also forgets
        self, event: Event, state: Chain | None, context: ps.Context
    ) -> tuple[Chain | None, list[Link]]:
        after, made = super().process(event, state, context)
        return (None if after.count == LONGEST_CHAIN else after), made


class _ForgettingUnsure(_Forgetting):
    """The same, which says that it may give another state each time: its changelog has deletions."""

    deterministic = False


class _Late(_Closing):
    """Writes each hour when it is complete, and the events that come after that to a category of their own."""


class _Differences(_Closing):
    """Writes what an hour came to when it is complete, and what came to it after that."""

    emit = ps.AtWatermark(differences=True)
    allowed_lateness = timedelta(milliseconds=LATENESS_MS)


class _Flow(_Aggregator):
    """Writes what came to each hour since the last checkpoint."""

    emit = ps.AtCheckpoint(differences=True)


class _Repartition(ps.Repartition):
    """Writes events under another key."""


class _Lookup(ps.LookupJoin):
    """Gives each event the row of its key."""

    source = ps.lookups.MemoryTable(ROWS)

    def key_of(self, event: Event) -> str:
        return event.key

    def join(self, event: Event, row: Row | None) -> Iterable[Met]:
        yield Met(event.key, event.at, event.number, row.number if row else None)


class _Table(ps.TableJoin):
    """Gives each event the row of its key that came last."""

    def join(self, event: Event, row: Answer | None, context: ps.Context) -> Iterable[Met]:
        yield Met(context.key, event.at, event.number, row.number if row else None)


class _Joining(ps.Join):
    """Joins events with answers, and keeps both where they meet none."""

    before, after = timedelta(milliseconds=BEFORE_MS), timedelta(milliseconds=AFTER_MS)
    join_type = ps.JoinType.OUTER
    watermark = IN_TIME

    def join(self, left: Event | None, right: Answer | None, context: ps.Context) -> Iterable[Met]:
        times = [one.at for one in (left, right) if one is not None]
        yield Met(context.key, max(times), left.number if left else None, right.number if right else None)


@dataclass(frozen=True)
class Kind:
    """A processor that is to be given categories.

    Args:
        base: what it does.
        written: what it writes.
        reads: how the names of its inputs end, and what is in them.
        writes: how the name of its output ends.
        name: how its own name ends.
        key: that of its output.
        late: how the name of the category ends that events go to which come too late; None for none.
        codec: that of its categories.
    """

    base: type[ps.Processor]
    written: type[ps.Record]
    reads: Mapping[str, type[ps.Record]] = field(default_factory=lambda: {"events": Event})
    writes: str = "out"
    name: str = "subject"
    key: str | Callable[[Any], str] = "key"
    late: str | None = None
    codec: Literal["json", "avro"] = "json"


def other_key(event: Event) -> str:
    """Return the key under which "repartition" writes an event."""
    return f"r{event.number % 3}"


_TWO = {"events": Event, "more": Event}
KINDS = {
    "stateless": Kind(_Stateless, Event),
    "stateful": Kind(_Stateful, Total),
    "aggregator": Kind(_Aggregator, Hourly),
    "timers": Kind(_Timers, Total),
    "closing": Kind(_Closing, Hourly),
    "early": Kind(_Early, Hourly),
    "sliding": Kind(_Sliding, Hourly),
    "windowed": Kind(_Windowed, Total),
    "clock": Kind(_Clock, Total),
    "unsure": Kind(_Unsure, Total),
    "ordered": Kind(_Ordered, Total),
    "sessions": Kind(_Sessions, Hourly),
    "joining": Kind(_Joining, Met, {"events": Event, "answers": Answer}),
    "injected": Kind(_Promised, Hourly),
    "downstream": Kind(_Promised, Hourly, {"out": Event}, "hours", "downstream"),
    "merging": Kind(_Merging, Link, _TWO),
    "random": Kind(_Random, Link),
    "forgetting": Kind(_Forgetting, Link),
    "forgetting_unsure": Kind(_ForgettingUnsure, Link),
    "late": Kind(_Late, Hourly, late="late"),
    "differences": Kind(_Differences, Hourly, late="late"),
    "flow": Kind(_Flow, Hourly),
    "repartition": Kind(_Repartition, Event, key=other_key),
    "lookup": Kind(_Lookup, Met),
    "table": Kind(_Table, Met, {"rows": Answer, "events": Event}),
    "avro": Kind(_Stateful, Total, codec="avro"),
}
