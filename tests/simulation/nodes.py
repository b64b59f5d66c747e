"""The processors of a run: the kinds of the fault tests, and further kinds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

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

from .category_settings import DEFAULT_SETTINGS, CategorySettings

EARLY_S = 10
FRESH_S = 10
"""How long "remembering" caches a row or its absence."""


class _Rekeyed(_Stateless):
    """Passes events on under another key."""

    def process(self, event: Event) -> list[Event]:
        return [rekeyed(event)]


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


class _Deleting(_Stateful):
    """Writes a tombstone after the total of each event."""

    def process(  # type: ignore[override]  # also returns tombstones
        self, event: Event, state: Sums | None, context: ps.Context
    ) -> tuple[Sums, list[Total | ps.Tombstone]]:
        after, totals = super().process(event, state, context)
        return after, [*totals, ps.Tombstone(context.key)]


_TABLE = {"rows": Answer, "events": Event}
KINDS = {
    **FAULT_TEST_KINDS,
    "rekeyed": Kind(_Rekeyed, Event),
    "asynchronous": Kind(_Asynchronous, Event),
    "early": Kind(_Early, Hourly),
    "deleting": Kind(_Deleting, Total),
    "forgetting": FAULT_TEST_KINDS["forgetting_unsure"],
    "table": Kind(_Table, Joined, _TABLE),
    "latest as of": Kind(_LatestAsOf, Joined, _TABLE),
    "lookup": Kind(_Lookup, Joined),
    "remembering": Kind(_Remembering, Joined),
    "broadcast": Kind(_Broadcast, Joined),
}
PASS_THROUGH = ("stateless", "rekeyed", "repartition")
"""Kinds whose outputs other processors may read."""
TABLES = ("table", "latest as of")
"""Kinds whose first input is a table."""
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
        backups: whether its states are backed up.
        writing: the write mode of its remote store; None for local states.
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

    @property
    def is_remote(self) -> bool:
        """Whether it has a remote store."""
        return self.writing is not None

    @property
    def writes_outputs(self) -> bool:
        """Whether it writes to a category. In append mode, a store never returns a result."""
        return self.writing is not ps.WriteMode.APPEND

    def __str__(self) -> str:
        by = ", upstream watermarks" if self.uses_upstream_watermarks else ""
        storage = ", backed up" if self.backups else ", in a store" if self.is_remote else ""
        storage += f" ({self.writing.value})" if self.writing is not None else ""
        pair = f"{self.state.name.lower()}/{self.output.name.lower()}"
        return f"{self.name}: {self.kind} of {' and '.join(self.reads)}, {pair}{by}{storage}, {self.workers} workers"

    def make(self, category_settings: CategorySettings = DEFAULT_SETTINGS) -> type[ps.Processor]:
        """Return the processor, with these settings of its categories."""
        kind = KINDS[self.kind]
        inputs = tuple(map(category_settings.category, self.reads, kind.reads.values()))
        output = category_settings.category(f"{self.name}.out", kind.written)
        declared: dict[str, object] = {
            **_reading(kind.base, inputs),
            "name": self.name,
            "writes": output if self.writes_outputs else (),
            "state_semantics": self.state,
            "output_semantics": self.output,
        }
        if kind.late is not None:
            declared["late"] = category_settings.category(f"{self.name}.{kind.late}", Event)
        if self.writing is not None:
            declared["store"] = ps.RemoteStore(self.writing)
        if self.uses_upstream_watermarks:
            declared["watermark"] = ps.watermarks.UpstreamWatermark()
        elif self.kind in {*PASS_THROUGH, "asynchronous", "pipe"}:
            declared["watermark"] = IN_TIME
        return type("Simulated", (kind.base,), declared)

    def pass_on(self, events: Sequence[Event]) -> list[Event]:
        """Return its outputs for events, for a kind whose outputs others may read."""
        return [rekeyed(event) for event in events] if self.kind == "rekeyed" else list(events)


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
    if kind in {"merging", "random", "forgetting"}:
        return ((EXACT, EXACT),)  # weaker semantics could not be checked from outside
    if kind == "sessions":
        return ((LEAST, LEAST), (EXACT, LEAST), (EXACT, EXACT))  # lost events would change sessions
    return PAIRS
