"""The replay of one shard: a shard driver with a scratch state, and the counts.

Only the scratch state is written. Events before the span only build state.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from ....processors import Deferred, Halted, counted
from ....processors.declare import Processor
from ....processors.operators import OrderedDeliveryOperator, StatefulOperator
from ....processors.shard import (
    Driven,
    Offsets,
    RejectedEvent,
    ResumePoint,
    Scratch,
    ShardDriver,
    SourceEvents,
    new_shard,
    time_slices,
)
from ....processors.time import Timer
from ....state import ShardState
from .errors import ReplayStopped
from .event_source import PastRange
from .past_watermarks import PastWatermarks

_LOG = logging.getLogger("penstock.replay")
LOGGED = 20
"""The number of rejected events that are logged one by one."""


class ReplayedBatch(NamedTuple):
    """Outputs of a shard.

    Args:
        number: the shard's bucket number.
        at_ms: when, by the replay's clock (milliseconds since 1970, UTC).
        outputs: records, in order.
        state_only: whether they belong to events before the span.
    """

    number: int
    at_ms: int
    outputs: list[Any]
    state_only: bool


class ShardReplayer:
    """Replays one shard. One thread.

    Args:
        processor: open.
        number: the shard's bucket number.
        state: its scratch state; None for a stateless processor.
        borders: by category, the offset at which the span begins.
        span: the span.
        counts: counts the work.
        upstream: the upstream watermarks of the inputs.
    """

    def __init__(
        self,
        processor: Processor,
        number: int,
        state: ShardState | None,
        *,
        borders: Offsets,
        span: PastRange,
        counts: ReplayCounts,
        upstream: PastWatermarks,
    ) -> None:
        self.number = number
        self._span = span
        self._counts = counts
        shard = new_shard(processor, number, state, ResumePoint(dict.fromkeys(borders, 0), borders))
        self._driver = ShardDriver(
            shard,
            Scratch(None if state is None else state.save, processor.checkpoint),
            watermarks=partial(upstream.at, number),
            begins_ms=span.since_ms,
        )

    @property
    def is_warm(self) -> bool:
        """Whether the span has begun."""
        return self._driver.is_live

    def play(self, stream: Iterable[SourceEvents], ends: Offsets) -> Iterator[ReplayedBatch]:
        """Process a stream to its end, and yield the outputs of each batch.

        Args:
            stream: the events of the shard's buckets, in the merge order of the inputs.
            ends: by category, the offset at which the stream ends.

        Raises:
            ReplayStopped: a worker would stop at an event.
        """
        for driven in self._driver.run(time_slices(stream), ends, self._span.until_ms):
            if driven.events is not None:
                self._count(driven, driven.events)
            if driven.outputs or driven.events is not None:
                yield ReplayedBatch(self.number, driven.now_ms, list(driven.outputs), driven.state_only)
            if driven.events is not None:
                self._report_rejected(driven.events, driven.rejected)

    def save(self) -> None:
        """Save all changes in the scratch state."""
        self._driver.save()

    def timers_of(self, key: str) -> list[Timer]:
        """Return the timers that a key has set."""
        operator = self._driver.shard.operator
        return operator.timers_of(key) if isinstance(operator, (StatefulOperator, OrderedDeliveryOperator)) else []

    def _is_before_span(self, events: SourceEvents) -> bool:
        return events.offsets[0] < self._driver.shard.state_only_until[events.category.name]

    def _count(self, driven: Driven, events: SourceEvents) -> None:
        if self._is_before_span(events):
            self._counts.warmed_up += len(events.offsets)
        else:
            self._counts.events += len(events.offsets)
        self._counts.late += driven.result.late
        self._counts.dropped += driven.result.dropped
        self._counts.unmatched += driven.result.unmatched

    def _report_rejected(self, events: SourceEvents, rejected: Iterable[RejectedEvent]) -> None:
        """Count the rejected events of the span, and stop at one where a worker would stop."""
        is_before = self._is_before_span(events)
        for event in rejected:
            place = f"{events.bucket} at offset {events.offsets[event.at]:,}"
            if isinstance(event.cause, Deferred | Halted):
                raise ReplayStopped(f"{place}: {event.reason} The replay ends there.") from event.cause
            self._counts.exceptions += event.cause is not None and not is_before
            if event.stops:
                raise ReplayStopped(
                    f"{place}: {event.reason}. A worker would stop there, so the replay ends. Inspect the event, its state and its timers with "
                    "`--debug`. To replay later events, start after it (`--from OFFSET --bucket NUMBER`)."
                ) from event.cause
            if event.retried_in:
                self._counts.retries += not is_before
            elif not is_before:
                self._log_dead_letter(place, event.reason)

    def _log_dead_letter(self, place: str, reason: str) -> None:
        self._counts.dead_letters += 1
        if self._counts.dead_letters <= LOGGED:
            _LOG.warning("%s would go to the dead letters: %s", place, reason)


@dataclass
class ReplayCounts:
    """The counts of a replay.

    Args:
        warmed_up: events before the span, which only build state.
        events: events of the span, rejected ones included.
        outputs: outputs of the span.
        late: events that arrived after the watermark had passed them.
        dropped: late events that were too late for every window.
        dead_letters: messages and events that a worker would write to the dead letters.
        exceptions: events for which the processor raised.
        unmatched: events that were skipped because a lookup found no row.
        retries: failed attempts after which an event would wait for the next one.
    """

    warmed_up: int = 0
    events: int = 0
    outputs: int = 0
    late: int = 0
    dropped: int = 0
    dead_letters: int = 0
    exceptions: int = 0
    unmatched: int = 0
    retries: int = 0

    def __str__(self) -> str:
        warm = f" ({self.warmed_up:,} before to warm up)" if self.warmed_up else ""
        text = (
            f"{counted(self.events, 'event')} read{warm}, {counted(self.outputs, 'output')}, {self.late:,} late, {self.dropped:,} dropped as too late, "
            f"{counted(self.dead_letters, 'dead letter')}, {counted(self.exceptions, 'exception')}"
        )
        if self.retries:
            text += f", {counted(self.retries, 'failed attempt')} to retry"
        return f"{text}, {self.unmatched:,} left out without a row" if self.unmatched else text
