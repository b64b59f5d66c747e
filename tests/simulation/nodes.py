"""The processors of a run: the kinds of the fault tests, and further kinds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import ClassVar

import msgspec
import pyarrow as pa
from support.kinds import (
    IN_TIME,
    Answer,
    Event,
    Hourly,
    Joined,
    Kind,
    Sums,
    Total,
    _Closing,
    _Stateful,
    _Stateless,
    _Table,
)
from support.kinds import KINDS as FAULT_TEST_KINDS
from support.kinds import _Lookup as _FaultTestLookup
from support.subjects import EXACT, LEAST, MOST, PAIRS

import penstock as ps
from penstock.processors.declare import Partial, in_phases
from penstock.processors.time import Schedule

from .category_settings import DEFAULT_SETTINGS, CategorySettings
from .laser import table_of
from .sql_kinds import SQL_KINDS

EARLY_S = 10
BEAT, BEAT_MS = "beat ", 7_000
"""The first part of the keys of scheduled lines, and their interval."""
DEFAULT_SHARE = ps.watermarks.Confidence().share
"""The share of events on time of a processor that declares no watermark."""
FRESH_S = 10
"""How long "remembering" caches a row or its absence."""


class _Rekeyed(_Stateless):
    """Passes events on under another key."""

    def process(self, event: Event) -> list[Event]:
        return [rekeyed(event)]

    def process_columns(self, events: pa.RecordBatch) -> pa.RecordBatch:
        keys = pa.array([f"r{number % 5}" for number in events.column("number").to_numpy().tolist()], pa.string())
        return events.set_column(events.schema.get_field_index("key"), "key", keys)


class _Asynchronous(ps.Stateless):
    """Passes events on after some turns of its event loop."""

    concurrency = 3

    async def process(self, event: Event) -> list[Event]:
        for _ in range(event.number % 4):
            await asyncio.sleep(0)
        return [event]


class _Early(_Closing):
    """Writes complete hours, and early results at an interval."""

    emit = ps.AtWatermark(early=timedelta(seconds=EARLY_S))


def rekeyed(event: Event) -> Event:
    """Return an event under another key."""
    return Event(f"r{event.number % 5}", event.at, event.number)


class _LatestAsOf(_Table):
    """Joins each event with its key's row as of the event's time."""

    ordered = True
    watermark = IN_TIME


class _Lookup(_FaultTestLookup):
    """Retries failed lookups."""

    on_unreachable = ps.lookups.OnUnreachable.WAIT


class _Remembering(_Lookup):
    """Also caches rows."""

    cache = ps.lookups.Cached(ttl=timedelta(seconds=FRESH_S), missing_ttl=timedelta(seconds=FRESH_S))


class NumberedRow(ps.Record, frozen=True):
    """A row of the table that workers read from the bus."""

    key: str
    at: int
    number: int


NUMBERED_ROWS = ps.Category("numbered_rows", NumberedRow, key="key", event_time="at", buckets=2, compacted=True)


class _Broadcast(_Lookup):
    """Joins with the rows of a category."""

    source = ps.lookups.CategoryTable(NUMBERED_ROWS)


class _Scheduled(_Stateful):
    """Also writes a line at an interval, with the number of the shard and of the earlier lines that it missed."""

    deterministic = False
    schedules: ClassVar[Mapping[str, Schedule]] = {"beat": ps.Interval(timedelta(milliseconds=BEAT_MS))}

    def on_schedule(self, firing: ps.Firing, states: Iterable[tuple[str, Sums]]) -> list[Total]:
        total = sum(state.count for _, state in states)
        return [Total(f"{BEAT}{firing.shard}", firing.at, firing.shard, firing.skipped, total)]


class _CatchingUp(_Scheduled):
    """Writes a line for each time."""

    schedules = {"beat": ps.Interval(timedelta(milliseconds=BEAT_MS), catch_up=True)}  # noqa: RUF012 - a declaration


class _Deleting(_Stateful):
    """Writes a tombstone after the total of each event."""

    def process(  # type: ignore[override]  # also returns tombstones
        self, event: Event, state: Sums | None, context: ps.Context
    ) -> tuple[Sums, list[Total | ps.Tombstone]]:
        after, totals = super().process(event, state, context)
        return after, [*totals, ps.Tombstone(context.key)]


class _FirstCallFails:
    """Fails at the first call of a worker for every third event."""

    def __init__(self) -> None:
        super().__init__()
        self._called: set[int] = set()

    def call(self, event: Event) -> None:
        """Raise at the first call for an event."""
        if event.number % 3 == 0 and event.number not in self._called:
            self._called.add(event.number)
            raise TimeoutError(f"no answer for {event.number}")


HALF_A_CHARACTER = "\ud83d"
"""A text that no encoder accepts, as of a truncated emoji."""
TOO_LARGE = "x" * 100_000
"""A text that no output may contain: `SMALL_MESSAGES` limits its category."""
SMALL_MESSAGES = {"max.message.bytes": "50000"}


class _Refusing(_Stateful):
    """Sends some events to the dead letters: it fails at them, or their outputs cannot be written."""

    on_error = ps.ErrorPolicy.DEAD_LETTER
    dead_letter_limit = None

    def process(self, event: Event, state: Sums | None, context: ps.Context) -> tuple[Sums, list[Total]]:
        if not is_refused(event):
            return super().process(event, state, context)
        after, [total] = super().process(event, state, context)
        if event.number % 9 == 0:
            raise ValueError(f"{event.number} is refused")
        return after, [total, msgspec.structs.replace(total, key=HALF_A_CHARACTER if event.number % 2 else TOO_LARGE)]


def is_refused(event: Event) -> bool:
    """Return whether "refusing" refuses an event."""
    return event.number % 3 == 0


RETRY = ps.Retry(after=timedelta(milliseconds=500), factor=1.5, attempts=9)
"""More attempts than workers that fail at an event."""


class _Retrying(_FirstCallFails, _Stateless):
    """Passes events on, some at a later attempt."""

    on_error = RETRY

    def process(self, event: Event) -> list[Event]:
        self.call(event)
        return super().process(event)


class _CountingRetries(_FirstCallFails, _Stateful):
    """Counts and sums each key's events, some at a later attempt."""

    on_error = RETRY

    def process(self, event: Event, state: Sums | None, context: ps.Context) -> tuple[Sums, list[Total]]:
        self.call(event)
        return super().process(event, state, context)


class Turn(Event, frozen=True):
    """An event on its way around a loop.

    Args:
        left: how often it passes again.
    """

    left: int


class _Looping(_Stateless):
    """Sends each event around its loop, each time under another key, and then passes it on."""

    feedback: ClassVar[ps.Category[Turn]]

    def process(self, event: Event | Turn) -> list[Event]:
        left = event.left if isinstance(event, Turn) else event.number % MOST_TURNS
        if not left:
            return [rekeyed(Event(event.key, event.at, event.number))]
        return [Turn(f"t{(event.number + left) % 7}", event.at, event.number, left - 1)]


MOST_TURNS = 4


class _Phased(_Closing):
    """Writes each hour of another key when it is complete, in two phases."""

    two_phase = ps.TwoPhase(lambda event: rekeyed(event).key)


_TABLE = {"rows": Answer, "events": Event}
KINDS = {
    **FAULT_TEST_KINDS,
    "rekeyed": Kind(_Rekeyed, Event),
    "asynchronous": Kind(_Asynchronous, Event),
    "early": Kind(_Early, Hourly),
    "deleting": Kind(_Deleting, Total),
    "scheduled": Kind(_Scheduled, Total),
    "catching up": Kind(_CatchingUp, Total),
    "retrying": Kind(_Retrying, Event),
    "counting retries": Kind(_CountingRetries, Total),
    "refusing": Kind(_Refusing, Total),
    "forgetting": FAULT_TEST_KINDS["forgetting_unsure"],
    "table": Kind(_Table, Joined, _TABLE),
    "latest as of": Kind(_LatestAsOf, Joined, _TABLE),
    "lookup": Kind(_Lookup, Joined),
    "remembering": Kind(_Remembering, Joined),
    "broadcast": Kind(_Broadcast, Joined),
    "looping": Kind(_Looping, Event),
    "served": Kind(ps.Stateful, Event),
    "expiring": Kind(ps.Stateful, Event),
    "partials": Kind(_Phased, Partial),
    "combining": Kind(_Phased, Hourly, {"partials": Partial}),
    **SQL_KINDS,
}
PHASES = {"partials": 0, "combining": 1, "sql partials": 0, "sql combining": 1}
"""Kinds that are the first or the second phase of an aggregator."""
PASS_THROUGH = ("stateless", "rekeyed", "repartition")
"""Kinds whose outputs other processors may read."""
TABLES = ("table", "latest as of")
"""Kinds whose first input is a table."""
TIERS = ("served", "expiring")
"""Kinds that are servers of Laser tables, without and with a lifetime of their pairs."""
LATE = ("late", "differences")
"""Kinds with late events."""


@dataclass(frozen=True)
class Node:
    """A processor of a run.

    Args:
        name: the name of the processor and of its output.
        kind: the key of its kind in `KINDS`.
        state: the state's semantics.
        output: the outputs' semantics.
        reads: the names of its inputs.
        workers: the number of workers, each on its own machine.
        uses_upstream_watermarks: whether it uses upstream watermarks.
        backups: whether its states are backed up; then its checkpoints are adaptive, too.
        writing: the write mode of its remote store; None for local states.
        sink: whether its outputs are rows of a sink.
        estimated: inputs whose own events determine their watermarks, beside inputs with upstream watermarks.
        on_time: the share of the events that its watermark lets arrive on time; None for a watermark at a known distance.
    """

    name: str
    kind: str
    state: ps.Semantics
    output: ps.Semantics
    reads: tuple[str, ...]
    workers: int
    uses_upstream_watermarks: bool = False
    backups: bool = False
    writing: ps.WriteMode | None = None
    sink: bool = False
    estimated: tuple[str, ...] = ()
    on_time: float | None = None

    @property
    def is_remote(self) -> bool:
        """Whether it has a remote store."""
        return self.writing is not None

    @property
    def writes_outputs(self) -> bool:
        """Whether it writes to a category. In append mode, a store never returns a result."""
        return self.writing is not ps.WriteMode.APPEND

    def estimates(self, name: str) -> bool:
        """Return whether the watermark of an input depends on its events."""
        return not self.uses_upstream_watermarks or name in self.estimated

    @property
    def loop(self) -> str:
        """The name of the category of its loop."""
        return f"{self.name}.loop"

    def __str__(self) -> str:
        by = ", upstream watermarks" if self.uses_upstream_watermarks else ""
        by += f" except of {' and '.join(self.estimated)}" if self.estimated else ""
        by += f", {self.on_time:.0%} on time" if self.on_time is not None else ""
        storage = ", backed up" if self.backups else ", in a store" if self.is_remote else ""
        storage += ", into a sink" if self.sink else ""
        storage += f" ({self.writing.value})" if self.writing is not None else ""
        pair = f"{self.state.name.lower()}/{self.output.name.lower()}"
        return f"{self.name}: {self.kind} of {' and '.join(self.reads)}, {pair}{by}{storage}, {self.workers} workers"

    def make(self, category_settings: CategorySettings = DEFAULT_SETTINGS) -> type[ps.Processor]:
        """Return the processor, with these settings of its categories."""
        kind = KINDS[self.kind]
        inputs = tuple(map(category_settings.category, self.reads, kind.reads.values()))
        if self.kind in TIERS:
            return type("Simulated", (table_of(self.name, inputs[0], self.kind).processor(),), {"name": self.name})
        category = category_settings.category(f"{self.name}.out", kind.written)
        if self.kind == "refusing":
            category = replace(category, settings=SMALL_MESSAGES)
        output = ps.sinks.MemorySink(kind.written, category.name) if self.sink else category
        declared: dict[str, object] = {
            **_reading(kind.base, inputs),
            "name": self.name,
            "writes": output if self.writes_outputs else (),
            "state_semantics": self.state,
            "output_semantics": self.output,
        }
        if self.kind == "looping":
            loop = replace(category_settings.category(self.loop, Turn), buckets=inputs[0].buckets)
            declared |= {"reads": (*inputs, loop), "feedback": loop, "writes": (output, loop)}
        if kind.late is not None:
            declared["late"] = category_settings.category(f"{self.name}.{kind.late}", Event)
        if self.backups:
            declared["checkpoint"] = ps.CheckpointInterval(adaptive=True)
        if self.writing is not None:
            declared["store"] = ps.RemoteStore(self.writing)
        declared |= self._watermarks(inputs)
        if issubclass(kind.base, ps.Aggregator) and not all(isinstance(one.key, str) for one in inputs):
            declared["observe_columns"] = ps.Aggregator.observe_columns  # columns need a key that is one field
        base = _phase(self.kind, declared) if self.kind in PHASES else kind.base
        return type("Simulated", (base,), declared)

    def _watermarks(self, inputs: Sequence[ps.Category[ps.Record]]) -> dict[str, object]:
        """Return its declared watermarks; a kind may declare its own."""
        if self.uses_upstream_watermarks:
            upstream = ps.watermarks.UpstreamWatermark()
            each = {category: IN_TIME if category.name in self.estimated else upstream for category in inputs}
            return {"watermark": each if self.estimated else upstream}
        if self.on_time is not None:
            is_default = self.on_time == DEFAULT_SHARE
            return {"watermark": None if is_default else ps.watermarks.Confidence(self.on_time)}
        is_undeclared = self.kind in {*PASS_THROUGH, "asynchronous", "pipe", "retrying", "looping", "sql join"}
        return {"watermark": IN_TIME} if is_undeclared else {}

    def pass_on(self, events: Sequence[Event]) -> list[Event]:
        """Return its outputs for events, for a kind whose outputs others may read."""
        if self.kind == "sql partials":
            return [Event(f'["{event.key}"]', event.at, event.number) for event in map(rekeyed, events)]
        return [rekeyed(event) for event in events] if self.kind in {"rekeyed", "partials", "looping"} else list(events)


def _phase(kind: str, declared: dict[str, object]) -> type[ps.Processor]:
    """Return a phase of the aggregator over the inputs of a node; the second phase reads the partials of another node instead."""
    return in_phases([type("Simulated", (KINDS[kind].base,), dict(declared))])[PHASES[kind]]


def _reading(base: type[ps.Processor], inputs: tuple[ps.Category[ps.Record], ...]) -> dict[str, object]:
    if issubclass(base, ps.Join):
        return {"left": inputs[0], "right": inputs[1]}
    if issubclass(base, ps.TableJoin):
        return {"table": inputs[0], "stream": inputs[1]}
    return {"reads": inputs}


def pairs_of(kind: str) -> tuple[tuple[ps.Semantics, ps.Semantics], ...]:
    """Return the pairs of semantics of a kind."""
    if kind in PASS_THROUGH or kind in {"asynchronous", "pipe", "lookup", "remembering", "broadcast"}:
        return ((LEAST, LEAST), (MOST, MOST), (EXACT, EXACT))
    if kind in TIERS:
        return ((EXACT, LEAST),)
    if kind in {"retrying", "looping"}:
        return ((LEAST, LEAST), (EXACT, EXACT))
    if kind in {"merging", "random", "forgetting", "counting retries"}:
        return ((EXACT, EXACT),)  # weaker semantics could not be checked from outside
    return _FURTHER_PAIRS.get(kind, PAIRS)


_FURTHER_PAIRS = {
    "sessions": ((LEAST, LEAST), (EXACT, LEAST), (EXACT, EXACT)),  # lost events would change sessions
    "sql windows": ((EXACT, LEAST), (EXACT, MOST), (EXACT, EXACT)),  # HAVING excludes other results if a count is wrong
}
