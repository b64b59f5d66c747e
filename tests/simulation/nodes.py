"""The processors of a run, and what of their input they pass on: the kinds that the fault tests kill, and a few more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from support.kinds import IN_TIME, Answer, Event, Hourly, Kind, Met, _Closing, _Stateless, _Table
from support.kinds import KINDS as TRIED
from support.kinds import _Lookup as _LookedUp
from support.subjects import EXACT, LEAST, MOST, PAIRS

import penstock as ps

from .manner import USUAL, Manner

EARLY_S = 10
FRESH_S = 10
"""For how long "remembering" takes a row, or that there is none, for what it was."""


class _Rekeyed(_Stateless):
    """Passes events on under another key."""

    def process(self, event: Event) -> list[Event]:
        return [rekeyed(event)]


class _Early(_Closing):
    """Writes hours when they are complete, and now and then before."""

    emit = ps.AtWatermark(early=timedelta(seconds=EARLY_S))


def rekeyed(event: Event) -> Event:
    """Return an event under another key."""
    return Event(f"r{event.number % 5}", event.at, event.number)


class _LatestAsOf(_Table):
    """Gives each event the row that its key had at the event's time."""

    ordered = True
    watermark = IN_TIME


class _Lookup(_LookedUp):
    """Retries failed lookups."""

    on_unreachable = ps.lookups.OnUnreachable.WAIT


class _Remembering(_Lookup):
    """The same, and remembers rows for a while."""

    cache = ps.lookups.Cached(ttl=timedelta(seconds=FRESH_S), missing_ttl=timedelta(seconds=FRESH_S))


_TABLE = {"rows": Answer, "events": Event}
KINDS = {
    **TRIED,
    "rekeyed": Kind(_Rekeyed, Event),
    "early": Kind(_Early, Hourly),
    "forgetting": TRIED["forgetting_unsure"],
    "table": Kind(_Table, Met, _TABLE),
    "latest as of": Kind(_LatestAsOf, Met, _TABLE),
    "lookup": Kind(_Lookup, Met),
    "remembering": Kind(_Remembering, Met),
}
PASSING = ("stateless", "rekeyed", "repartition")
"""Those whose outputs are what others may read."""
TABLES = ("table", "latest as of")
"""Those whose first input is a table."""
LATE = ("late", "differences")
"""Those whose events may come too late."""


@dataclass(frozen=True)
class Node:
    """A processor of a run.

    Args:
        name: the name of the processor and of its output.
        kind: what it does.
        state: the state's semantics.
        output: the outputs' semantics.
        reads: the names of its inputs.
        workers: how many workers it has, each on a machine of its own.
        promised: whether it uses upstream watermarks.
        backups: whether its states are backed up.
        writing: how it writes to a store that all machines share; None where its states lie beside its workers.
    """

    name: str
    kind: str
    state: ps.Semantics
    output: ps.Semantics
    reads: tuple[str, ...]
    workers: int
    promised: bool = False
    backups: bool = False
    writing: ps.WriteMode | None = None

    @property
    def is_remote(self) -> bool:
        """Whether its states lie in a store."""
        return self.writing is not None

    @property
    def writes_outputs(self) -> bool:
        """Whether it writes to a category: appending to a store never knows a result."""
        return self.writing is not ps.WriteMode.APPEND

    def __str__(self) -> str:
        by = ", promised" if self.promised else ""
        kept = ", backed up" if self.backups else ", in a store" if self.is_remote else ""
        kept += f" ({self.writing.value})" if self.writing is not None else ""
        pair = f"{self.state.name.lower()}/{self.output.name.lower()}"
        return f"{self.name}: {self.kind} of {' and '.join(self.reads)}, {pair}{by}{kept}, {self.workers} workers"

    def make(self, manner: Manner = USUAL) -> type[ps.Processor]:
        """Return the processor, on categories that are kept in a manner."""
        kind = KINDS[self.kind]
        inputs = tuple(map(manner.category, self.reads, kind.reads.values()))
        output = manner.category(f"{self.name}.out", kind.written)
        declared: dict[str, object] = {
            **_reading(kind.base, inputs),
            "name": self.name,
            "writes": output if self.writes_outputs else (),
            "state_semantics": self.state,
            "output_semantics": self.output,
        }
        if kind.late is not None:
            declared["late"] = manner.category(f"{self.name}.{kind.late}", Event)
        if self.writing is not None:
            declared["store"] = ps.RemoteStore(self.writing)
        if self.promised:
            declared["watermark"] = ps.watermarks.UpstreamWatermark()
        elif self.kind in PASSING:
            declared["watermark"] = IN_TIME
        return type("Simulated", (kind.base,), declared)

    def passed_on(self, events: Sequence[Event]) -> list[Event]:
        """Return what it makes of its events, of those kinds that others read."""
        return [rekeyed(event) for event in events] if self.kind == "rekeyed" else list(events)


def _reading(base: type[ps.Processor], inputs: tuple[ps.Category[ps.Record], ...]) -> dict[str, object]:
    if issubclass(base, ps.Join):
        return {"left": inputs[0], "right": inputs[1]}
    if issubclass(base, ps.TableJoin):
        return {"table": inputs[0], "stream": inputs[1]}
    return {"reads": inputs}


def pairs_of(kind: str) -> tuple[tuple[ps.Semantics, ps.Semantics], ...]:
    """Return the semantics that a kind may have."""
    if kind in PASSING or kind in {"lookup", "remembering"}:
        return ((LEAST, LEAST), (MOST, MOST), (EXACT, EXACT))
    if kind in {"merging", "random", "forgetting"}:
        return ((EXACT, EXACT),)  # weaker semantics could not be checked from outside
    if kind == "sessions":
        return ((LEAST, LEAST), (EXACT, LEAST), (EXACT, EXACT))  # where events are lost, sessions are others
    return PAIRS
