"""The subjects of fault tests: processors of any kind, semantics, store and categories; and their events."""

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
"""In each group of this many events, the order is reversed."""

LEAST, MOST, EXACT = ps.Semantics.AT_LEAST_ONCE, ps.Semantics.AT_MOST_ONCE, ps.Semantics.EXACTLY_ONCE
PAIRS = ((LEAST, LEAST), (MOST, MOST), (EXACT, LEAST), (EXACT, MOST), (EXACT, EXACT))


LOCALLY = ps.LocalStore()


@dataclass(frozen=True)
class Subject:
    """A description of a processor, from which each process creates the same class.

    Args:
        kind: the key of its kind in `KINDS`, such as "stateless", "stateful" or "aggregator". "merging" reads two categories and depends on
            their order of arrival; "random" has a random state; "unsure" is declared as not deterministic. With event time: "timers" answers each
            event ten minutes later; "closing", "sessions", "sliding" and "windowed" write complete windows; "early" also writes early results;
            "clock" answers at a processing time; "ordered" has ordered delivery; "joining" joins two categories; "injected" uses an injector's
            watermarks, and "downstream" uses the watermarks of "timers" with the same prefix.
        state: the state's semantics.
        output: the outputs' semantics.
        store: the store of an aggregator.
        sink: where its outputs are rows instead of messages: "memory", or the address of PostgreSQL; empty for a category.
    """

    kind: str
    state: ps.Semantics
    output: ps.Semantics
    store: ps.LocalStore | ps.RemoteStore = LOCALLY
    sink: str = ""

    def __str__(self) -> str:
        store = f"-{self.store.write_mode.value}" if isinstance(self.store, ps.RemoteStore) else ""
        sink = "-sink" if self.sink else ""
        return f"{self.kind}{store}{sink}-{self.state.name.lower()}-{self.output.name.lower()}"

    @property
    def writes_outputs(self) -> bool:
        """Whether it writes to a category. In append mode, a store never returns a result."""
        return self.store != ps.RemoteStore(ps.WriteMode.APPEND)

    def make(self, prefix: str, checkpoint: ps.CheckpointInterval | None = None) -> type[ps.Processor]:
        """Return the processor; the names of its categories start with `prefix`."""
        kind = KINDS[self.kind]
        inputs = tuple(_category(f"{prefix}.{name}", record, kind) for name, record in kind.reads.items())
        late = {} if kind.late is None else {"late": _category(f"{prefix}.{kind.late}", Event, kind)}
        declared = {
            **_reading(kind.base, inputs),
            **late,
            "name": f"{prefix}.{kind.name}",
            "writes": self._output(f"{prefix}.{kind.writes}", kind),
            "state_semantics": self.state,
            "output_semantics": self.output,
            "checkpoint": checkpoint or ps.CheckpointInterval(),
            **({"store": self.store} if issubclass(kind.base, ps.Aggregator) else {}),
        }
        return type("Subject", (kind.base,), declared)

    def _output(self, name: str, kind: Kind) -> ps.Category[ps.Record] | ps.sinks.Sink | tuple[()]:
        if self.sink == MEMORY:
            return ps.sinks.MemorySink(kind.written, name)
        if self.sink:
            return ps.sinks.PostgresSink(table_of(name), kind.written, at=self.sink)
        return _category(name, kind.written, kind, kind.key) if self.writes_outputs else ()


def table_of(name: str) -> str:
    """Return the name of the table of a subject's output."""
    return name.replace(".", "_").replace("-", "_").lower()


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
PIPES = [Subject("pipe", output, output) for output in (LEAST, MOST, EXACT)]
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
"""Subjects with event time. They need not have all pairs, since their steps are the steps of "stateful" and "aggregator", which have all.
Their pairs cover a crash that repeats outputs, a crash that rolls back, and another row. Kinds whose order of input varies, with several
inputs or upstream watermarks, have all pairs with exact state that they support."""

TWICE = [Subject(kind, EXACT, EXACT) for kind in ("windowed", "sliding", "clock", "forgetting_unsure")]
"""Kinds with the steps of other kinds. They have all rows and crashes in memory; on Kafka, each has two crashes."""
MEMORY = "memory"
SINKS = [
    *(Subject("stateless", output, output, sink=MEMORY) for output in (LEAST, MOST, EXACT)),
    *(Subject(kind, *pair, sink=MEMORY) for kind in ("stateful", "aggregator") for pair in PAIRS),
    *(Subject(kind, EXACT, EXACT, sink=MEMORY) for kind in ("timers", "closing", "sessions", "ordered", "flow")),
    *(Subject(kind, EXACT, MOST, sink=MEMORY) for kind in ("merging", "random")),
    *(Subject("aggregator", *pair, ps.RemoteStore(), sink=MEMORY) for pair in PAIRS if pair[1] is not EXACT),
]
"""Subjects whose outputs are rows."""
LOCAL = [Subject(kind, *pair) for kind, pair in product(("stateful", "aggregator"), PAIRS)]


def events(count: int, *, start: int = 0) -> list[Event]:
    """Return numbered events of a few keys, one per minute, out of order; a key's events have small and large gaps."""
    numbers = (place ^ (DISORDER - 1) for place in range(start, start + count))
    return [Event(f"k{(n * n // 11 + n // 4) % KEYS}", n * MINUTE_MS, n) for n in numbers]


def complete_ms(count: int) -> int:
    """Return the watermark after the first `count` events: no later event is earlier."""
    return count // DISORDER * DISORDER * MINUTE_MS
