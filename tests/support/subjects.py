"""What the fault tests kill: a processor of any kind, for any pair of semantics, any store and any categories; and its events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import penstock as ps

from .kinds import KINDS, MINUTE_MS, Event, Hourly, Kind

BUCKETS = 2
KEYS = 5
DISORDER = 8
"""Of so many events each, the last comes first."""

LEAST, MOST, EXACT = ps.Semantics.AT_LEAST_ONCE, ps.Semantics.AT_MOST_ONCE, ps.Semantics.EXACTLY_ONCE
PAIRS = ((LEAST, LEAST), (MOST, MOST), (EXACT, LEAST), (EXACT, MOST), (EXACT, EXACT))


LOCALLY = ps.LocalStore()


@dataclass(frozen=True)
class Subject:
    """A processor to be made, described so that another process can make the same.

    Args:
        kind: "stateless", "stateful" or "aggregator"; "merging", which reads two categories, whose order is as it comes; "random", whose state is
            drawn by lot; "unsure", a stateful one that says it may be. By event time: "timers", which answers each event ten minutes later; "closing" and "sessions", which write hours and sessions
            when they are complete; "sliding" and "windowed", likewise; "early", which writes hours before that, too; "clock", which answers each
            event by the time of day; "ordered", which takes events in order; "joining", which joins two categories; "injected", which goes by what an
            injector promises, and "downstream", which goes by what "timers" of the same prefix does.
        state: the state's semantics.
        output: the outputs' semantics.
        store: where an aggregator keeps its state.
    """

    kind: str
    state: ps.Semantics
    output: ps.Semantics
    store: ps.LocalStore | ps.RemoteStore = LOCALLY

    def __str__(self) -> str:
        store = f"-{self.store.write_mode.value}" if isinstance(self.store, ps.RemoteStore) else ""
        return f"{self.kind}{store}-{self.state.name.lower()}-{self.output.name.lower()}"

    @property
    def writes_outputs(self) -> bool:
        """Whether it writes to a category: appending to a store never knows a result."""
        return self.store != ps.RemoteStore(ps.WriteMode.APPEND)

    def make(self, prefix: str, checkpoint: ps.CheckpointInterval | None = None) -> type[ps.Processor]:
        """Return the processor, on categories whose names begin with `prefix`."""
        kind = KINDS[self.kind]
        inputs = tuple(_category(f"{prefix}.{name}", record, kind) for name, record in kind.reads.items())
        late = {} if kind.late is None else {"late": _category(f"{prefix}.{kind.late}", Event, kind)}
        declared = {
            **_reading(kind.base, inputs),
            **late,
            "name": f"{prefix}.{kind.name}",
            "writes": ()
            if not self.writes_outputs
            else _category(f"{prefix}.{kind.writes}", kind.written, kind, kind.key),
            "state_semantics": self.state,
            "output_semantics": self.output,
            "checkpoint": checkpoint or ps.CheckpointInterval(),
            **({"store": self.store} if issubclass(kind.base, ps.Aggregator) else {}),
        }
        return type("Subject", (kind.base,), declared)


def _reading(base: type[ps.Processor], inputs: tuple[ps.Category[ps.Record], ...]) -> dict[str, Any]:
    if issubclass(base, ps.Join):
        return {"left": inputs[0], "right": inputs[1]}
    if issubclass(base, ps.TableJoin):
        return {"table": inputs[0], "stream": inputs[1]}
    return {"reads": inputs}


def _category(
    name: str, record: type[ps.Record], kind: Kind, key: str | Callable[[Any], str] = "key"
) -> ps.Category[ps.Record]:
    time = "hour" if record is Hourly else "at"
    return ps.Category(name, record, key=key, event_time=time, buckets=BUCKETS, codec=kind.codec)


STATELESS = [Subject("stateless", output, output) for output in (LEAST, MOST, EXACT)]
CHAINED = [Subject(kind, EXACT, EXACT) for kind in ("merging", "random")]
REMOTE = [Subject("aggregator", *pair, ps.RemoteStore(writing)) for pair, writing in product(PAIRS, ps.WriteMode)]
_FURTHER: dict[str, tuple[tuple[ps.Semantics, ps.Semantics], ...]] = {
    "timers": ((EXACT, MOST),),
    "closing": ((MOST, MOST),),
    "ordered": ((EXACT, LEAST),),
    "sessions": ((EXACT, LEAST),),
    "joining": ((EXACT, LEAST), (EXACT, MOST)),
    "injected": ((EXACT, LEAST), (EXACT, MOST)),
}
TIMED = [Subject(kind, *pair) for kind, pairs in _FURTHER.items() for pair in ((LEAST, LEAST), *pairs, (EXACT, EXACT))]
TIMED.append(Subject("early", EXACT, EXACT))
"""Not each kind with each pair: the steps are those of "stateful" and "aggregator", which are tried with all. What a kind adds is what lies in its
state, and outputs that come between events: each is tried where a crash repeats, where it takes back, and
in another row; those that are not read again as they were read before, with several inputs or by promises, in
each row with exact state that they may have."""
TWICE = [Subject(kind, EXACT, EXACT) for kind in ("windowed", "sliding", "clock", "forgetting_unsure")]
"""Kinds whose steps are those of others, and that are tried with all rows and deaths in memory; on Kafka, with two deaths each."""
LOCAL = [Subject(kind, *pair) for kind, pair in product(("stateful", "aggregator"), PAIRS)]


def events(count: int, *, start: int = 0) -> list[Event]:
    """Give numbered events of a few keys, one a minute, in some disorder; those of a key now close together, now far apart."""
    numbers = (place ^ (DISORDER - 1) for place in range(start, start + count))
    return [Event(f"k{(n * n // 11 + n // 4) % KEYS}", n * MINUTE_MS, n) for n in numbers]


def complete_ms(count: int) -> int:
    """Return what no event is earlier than that comes after the first so many."""
    return count // DISORDER * DISORDER * MINUTE_MS
