"""The kinds of processors in fault tests.

Each event has a unique number, which its outputs contain, so missing and repeated events are identified.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, Literal

import pyarrow as pa

import penstock as ps

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
DELAY_MS = 10 * MINUTE_MS
"""The delay of the answers of "timers"."""
GAP_MS = 8 * MINUTE_MS
"""The gap between two sessions of a key."""
BEFORE_MS, AFTER_MS = 2 * MINUTE_MS, 4 * MINUTE_MS
"""The maximum time of a matching right event before and after the left event."""
BEHIND_MS = 8 * MINUTE_MS
"""The lag of the watermark behind the newest event."""

LONGEST_CHAIN = 4
"""The number of events after which "forgetting" deletes a key's state."""
LATENESS_MS = HOUR_MS
"""The allowed lateness of "differences" after an hour is complete."""

IN_TIME = ps.watermarks.BoundedOutOfOrderness(timedelta(milliseconds=BEHIND_MS))


class Event(ps.Record, frozen=True):
    """A numbered event."""

    key: str
    at: ps.EventTime
    number: int


class Total(ps.Record, frozen=True):
    """A key's running total at an event."""

    key: str
    at: ps.EventTime
    number: int
    count: int
    total: int


class Hourly(ps.Record, frozen=True):
    """A key's results of an hour."""

    key: str
    hour: ps.EventTime
    count: int
    total: int
    smallest: int
    largest: int


class Link(ps.Record, frozen=True):
    """One change of a key's chain: its previous and its new value, and the length of the chain."""

    key: str
    at: ps.EventTime
    number: int
    count: int
    before: int
    after: int


class Chain(ps.Record, frozen=True):
    """A key's chain: the number of its events, and a number that depends on the events and their order."""

    count: int = 0
    link: int = 0


class Sums(ps.Record, frozen=True):
    """A key's count and sum."""

    count: int = 0
    total: int = 0


class Answer(Event, frozen=True):
    """An event of another category."""


class Joined(ps.Record, frozen=True):
    """The numbers of an event and a matching answer; one is None without a match."""

    key: str
    at: ps.EventTime
    number: int | None
    answer: int | None


class Row(ps.Record, frozen=True):
    """A row of a lookup source."""

    number: int


ROWS = {"k0": Row(100), "k1": Row(101), "k3": Row(103)}


class _Stateless(ps.Stateless):
    """Passes events on."""

    def process(self, event: Event) -> list[Event]:
        return [event]


class _Passing(_Stateless):
    """Passes events on, in columns, too."""

    def process_columns(self, events: pa.RecordBatch) -> pa.RecordBatch:
        return events


class _Pipe(ps.Pipe):
    """Passes events on through a program, which reads and writes them as lines of JSON."""

    command = ("cat",)


class _Stateful(ps.Stateful):
    """Counts and sums each key's events."""

    state = Sums

    def process(self, event: Event, state: Sums | None, context: ps.Context) -> tuple[Sums, list[Total]]:
        before = state or Sums()
        after = Sums(before.count + 1, before.total + event.number)
        return after, [Total(context.key, context.event_time, event.number, after.count, after.total)]


class _Timers(_Stateful):
    """Counts and sums each key's events, and answers each event when a timer fires."""

    watermark = IN_TIME

    def process(self, event: Event, state: Sums | None, context: ps.Context) -> tuple[Sums, list[Total]]:
        after, _ = super().process(event, state, context)
        context.timer(event.at + DELAY_MS, str(event.number))
        return after, []

    def on_timer(self, timer: ps.Timer, state: Sums, context: ps.Context) -> tuple[Sums, list[Total]]:
        return state, [Total(context.key, timer.at, int(timer.tag), state.count, state.total)]


class _Ordered(_Stateful):
    """Counts and sums each key's events in order of event time."""

    watermark = IN_TIME
    ordered = True


class _Aggregator(ps.Aggregator):
    """Computes count, sum, minimum and maximum of each key's hours."""

    monoid = ps.monoids.TupleOf(ps.monoids.Count(), ps.monoids.Sum(), ps.monoids.Min(), ps.monoids.Max())
    window: ClassVar[ps.windows.WindowAssigner] = ps.windows.Tumbling(timedelta(hours=1))

    def observe(self, event: Event) -> tuple[int, int, int, int]:
        return (event.number,) * 4

    def observe_columns(self, events: pa.RecordBatch) -> pa.Array[Any]:
        return pa.StructArray.from_arrays([events.column("number")] * 4, names=list("abcd"))

    def result(self, key: str, window: ps.windows.Window, value: tuple[int, int, int, int]) -> Hourly:
        return Hourly(key, window.start, *value)


class _Closing(_Aggregator):
    """Writes each hour when it is complete."""

    watermark: ClassVar[ps.watermarks.Watermark] = IN_TIME
    emit = ps.AtWatermark()
    late = ps.OnLate.DROP


class _Early(_Closing):
    """Writes each hour when it is complete, and early results at an interval."""

    emit = ps.AtWatermark(early=timedelta(milliseconds=20))


class _Sliding(_Closing):
    """Aggregates the hour before each event."""

    window = ps.windows.Sliding(timedelta(hours=1))


class _Windowed(ps.Windowed):
    """Sums each key's hours, and writes each hour when it is complete."""

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
    """Is declared as not deterministic."""

    deterministic = False


class _Clock(_Timers):
    """Counts and sums each key's events, and answers each event by a processing-time timer."""

    deterministic = False

    def process(self, event: Event, state: Sums | None, context: ps.Context) -> tuple[Sums, list[Total]]:
        before = state or Sums()
        context.timer(event.at, str(event.number), clock=ps.Clock.WALL)
        return Sums(before.count + 1, before.total + event.number), []


class _Sessions(_Closing):
    """Writes complete sessions."""

    window = ps.windows.Session(timedelta(milliseconds=GAP_MS))


class _Upstream(_Closing):
    """Writes each hour when the upstream watermark completes it."""

    watermark = ps.watermarks.UpstreamWatermark()


class _Merging(ps.Stateful):
    """Chains the events of two inputs in order of arrival."""

    state = Chain

    def process(self, event: Event, state: Chain | None, context: ps.Context) -> tuple[Chain, list[Link]]:
        before = state or Chain()
        link = (before.link * 1_000_003 + event.number + self.salt()) % 2**61
        after = Chain(before.count + 1, link)
        made = Link(context.key, context.event_time, event.number, after.count, before.link, after.link)
        return after, [made]

    def salt(self) -> int:
        """Return a number that is added to each link."""
        return 0


class _Random(_Merging):
    """Chains events with random numbers."""

    deterministic = False

    def salt(self) -> int:
        return random.randrange(2**32)


class _Forgetting(_Merging):
    """Chains events, and deletes a key's chain at a maximum length."""

    def process(  # type: ignore[override]  # may also return None
        self, event: Event, state: Chain | None, context: ps.Context
    ) -> tuple[Chain | None, list[Link]]:
        after, made = super().process(event, state, context)
        return (None if after.count == LONGEST_CHAIN else after), made


class _ForgettingUnsure(_Forgetting):
    """Is declared as not deterministic, so its changelog contains deletions."""

    deterministic = False


class _Late(_Closing):
    """Writes each hour when it is complete, and late events to a late category; a second output excludes columns."""

    observe_columns = ps.Aggregator.observe_columns  # type: ignore[assignment]  # it may return None


class _Differences(_Closing):
    """Writes each hour when it is complete, and the differences of late events; a second output excludes columns."""

    observe_columns = ps.Aggregator.observe_columns  # type: ignore[assignment]  # it may return None

    emit = ps.AtWatermark(differences=True)
    allowed_lateness = timedelta(milliseconds=LATENESS_MS)


class _Flow(_Aggregator):
    """Writes the differences of each hour since the last checkpoint."""

    emit = ps.AtCheckpoint(differences=True)


class _Repartition(ps.Repartition):
    """Writes events under another key."""


class _Lookup(ps.LookupJoin):
    """Joins each event with the row of its key."""

    source: ClassVar[ps.lookups.LookupSource] = ps.lookups.MemoryTable(ROWS)

    def key_of(self, event: Event) -> str:
        return event.key

    def join(self, event: Event, row: Row | None) -> Iterable[Joined]:
        yield Joined(event.key, event.at, event.number, row.number if row else None)


class _Table(ps.TableJoin):
    """Joins each event with the latest row of its key."""

    def join(self, event: Event, row: Answer | None, context: ps.Context) -> Iterable[Joined]:
        yield Joined(context.key, event.at, event.number, row.number if row else None)


class _Joining(ps.Join):
    """Joins events with answers, and writes both without a match."""

    before, after = timedelta(milliseconds=BEFORE_MS), timedelta(milliseconds=AFTER_MS)
    join_type = ps.JoinType.OUTER
    watermark = IN_TIME

    def join(self, left: Event | None, right: Answer | None, context: ps.Context) -> Iterable[Joined]:
        times = [record.at for record in (left, right) if record is not None]
        yield Joined(context.key, max(times), left.number if left else None, right.number if right else None)


@dataclass(frozen=True)
class Kind:
    """A kind of processor, without categories.

    Args:
        base: the base class.
        written: the record type of its output.
        reads: the record types of its inputs by the suffix of their names.
        writes: the suffix of its output's name.
        name: the suffix of its own name.
        key: the key of its output.
        late: the suffix of its late category's name; None for none.
        codec: the codec of its categories.
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
    "stateless": Kind(_Passing, Event),
    "pipe": Kind(_Pipe, Event),
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
    "joining": Kind(_Joining, Joined, {"events": Event, "answers": Answer}),
    "injected": Kind(_Upstream, Hourly),
    "downstream": Kind(_Upstream, Hourly, {"out": Event}, "hours", "downstream"),
    "merging": Kind(_Merging, Link, _TWO),
    "random": Kind(_Random, Link),
    "forgetting": Kind(_Forgetting, Link),
    "forgetting_unsure": Kind(_ForgettingUnsure, Link),
    "late": Kind(_Late, Hourly, late="late"),
    "differences": Kind(_Differences, Hourly, late="late"),
    "flow": Kind(_Flow, Hourly),
    "repartition": Kind(_Repartition, Event, key=other_key),
    "lookup": Kind(_Lookup, Joined),
    "table": Kind(_Table, Joined, {"rows": Answer, "events": Event}),
    "avro": Kind(_Stateful, Total, codec="avro"),
}
