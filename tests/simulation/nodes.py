"""The processors of a run, and what of their input they pass on: the kinds that the fault tests kill, and a few more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from support.kinds import IN_TIME, Answer, Event, Hourly, Kind, _Closing, _Stateless
from support.kinds import KINDS as TRIED
from support.subjects import BUCKETS, EXACT, LEAST, MOST, PAIRS

import penstock as ps

EARLY_S = 10


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


UNKNOWN = (
    *("forgetting", "forgetting_unsure", "late", "differences", "flow"),
    *("repartition", "lookup", "table", "avro"),
)
"""Kinds whose truth is not computed here."""
KINDS = {
    **{name: kind for name, kind in TRIED.items() if name not in UNKNOWN},
    "rekeyed": Kind(_Rekeyed, Event),
    "early": Kind(_Early, Hourly),
    "forgetting": TRIED["forgetting_unsure"],
}
PASSING = ("stateless", "rekeyed")
"""Those whose outputs are what others may read."""


@dataclass(frozen=True)
class Node:
    """A processor of a run.

    Args:
        name: its name, and that of its output.
        kind: what it does.
        state: the state's semantics.
        output: the outputs' semantics.
        reads: the names of its inputs.
        workers: how many workers it has, each on a machine of its own.
        promised: whether it goes by what those promise that write its inputs.
        backups: whether its states are backed up.
        is_remote: whether they lie in a store that all machines share.
    """

    name: str
    kind: str
    state: ps.Semantics
    output: ps.Semantics
    reads: tuple[str, ...]
    workers: int
    promised: bool = False
    backups: bool = False
    is_remote: bool = False

    def __str__(self) -> str:
        by = ", promised" if self.promised else ""
        backed_up = ", backed up" if self.backups else ", in a store" if self.is_remote else ""
        pair = f"{self.state.name.lower()}/{self.output.name.lower()}"
        return f"{self.name}: {self.kind} of {' and '.join(self.reads)}, {pair}{by}{backed_up}, {self.workers} workers"

    def make(self) -> type[ps.Processor]:
        """Return the processor."""
        kind = KINDS[self.kind]
        inputs = tuple(map(category, self.reads, kind.reads.values()))
        reads = {"left": inputs[0], "right": inputs[1]} if issubclass(kind.base, ps.Join) else {"reads": inputs}
        declared = {
            **reads,
            "name": self.name,
            "writes": category(f"{self.name}.out", kind.written),
            "state_semantics": self.state,
            "output_semantics": self.output,
            **({"store": ps.RemoteStore()} if self.is_remote else {}),
            **(
                {"watermark": ps.watermarks.UpstreamWatermark()}
                if self.promised
                else {"watermark": IN_TIME}
                if self.kind in PASSING
                else {}
            ),
        }
        return type("Simulated", (kind.base,), declared)

    def passed_on(self, events: Sequence[Event]) -> list[Event]:
        """Return what it makes of its events, of those kinds that others read."""
        return [rekeyed(event) for event in events] if self.kind == "rekeyed" else list(events)


def category(name: str, record: type[ps.Record]) -> ps.Category[ps.Record]:
    """Return a category of a run."""
    time = "hour" if record is Hourly else "at"
    return ps.Category(name, record, key="key", event_time=time, buckets=BUCKETS)


def pairs_of(kind: str) -> tuple[tuple[ps.Semantics, ps.Semantics], ...]:
    """Return the semantics that a kind may have."""
    if kind in PASSING:
        return ((LEAST, LEAST), (MOST, MOST), (EXACT, EXACT))
    if kind in {"merging", "random", "forgetting"}:
        return ((EXACT, EXACT),)  # what these promise beside is nothing that could be told from outside
    if kind == "sessions":
        return ((LEAST, LEAST), (EXACT, LEAST), (EXACT, EXACT))  # where events are lost, sessions are others
    return PAIRS


def right_record(kind: str) -> type[ps.Record]:
    """Return the record of a kind's second input."""
    return Answer if kind == "joining" else Event
