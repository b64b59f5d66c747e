"""The state of a processor at a past moment: the newest backup from before it, updated by the events between."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, cast

from ....processors import ending
from ....processors.declare import Processor
from ....processors.time import Window
from ....state import ShardState
from ....state.backups import Inspection, StateEntry, state_inspector
from ....state.local import RocksShardState
from ....transport import Bus
from ...kernel import open_processor
from .event_source import EventSource, PastRange
from .initial_state import Start
from .past_watermarks import past_watermarks
from .replay import Replay, ReplayCallbacks
from .shard_replay import ReplayCounts


class PastState(NamedTuple):
    """The state of a shard at a past moment.

    Args:
        number: its bucket number.
        entries: its values.
        replayed: the number of events that were replayed.
    """

    number: int
    entries: list[StateEntry]
    replayed: int


@dataclass(frozen=True)
class StateQuery:
    """A query for past states.

    Args:
        processor: the processor with the state.
        bus: the bus with its upstream watermarks.
        source: returns the source of its events.
        start: the states to begin with.
        numbers: the bucket numbers.
        key: this key only; None for all.
        report: receives the origin of each state, as text.
    """

    processor: type[Processor]
    bus: Bus
    source: Callable[[Processor], EventSource]
    start: Start
    numbers: Sequence[int]
    key: str | None
    report: Callable[[str], None] = lambda _: None

    def at(self, moment: datetime, limit: int = sys.maxsize) -> list[PastState]:
        """Return the states after all events that arrived before a moment. They are temporary, and nothing else is written.

        Args:
            moment: the moment.
            limit: the greatest number of values of a shard.

        Raises:
            ReplayRefused: the states at that moment cannot be computed from what is retained.
            StateError: the processor has no local state.
        """
        inspect = state_inspector(self.processor, self.key, limit)
        with (
            ending(open_processor(self.processor, self.bus)) as running,
            past_watermarks(running, self.bus) as watermarks,
        ):
            span = PastRange(moment, moment)
            replay = Replay(running, self.source(running), span, self.start, self.numbers, watermarks)
            return [self._state_of(replay, number, inspect) for number in self.numbers]

    def _state_of(self, replay: Replay, number: int, inspect: Callable[[RocksShardState], Inspection]) -> PastState:
        entries: list[StateEntry] = []

        def finished(state: ShardState | None) -> None:
            entries.extend(inspect(cast("RocksShardState", state)).entries)  # the inspector refuses other processors

        counts = ReplayCounts()
        [shard] = [shard for shard in replay.shards() if shard.number == number]
        with closing(shard.play(counts, ReplayCallbacks(tell=self.report, finished=finished))) as batches:
            for _ in batches:
                pass  # the outputs belong to earlier events
        return PastState(number, entries, counts.warmed_up)


class StateDifference(NamedTuple):
    """A value that differs between two moments.

    Args:
        key: its key.
        window: its window; None for a stateful processor.
        before: the earlier value as JSON; None without one.
        after: the later value.
    """

    key: str
    window: Window | None
    before: object
    after: object


def differences(before: Sequence[PastState], after: Sequence[PastState]) -> list[StateDifference]:
    """Return the values that differ, by key and window."""
    earlier, later = _by_place(before), _by_place(after)
    places = sorted(earlier.keys() | later.keys(), key=lambda place: (place[0], place[1] or (0, 0)))
    return [
        StateDifference(*place, earlier.get(place), later.get(place))
        for place in places
        if earlier.get(place) != later.get(place)
    ]


def _by_place(states: Sequence[PastState]) -> dict[tuple[str, Window | None], object]:
    return {(entry.key, entry.window): entry.value for state in states for entry in state.entries}
