"""The operator of an aggregator over session windows.

    event --> merges with the open sessions of its key that overlap its window, or opens a new session
    low watermark passes the end of a session --> written, and removed

A late event is accepted if it overlaps an open session. Otherwise it is dropped as late, because it may belong to a session that was
already written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from ..declare import Aggregator, AnyCategory, Category, ErrorPolicy
from ..errors import USER_CODE_ERRORS
from ..keyed_state import STATE_CACHE, Changes, SizeEstimate, StateReader, key_layout
from ..time import OrderedTime, Session, ShardTime, TimerSchedule, Window
from .aggregator import encoded_partial, expect_saveable, partial_decoder, results_of
from .base import CheckpointResult, Rejected, StepResult, due_before, late_among, time_of

_ENTRY = b"\x01"
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[int, int, bytes]]).decode


class OpenSession(NamedTuple):
    """A session that still accepts events.

    Args:
        start: its first event time.
        last: its last event time.
        partial: the partial of its events.
    """

    start: int
    last: int
    partial: Any


class SessionOperator:
    """Combines the events of each session. Unsaved sessions stay in memory, above the saved state.

    Args:
        processor: an aggregator with a `Session` window.
        saved: the shard's state.
        time: the shard's event time. Default: as the processor declares.
    """

    def __init__(self, processor: Aggregator, saved: StateReader, time: ShardTime | OrderedTime | None = None) -> None:
        self._processor = processor
        self._saved = saved
        self._gap_ms = processor.window.gap_ms if isinstance(processor.window, Session) else 0
        self._writes_dead_letters = processor.on_error is ErrorPolicy.DEAD_LETTER
        self._open: dict[str, list[OpenSession]] = {}
        self._changed: set[str] = set()
        self._sizes = SizeEstimate()
        self._ends = TimerSchedule(key_layout.EVENT_TIMERS, saved)
        self.time = time or time_of(processor, saved)

    def feed(self, category: AnyCategory, events: Sequence[Any], *, stop_at_error: bool) -> StepResult:
        """Add the events of one bucket to their sessions, in order. Before each event, write the sessions that are complete."""
        keys, times = category.keys_of(events), category.event_times_of(events)
        self._load(keys)
        mark, before_ms = self.time.mark(category.name), self.time.low_ms
        lows = self.time.observe(category.name, times).tolist()
        outputs: list[Any] = []
        rejected: list[Rejected] = []
        too_late, low_ms = 0, before_ms
        for at, (key, time, event) in enumerate(zip(keys, times, events, strict=True)):
            outputs += self._complete(due_before(time, lows[at], low_ms))
            try:
                accepted = self._add(key, time, event, low_ms)
            except USER_CODE_ERRORS as error:
                rejected.append(Rejected(at, error))
                if stop_at_error:
                    self.time.go_back(category.name, mark, times[:at])
                    return StepResult(outputs, rejected, late_among(times[:at], lows[:at], before_ms), too_late)
            else:
                too_late += not accepted
                outputs += [event] if not accepted and isinstance(self._processor.late, Category) else []
            low_ms = lows[at]
        outputs += self._complete(low_ms)
        return StepResult(outputs, rejected, late_among(times, lows, before_ms), too_late)

    def _add(self, key: str, time: int, event: Any, low_ms: int) -> bool:
        """Add an event to a session of its key; return False for a late event without an open session."""
        overlapping = [
            session for session in self._open[key] if session.start - self._gap_ms < time < session.last + self._gap_ms
        ]
        if time < low_ms and not overlapping:
            return False
        observation = self._processor.observe(event)
        if observation is None:
            return True
        monoid = self._processor.monoid
        if self._writes_dead_letters:
            expect_saveable(monoid, observation)
        new = OpenSession(time, time, monoid.lift(observation))
        *earlier, merged = sorted((*overlapping, new), key=attrgetter("start"))
        for session in reversed(earlier):
            partial = monoid.combine(session.partial, merged.partial)
            merged = OpenSession(session.start, max(session.last, merged.last), partial)
        for session in overlapping:
            self._ends.remove(session.last + self._gap_ms, _identifier(key, session))
        self._open[key] = [*(session for session in self._open[key] if session not in overlapping), merged]
        self._ends.add(merged.last + self._gap_ms, _identifier(key, merged), _ENTRY)
        self._changed.add(key)
        return True

    def _complete(self, low_ms: int) -> list[Any]:
        """Return the results of the sessions up to a low watermark, in order of their ends, and remove the sessions."""
        outputs: list[Any] = []
        while (entry := self._ends.pop(low_ms)) is not None:
            key, start = key_layout.decode_pair(entry.identifier)
            if key not in self._open:
                self._load([key, *(key_layout.decode_pair(identifier)[0] for identifier in self._ends.upcoming())])
            [ended] = [session for session in self._open[key] if session.start == int(start)]
            self._open[key] = [session for session in self._open[key] if session is not ended]
            self._changed.add(key)
            outputs += results_of(self._processor, key, Window(ended.start, entry.at), ended.partial)
        return outputs

    def _load(self, keys: Iterable[str]) -> None:
        missing = [key for key in dict.fromkeys(keys) if key not in self._open]
        found = self._saved.fetch([key.encode() for key in missing])
        self._sizes.add(found)
        for key, saved in zip(missing, found, strict=True):
            self._open[key] = decode_sessions(self._processor, saved)

    def advance(self, upstream: Mapping[str, int], idle: Mapping[str, int]) -> StepResult:
        """Write the sessions that upstream watermarks and idle inputs complete."""
        return StepResult(self._complete(self.time.advance(upstream, idle)), [])

    def tick(self, now_ms: int) -> StepResult:  # noqa: ARG002 - the protocol
        """Return nothing: sessions end in event time."""
        return StepResult([], [])

    def drain(self) -> CheckpointResult:
        """Return the changes since the last drain."""
        changes: Changes = {key.encode(): self._encoded(key, self._open[key]) for key in self._changed}
        self._changed.clear()
        self._sizes.add(changes.values())
        if STATE_CACHE.must_forget(self, self._sizes.of(len(self._open))):
            self._open.clear()
        return CheckpointResult([], changes | self._ends.drain() | self.time.drain())

    def _encoded(self, key: str, sessions: Sequence[OpenSession]) -> bytes | None:
        if not sessions:
            return None
        return _encode(
            [
                (
                    session.start,
                    session.last,
                    encoded_partial(self._processor, key, self._window(session), session.partial),
                )
                for session in sessions
            ]
        )

    def _window(self, session: OpenSession) -> Window:
        return Window(session.start, session.last + self._gap_ms)


def decode_sessions(processor: Aggregator, saved: bytes | None) -> list[OpenSession]:
    """Return the open sessions of a key from its saved value."""
    decode = partial_decoder(processor)
    return (
        [] if saved is None else [OpenSession(start, last, decode(partial)) for start, last, partial in _decode(saved)]
    )


def _identifier(key: str, session: OpenSession) -> bytes:
    return key_layout.encode_pair(key, str(session.start))
