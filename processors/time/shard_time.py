"""The event time of a shard: the minimum of its inputs' watermarks.

Source: Akidau et al., "MillWheel", 2013, section 4.5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from ..keyed_state import Changes, EmptyState, StateReader, key_layout
from ..wording import counted
from .in_flight import InFlight
from .saved_times import SavedTimes, progress_of, text_of
from .watermarks import FOREVER_MS, NEVER_MS, BucketProgress, BucketTime, Confidence, Times, Watermark

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(BucketProgress).decode
_NO_EVENTS = BucketProgress()
_LOW = key_layout.EVENT_TIMES
"""The key of the low watermark. The key of an input's event time is this prefix and the category's name."""


class TimePoint(NamedTuple):
    """The event times of an input and its shard at some point, for `go_back`."""

    progress: BucketProgress
    low_ms: int


class WatermarkHolder(NamedTuple):
    """The input that holds back a shard's low watermark.

    Args:
        name: the name of the category.
        why: what its watermark waits for, in words; empty if it waits only for the next events.
    """

    name: str
    why: str


class CommittedTimes(EmptyState):
    """The event times of a shard without state, which its group has committed, in the form of a state.

    Args:
        times: those of its last checkpoint.
    """

    def __init__(self, times: SavedTimes) -> None:
        self._times = {_key_of_input(name): _encode(progress_of(text)) for name, text in times.inputs.items()}
        self._times[_LOW] = key_layout.encode_time(times.low_ms)

    def fetch(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the event times for their keys, and None for each other key."""
        return [self._times.get(key) for key in keys]


class ShardTime:
    """Tracks the event time of one shard's inputs. The low watermark never decreases.

    Args:
        strategies: estimate the watermarks of the inputs, by the categories' names.
        saved: the shard's saved state.
    """

    def __init__(self, strategies: Mapping[str, Watermark], saved: StateReader) -> None:
        low, *found = saved.fetch([_LOW, *map(_key_of_input, strategies)])
        self._strategies = strategies
        self._inputs = {
            name: BucketTime(strategy, BucketProgress() if progress is None else _decode(progress))
            for (name, strategy), progress in zip(strategies.items(), found, strict=True)
        }
        self._idle: Mapping[str, int] = {}
        self._changed_inputs: set[str] = set()
        self.low_ms = NEVER_MS if low is None else key_layout.decode_time(low)
        self.in_flight = InFlight()
        """The events that wait for a retry: the low watermark does not pass them."""

    @property
    def progress(self) -> dict[str, BucketProgress]:
        """The event time of each input, to save."""
        return {name: bucket.progress for name, bucket in self._inputs.items()}

    def saved(self) -> SavedTimes:
        """Return the event times to save where there is no state."""
        return SavedTimes(
            self.low_ms, {name: text_of(progress) for name, progress in self.progress.items() if progress != _NO_EVENTS}
        )

    @property
    def holder(self) -> WatermarkHolder | None:
        """The input with the lowest watermark among inputs that are not idle; None if all are idle."""
        if self.in_flight.earliest_ms < FOREVER_MS and self.in_flight.earliest_ms <= self._minimum(self._inputs):
            count = self.in_flight.events
            waits = f"the retry of {counted(count, 'event')}" if count else "the retries of an earlier owner to be read"
            return WatermarkHolder(next(iter(self._inputs)), f"waits for {waits}")
        name = min(self._inputs, key=self._reached)
        if name not in self._idle:
            return WatermarkHolder(name, self._inputs[name].waits_for)
        return WatermarkHolder(name, "") if self._reached(name) < self.minimum_without(self._idle) else None

    @property
    def newest_ms(self) -> int:
        """The newest event time of all inputs (milliseconds since 1970, UTC); `NEVER_MS` without events."""
        return max(bucket.newest_ms for bucket in self._inputs.values())

    def minimum_of(self, inputs: Collection[str]) -> int:
        """Return the lowest watermark of some inputs, and of events that wait for a retry; `FOREVER_MS` if all of the inputs are idle."""
        is_idle = all(name in self._idle for name in inputs)
        return min(FOREVER_MS if is_idle else self._minimum(inputs), self.in_flight.earliest_ms)

    def minimum_without(self, silent: Collection[str]) -> int:
        """Return the lowest watermark of the inputs that are not silent; if all are, the greatest of all."""
        others = [bucket.watermark_ms for name, bucket in self._inputs.items() if name not in silent]
        return min(others) if others else max(bucket.watermark_ms for bucket in self._inputs.values())

    def observe(self, category: str, times: Sequence[int] | Times) -> Times:
        """Add the event times of an input's next events; return the shard's low watermark after each event."""
        if not len(times):
            return np.empty(0, np.int64)
        if category not in self._inputs:  # its events were observed when they were read first
            return np.full(len(times), self.low_ms)
        self._idle = {name: passed_ms for name, passed_ms in self._idle.items() if name != category}
        self._changed_inputs.add(category)
        watermarks, floor = self._inputs[category].observe(times), self.low_ms
        others = self._minimum(name for name in self._inputs if name != category)
        low = np.maximum(np.minimum(watermarks, min(others, self.in_flight.earliest_ms)), floor)
        self.low_ms = int(low[-1])
        return low

    def advance(self, upstream: Mapping[str, int], idle: Mapping[str, int]) -> int:
        """Apply upstream watermarks and idle inputs; return the low watermark.

        Args:
            upstream: the upstream watermark of each input that has one (milliseconds since 1970, UTC).
            idle: for each idle input, the event time up to which it does not hold back the low watermark; `FOREVER_MS` without a limit.
        """
        for name, watermark in upstream.items():
            if watermark > self._inputs[name].watermark_ms:
                self._inputs[name].watermark_ms = watermark
                self._changed_inputs.add(name)
        self._idle = idle
        low_ms = self._minimum(self._inputs)
        if low_ms == FOREVER_MS:  # all inputs are idle, without a limit
            low_ms = max(bucket.watermark_ms for bucket in self._inputs.values())
        low_ms = min(low_ms, self.in_flight.earliest_ms)
        if low_ms > self.low_ms:
            self.low_ms = low_ms
            self._changed_inputs.update(self._inputs)
        return self.low_ms

    def mark(self, category: str) -> TimePoint:
        """Return the event times of an input and the shard, for `go_back`."""
        if category not in self._inputs:
            return TimePoint(BucketProgress(), self.low_ms)
        return TimePoint(self._inputs[category].progress, self.low_ms)

    def go_back(self, category: str, mark: TimePoint, times: Sequence[int]) -> None:
        """Undo the observations of an input since a mark, except for these first event times."""
        self._inputs[category] = BucketTime(self._strategies[category], mark.progress)
        self.low_ms = mark.low_ms
        self.observe(category, times)

    def hold(self, time_ms: int) -> None:
        """Hold the low watermark from now on for an event that waits for a retry."""
        self.in_flight.add(time_ms)

    def held_from(self, at: int, time_ms: int, low_ms: int, lows: list[int]) -> list[int]:
        """Hold the low watermark from an event of the observed batch on; return the low watermark after each event.

        Args:
            at: the index of the event that waits for a retry.
            time_ms: its event time.
            low_ms: the low watermark before it.
            lows: the low watermark after each event, so far.
        """
        self.hold(time_ms)
        limit_ms = max(time_ms, low_ms)
        if lows[-1] > limit_ms:
            lows = [*lows[:at], *(min(low, limit_ms) for low in lows[at:])]
            self.low_ms = lows[-1]
        return lows

    def release(self, category: str, times: Iterable[int]) -> None:
        """Hold the low watermark no more for events that have returned from a retry category. Then hold it for events that fail again."""
        if category not in self._inputs:
            self.in_flight.remove(times)

    def drain(self) -> Changes:
        """Return the changes since the last drain."""
        changed, self._changed_inputs = self._changed_inputs, set()
        changes: Changes = {_key_of_input(name): _encode(self._inputs[name].progress) for name in sorted(changed)}
        return changes | {_LOW: key_layout.encode_time(self.low_ms)} if changed else changes

    def _minimum(self, names: Iterable[str]) -> int:
        """Return the event time that all of these inputs have reached; `FOREVER_MS` without inputs."""
        return min(map(self._reached, names), default=FOREVER_MS)

    def _reached(self, name: str) -> int:
        """Return the event time up to which an input does not hold back the others."""
        return max(self._inputs[name].watermark_ms, self._idle.get(name, NEVER_MS))


class UntrackedTime(ShardTime):
    """The event time of a shard whose results do not depend on it: it never advances, and has no cost."""

    def __init__(self) -> None:
        self.low_ms = NEVER_MS
        self.in_flight = InFlight()

    def hold(self, time_ms: int) -> None:
        """Do nothing."""

    def release(self, category: str, times: Iterable[int]) -> None:
        """Do nothing."""

    @property
    def holder(self) -> None:
        """None: no input holds it back."""
        return

    def observe(self, category: str, times: Sequence[int] | Times) -> Times:  # noqa: ARG002 - the protocol
        """Return `NEVER_MS` for each event: no event is late."""
        return np.full(len(times), NEVER_MS)

    def mark(self, category: str) -> TimePoint:  # noqa: ARG002 - the protocol
        """Return a mark at `NEVER_MS`."""
        return TimePoint(BucketProgress(), NEVER_MS)

    def go_back(self, category: str, mark: TimePoint, times: Sequence[int]) -> None:
        """Do nothing."""

    def drain(self) -> Changes:
        """Return no changes."""
        return {}


class OrderedTime:
    """The event time of a shard whose events arrive in order of event time: the time of the last event.

    Args:
        low_ms: the first low watermark (milliseconds since 1970, UTC).
    """

    def __init__(self, low_ms: int = NEVER_MS) -> None:
        self.low_ms = low_ms

    def observe(self, category: str, times: Sequence[int] | Times) -> Times:  # noqa: ARG002 - all inputs are one stream
        """Add the event times of the next events; return the low watermark after each event."""
        low = np.maximum(np.asarray(times, np.int64), self.low_ms)
        self.low_ms = int(low[-1]) if len(low) else self.low_ms
        return low

    def advance(self, upstream: Mapping[str, int], idle: Mapping[str, int]) -> int:  # noqa: ARG002 - no input is idle
        """Advance to the lowest upstream watermark; return the low watermark."""
        self.low_ms = max(self.low_ms, min(upstream.values()))
        return self.low_ms

    def mark(self, category: str) -> TimePoint:  # noqa: ARG002 - all inputs are one stream
        """Return the low watermark, for `go_back`."""
        return TimePoint(BucketProgress(), self.low_ms)

    def go_back(self, category: str, mark: TimePoint, times: Sequence[int]) -> None:
        """Undo the observations since a mark, except for these first event times."""
        self.low_ms = mark.low_ms
        self.observe(category, times)

    def held_from(self, at: int, time_ms: int, low_ms: int, lows: list[int]) -> list[int]:  # noqa: ARG002 - no event is retried
        """Return the low watermarks unchanged."""
        return lows

    def release(self, category: str, times: Iterable[int]) -> None:
        """Do nothing."""

    def drain(self) -> Changes:
        """Return no changes: the operator saves the low watermark itself."""
        return {}


def merge_shard_time(inputs: Sequence[str], states: Sequence[StateReader]) -> Changes:
    """Return the event time to save for a shard that receives keys of several shards: the minimum of theirs.

    Args:
        inputs: the names of the categories.
        states: the saved states of the shards.
    """
    found = {key: _saved_values(key, states) for key in (_LOW, *map(_key_of_input, inputs))}
    lows = [key_layout.decode_time(low) for low in found.pop(_LOW)]
    changes: Changes = {key: _encode(_merged(list(map(_decode, saved)))) for key, saved in found.items() if saved}
    return changes | ({_LOW: key_layout.encode_time(min(lows))} if lows else {})


def _saved_values(key: bytes, states: Sequence[StateReader]) -> list[bytes]:
    return [saved for state in states for saved in state.fetch([key]) if saved is not None]


def _merged(progresses: Sequence[BucketProgress]) -> BucketProgress:
    if len(progresses) == 1:
        return progresses[0]
    counts = sum((Counter(progress.counts) for progress in progresses), Counter[int]())
    bounds = [progress.bound_ms for progress in progresses if progress.bound_ms is not None]
    return BucketProgress(
        max(progress.events for progress in progresses),
        min(progress.newest_ms for progress in progresses),
        max(bounds, default=None),
        min(progress.watermark_ms for progress in progresses),
        dict(counts),
    )


def saved_watermarks(inputs: Sequence[str], saved: StateReader) -> dict[str, int]:
    """Return the saved watermark of each input that has one (milliseconds since 1970, UTC)."""
    progress = ShardTime(dict.fromkeys(inputs, Confidence()), saved).progress
    return {name: of_input.watermark_ms for name, of_input in progress.items() if of_input.watermark_ms != NEVER_MS}


def with_renamed_inputs(saved: StateReader, names: Mapping[str, str]) -> Changes:
    """Return the changes after which a state has the event times of renamed inputs.

    Args:
        saved: the state.
        names: the new names of its inputs by the old ones.
    """
    found = saved.fetch([_key_of_input(name) for name in names])
    times = {name: time for name, time in zip(names, found, strict=True) if time is not None}
    moved: Changes = {_key_of_input(name): None for name in times}
    return moved | {_key_of_input(names[name]): time for name, time in times.items()}


def _key_of_input(category: str) -> bytes:
    return key_layout.EVENT_TIMES + category.encode()
