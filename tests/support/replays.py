"""Replays on a memory bus, for tests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import penstock as ps
from penstock.ops.kernel import open_processor
from penstock.ops.look_back import BusEventSource, Empty, PastRange, Replay, ReplayCallbacks, Start, past_watermarks
from penstock.ops.look_back.replay.debugger import only
from penstock.ops.look_back.replay.event_source import EventSource
from penstock.ops.look_back.replay.outputs import Output, OutputCollector, line_of
from penstock.ops.look_back.replay.replay import one_by_one
from penstock.processors.declare import plan_of
from penstock.transport import Bus

ALL = PastRange(0)
EMPTY = Empty()
NO_CALLBACKS = ReplayCallbacks()


@dataclass(frozen=True)
class ReplayRequest:
    """The options of a replay.

    Args:
        processor: the processor to replay.
        bus: the bus with its events.
        span: the range.
        start: the initial state.
        key: the only key to replay; None for all.
        numbers: the buckets; None for all.
        past: creates the source of events; by default the bus.
        company: the callbacks of the replay.
        prepare: receives the opened processor.
    """

    processor: type[ps.Processor]
    bus: Bus
    span: PastRange = ALL
    start: Start = EMPTY
    key: str | None = None
    numbers: Sequence[int] | None = None
    past: Callable[[ps.Processor], EventSource] | None = None
    company: ReplayCallbacks = NO_CALLBACKS
    prepare: Callable[[ps.Processor], None] = lambda _: None

    def run(self) -> Replayed:
        """Run the replay."""
        outputs: list[Output] = []
        taking = OutputCollector(self.processor, self.key, [outputs.append], keeps=True)
        numbers = range(plan_of(self.processor).inputs[0].buckets) if self.numbers is None else self.numbers
        with (
            closing(open_processor(self.processor, self.bus)) as running,
            past_watermarks(running, self.bus) as upstream,
        ):
            past = BusEventSource(running, self.bus) if self.past is None else self.past(running)
            self.prepare(running)
            if self.key is not None:
                only(running, self.key)
            shards = Replay(running, past, self.span, self.start, list(numbers), upstream).shards()
            taking.all(one_by_one(shards, lambda shard: shard.play(taking.counts, self._company(taking))))
        return Replayed(outputs, taking)

    def _company(self, taking: OutputCollector) -> ReplayCallbacks:
        def watch(step: Any) -> None:
            taking.inputs.note(step)
            self.company.watch(step)

        return ReplayCallbacks(self.company.tell, watch, self.company.advance, self.company.playing)


@dataclass(frozen=True)
class Replayed:
    """The result of a replay."""

    outputs: list[Output]
    taking: OutputCollector

    @property
    def records(self) -> list[Any]:
        """The output records."""
        return [output.record for output in self.outputs]

    @property
    def lines(self) -> bytes:
        """The outputs in the format of a file."""
        return b"".join(map(line_of, self.outputs))


def at(time_ms: int) -> datetime:
    """Return a time of the steered clock."""
    return datetime.fromtimestamp(time_ms / 1000, UTC)


def by_key(category: ps.Category[Any], records: Iterable[Any]) -> dict[str, list[Any]]:
    """Return records by key, in order."""
    found = list(records)
    keyed = defaultdict(list)
    for key, record in zip(category.keys_of(found), found, strict=True):
        keyed[key].append(record)
    return dict(keyed)
