"""The step of a stateful processor that asks for its events in order: they are held until the low watermark passes them.

    event --held in state--> low watermark passes it --> delivered, in order of event time, timers between

What the processor sees then depends on the events alone: not on the order in which they came, as long as they came in time, and of
those at one time not either, for their own bytes order them. Within, the watermark is that of the last event delivered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import groupby
from typing import Any

import msgspec

from ..declare.categories import AnyCategory, Category, Tombstone
from ..declare.stateful import Stateful
from ..errors import ProcessorFailed
from ..keyed_state import key_layout
from ..keyed_state.changes import StateReader
from ..time.shard_time import OrderedTime
from ..time.timer_schedule import ScheduledEntry, TimerSchedule
from ..time.timers import Timer
from .base import CheckpointResult, StepResult, late_among, time_of
from .stateful import StatefulOperator

DELIVERY_BATCH = 1_000
"""How many events are delivered in one go."""


def _as_key(event: Any) -> str:
    """Return how a row that is gone is held: as its key, a text, which no record is."""
    if not isinstance(event, Tombstone):
        raise TypeError(f"{type(event).__name__} cannot be held")
    return event.deleted_key


_encode = msgspec.msgpack.Encoder(order="deterministic", enc_hook=_as_key).encode
_decode_key = msgspec.msgpack.Decoder(str).decode
_decode = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw]).decode


class OrderedDeliveryOperator:
    """Holds events, and gives them to a core of their own in order."""

    def __init__(self, processor: Stateful, saved: StateReader) -> None:
        self._writes_late = isinstance(processor.late, Category)
        self._name = type(processor).__name__
        self._inputs = processor.inputs()
        self._numbers = {category.name: number for number, category in enumerate(self._inputs)}
        self._decoders = [msgspec.msgpack.Decoder(category.record).decode for category in self._inputs]
        self._buffer = TimerSchedule(key_layout.BUFFERED_EVENTS, saved)
        self.time = time_of(processor, saved)
        self._operator = StatefulOperator(processor, saved, OrderedTime(self.time.low_ms))

    def feed(self, category: AnyCategory, events: Sequence[Any], *, stop_at_error: bool) -> StepResult:  # noqa: ARG002 - what raises came before
        """Hold the events of one bucket, and deliver what may be."""
        times, before_ms = category.event_times_of(events), self.time.low_ms
        lows = self.time.observe(category.name, times)
        outputs: list[Any] = []
        timed = list(zip(times, events, strict=True))
        late = 0
        if late_among(times, lows, before_ms):
            judged = [(time < low, time, event) for (time, event), low in zip(timed, (before_ms, *lows), strict=False)]
            timed = [(time, event) for is_late, time, event in judged if not is_late]
            late = len(judged) - len(timed)
            outputs += [event for is_late, _, event in judged if is_late and self._writes_late]
        self._store(category, timed)
        return StepResult(outputs + self._deliver(self.time.low_ms), [], late, late)

    def _store(self, category: AnyCategory, timed: Iterable[tuple[int, Any]]) -> None:
        """Keep events; of equal ones, how many there are."""
        kept = Counter((time, _encode(event)) for time, event in timed)
        number = bytes([self._numbers[category.name]])
        places = [(time, number + _tie_of(encoded)) for time, encoded in kept]
        for place, ((_, encoded), times), held in zip(places, kept.items(), self._buffer.values(places), strict=True):
            before = 0 if held is None else _decode(held)[0]
            self._buffer.add(*place, _encode((before + times, msgspec.Raw(encoded))))

    def _deliver(self, low_ms: int) -> list[Any]:
        """Give the core what lies before a low watermark, and its timers up to there."""
        outputs: list[Any] = []
        while entries := self._take(low_ms):
            for number, run in groupby(entries, lambda entry: entry.what[0]):
                events = [event for entry in run for event in self._events(number, entry)]
                fed = self._operator.feed(self._inputs[number], events, stop_at_error=True)
                outputs += fed.outputs
                if fed.rejected:
                    raise self._refused(events[fed.rejected[0].at], fed.rejected[0].error)
        return outputs + self._operator.advance(dict.fromkeys(self._numbers, low_ms), ()).outputs

    def _take(self, low_ms: int) -> list[ScheduledEntry]:
        taken: list[ScheduledEntry] = []
        while len(taken) < DELIVERY_BATCH and (entry := self._buffer.pop(low_ms - 1)) is not None:
            taken.append(entry)
        return taken

    def _events(self, number: int, entry: ScheduledEntry) -> list[Any]:
        times, encoded = _decode(entry.value)
        if _is_text(encoded):
            return [Tombstone(self._inputs[number], _decode_key(encoded), entry.at)] * times
        return [self._decoders[number](encoded)] * times

    def _refused(self, event: Any, error: Exception) -> ProcessorFailed:
        return ProcessorFailed(
            f"{self._name} raised {type(error).__name__}: {error}, for {event!r}, when its turn had come. Nothing of this checkpoint was "
            f"saved, and the event is still held; mend {self._name} and start it again."
        )

    def advance(self, upstream: Mapping[str, int], idle: Collection[str]) -> StepResult:
        """Deliver what may be by what is known from elsewhere of the inputs."""
        return StepResult(self._deliver(self.time.advance(upstream, idle)), [])

    def timers_of(self, key: str) -> list[Timer]:
        """Return the timers that a key has set, by clock and tag."""
        return self._operator.timers_of(key)

    def tick(self, now_ms: int) -> StepResult:
        """Fire the timers that are due at a time of day."""
        return self._operator.tick(now_ms)

    def drain(self) -> CheckpointResult:
        """Hand over what changed, with the events that are held."""
        return CheckpointResult([], self._operator.drain().changes | self._buffer.drain() | self.time.drain())


def _is_text(encoded: msgspec.Raw) -> bool:
    """Tell whether MessagePack begins as a text does."""
    first = memoryview(encoded)[0]
    return 0xA0 <= first <= 0xBF or 0xD9 <= first <= 0xDB


def _tie_of(encoded: bytes) -> bytes:
    return sha256(encoded).digest()


def tie_breaker(event: Any) -> bytes:
    """Return what orders an event among those of one time and input: nothing but the event itself."""
    return _tie_of(_encode(event))
