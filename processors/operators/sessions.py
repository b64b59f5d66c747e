"""The step of an aggregator over sessions: events of a key that follow closely on one another, combined until none follows any more.

    event --> joins the sessions of its key that it touches, which become one, or begins one
    low watermark passes the end of a session --> written, and removed

A late event is taken by a session that is still open; that it would have touched one that is gone cannot be known, so otherwise it
comes too late.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ..declare.aggregator import Aggregator
from ..declare.categories import AnyCategory, Category
from ..declare.processor import ErrorPolicy
from ..keyed_state import key_layout
from ..keyed_state.changes import Changes, StateReader
from ..time.shard_time import OrderedTime, ShardTime
from ..time.timer_schedule import TimerSchedule
from ..time.windows import Session, Window
from .aggregator import encoded_partial, expect_saveable, results_of
from .base import CACHED_KEYS, CheckpointResult, Rejected, StepResult, late_among, time_of

_ENTRY = b"\x01"
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[int, int, bytes]]).decode


class OpenSession(NamedTuple):
    """A session that may still grow.

    Args:
        start: its first event time.
        last: its last event time.
        partial: what its events come to.
    """

    start: int
    last: int
    partial: Any


class SessionOperator:
    """Combines the events of sessions, over an overlay of what is not saved yet.

    Args:
        processor: which; its window is a `Session`.
        saved: the shard's state.
        time: follows its event time; by default as the processor declares.
    """

    def __init__(self, processor: Aggregator, saved: StateReader, time: ShardTime | OrderedTime | None = None) -> None:
        self._processor = processor
        self._saved = saved
        self._gap_ms = processor.window.gap_ms if isinstance(processor.window, Session) else 0
        self._writes_dead_letters = processor.on_error is ErrorPolicy.DEAD_LETTER
        self._open: dict[str, list[OpenSession]] = {}
        self._changed: set[str] = set()
        self._ends = TimerSchedule(key_layout.EVENT_TIMERS, saved)
        self.time = time or time_of(processor, saved)

    def feed(self, category: AnyCategory, events: Sequence[Any], *, stop_at_error: bool) -> StepResult:
        """Take the events of one bucket, in order; before each, write the sessions that are complete by then."""
        keys, times = category.keys_of(events), category.event_times_of(events)
        self._load(keys)
        mark, before_ms = self.time.mark(category.name), self.time.low_ms
        lows = self.time.observe(category.name, times)
        outputs: list[Any] = []
        rejected: list[Rejected] = []
        too_late, low_ms = 0, before_ms
        for at, (key, time, event) in enumerate(zip(keys, times, events, strict=True)):
            outputs += self._complete(lows[at])
            try:
                taken = self._take(key, time, event, low_ms)
            except Exception as error:  # noqa: BLE001 - whatever a user's code raises is the event's fate, not ours
                rejected.append(Rejected(at, error))
                if stop_at_error:
                    self.time.go_back(category.name, mark, times[:at])
                    return StepResult(outputs, rejected, late_among(times[:at], lows[:at], before_ms), too_late)
            else:
                too_late += not taken
                outputs += [event] if not taken and isinstance(self._processor.late, Category) else []
            low_ms = lows[at]
        return StepResult(outputs, rejected, late_among(times, lows, before_ms), too_late)

    def _take(self, key: str, time: int, event: Any, low_ms: int) -> bool:
        """Put an event into a session of its key; return False where it comes too late."""
        touched = [one for one in self._open[key] if one.start - self._gap_ms < time < one.last + self._gap_ms]
        if time < low_ms and not touched:
            return False
        observation = self._processor.observe(event)
        if observation is None:
            return True
        monoid = self._processor.monoid
        if self._writes_dead_letters:
            expect_saveable(monoid, observation)
        *earlier, later = sorted((*touched, OpenSession(time, time, monoid.lift(observation))), key=_by_start)
        for one in reversed(earlier):
            later = OpenSession(one.start, max(one.last, later.last), monoid.combine(one.partial, later.partial))
        for one in touched:
            self._ends.remove(one.last + self._gap_ms, _place(key, one))
        self._open[key] = [*(one for one in self._open[key] if one not in touched), later]
        self._ends.add(later.last + self._gap_ms, _place(key, later), _ENTRY)
        self._changed.add(key)
        return True

    def _complete(self, low_ms: int) -> list[Any]:
        """Write and remove the sessions that a low watermark has passed, in order of their ends."""
        outputs: list[Any] = []
        while (entry := self._ends.pop(low_ms)) is not None:
            key, start = key_layout.decode_pair(entry.what)
            if key not in self._open:
                self._load([key, *(key_layout.decode_pair(what)[0] for what in self._ends.soon())])
            [ended] = [one for one in self._open[key] if one.start == int(start)]
            self._open[key] = [one for one in self._open[key] if one is not ended]
            self._changed.add(key)
            outputs += results_of(self._processor, key, Window(ended.start, entry.at), ended.partial)
        return outputs

    def _load(self, keys: Iterable[str]) -> None:
        missing = [key for key in dict.fromkeys(keys) if key not in self._open]
        for key, saved in zip(missing, self._saved.fetch([key.encode() for key in missing]), strict=True):
            self._open[key] = decode_sessions(self._processor, saved)

    def advance(self, upstream: Mapping[str, int], idle: Collection[str]) -> StepResult:
        """Write the sessions that what is known from elsewhere of the inputs completes."""
        return StepResult(self._complete(self.time.advance(upstream, idle)), [])

    def tick(self, now_ms: int) -> StepResult:  # noqa: ARG002 - the seam
        """Do nothing: sessions end in event time."""
        return StepResult([], [])

    def drain(self) -> CheckpointResult:
        """Hand over what changed since the last drain."""
        changes: Changes = {key.encode(): self._encoded(key, self._open[key]) for key in self._changed}
        self._changed.clear()
        if len(self._open) > CACHED_KEYS:
            self._open.clear()
        return CheckpointResult([], changes | self._ends.drain() | self.time.drain())

    def _encoded(self, key: str, sessions: Sequence[OpenSession]) -> bytes | None:
        if not sessions:
            return None
        return _encode(
            [
                (one.start, one.last, encoded_partial(self._processor, key, self._window(one), one.partial))
                for one in sessions
            ]
        )

    def _window(self, one: OpenSession) -> Window:
        return Window(one.start, one.last + self._gap_ms)


def decode_sessions(processor: Aggregator, saved: bytes | None) -> list[OpenSession]:
    """Return the open sessions of a key, as they were saved."""
    decode = processor.monoid.decode
    return (
        [] if saved is None else [OpenSession(start, last, decode(partial)) for start, last, partial in _decode(saved)]
    )


def _by_start(one: OpenSession) -> int:
    return one.start


def _place(key: str, one: OpenSession) -> bytes:
    return key_layout.encode_pair(key, str(one.start))
