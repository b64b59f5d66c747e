"""The operator of an ordered stateful processor: it buffers events until the low watermark passes them.

    event --buffered in the state--> low watermark passes it --> delivered in order of event time, with timers between

The order of delivery depends on the events alone, not on their order of arrival. The encoded bytes order events of one time. The
processor's watermark is the event time of the last delivered event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import groupby
from typing import Any

import msgspec

from ..declare import AnyCategory, Category, RowDeletion, RowUpdate, Stateful, plan_of
from ..errors import ProcessorFailed, UserCodeError
from ..keyed_state import StateReader, key_layout
from ..models import decode_model, encode_model
from ..time import OrderedTime, ScheduledEntry, Timer, TimerSchedule
from ..user_code import error_in_words
from .base import CheckpointResult, StepResult, late_among, time_of
from .stateful import StatefulOperator

DELIVERY_BATCH = 1_000
"""The number of buffered entries per delivery."""


def _as_key(event: Any) -> Any:
    """Encode a tombstone as its key, and an incomplete row as an extension: no record is either."""
    if isinstance(event, RowUpdate):
        return msgspec.msgpack.Ext(_UPDATE, _encode((event.unchanged, event.record)))
    return event.deleted_key if isinstance(event, RowDeletion) else encode_model(event)


_encode = msgspec.msgpack.Encoder(order="deterministic", enc_hook=_as_key).encode
_decode_extension = msgspec.msgpack.Decoder(msgspec.msgpack.Ext).decode
_decode_update = msgspec.msgpack.Decoder(tuple[tuple[str, ...], msgspec.Raw]).decode
_LAST = b"\xff" * 4
_UPDATE = 1
"""The type of an incomplete row among the extensions of MessagePack."""
_decode_key = msgspec.msgpack.Decoder(str).decode
_decode = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw]).decode


class OrderedDeliveryOperator:
    """Buffers events, and feeds them to a stateful operator in order of event time.

    Args:
        processor: an ordered processor.
        saved: the shard's state.
        number: the number of the shard.
    """

    def __init__(self, processor: Stateful, saved: StateReader, number: int) -> None:
        self._writes_late = isinstance(processor.late, Category)
        self._name = type(processor).__name__
        self._inputs = plan_of(processor).inputs
        self._numbers = {category.name: number for number, category in enumerate(self._inputs)}
        self._decoders = [
            msgspec.msgpack.Decoder(category.record, dec_hook=decode_model).decode for category in self._inputs
        ]
        self._buffer = TimerSchedule(key_layout.BUFFERED_EVENTS, saved)
        self.time = time_of(processor, saved)
        self._operator = StatefulOperator(processor, saved, OrderedTime(self.time.low_ms), number)

    def feed(self, category: AnyCategory, events: Sequence[Any], *, stop_at_error: bool) -> StepResult:  # noqa: ARG002 - events raise at delivery
        """Buffer the events of one bucket, and deliver the events that the low watermark has passed.

        Raises:
            ProcessorFailed: the processor raised for a delivered event.
        """
        times, before_ms = category.event_times_of(events), self.time.low_ms
        lows = self.time.observe(category.name, times).tolist()
        outputs: list[Any] = []
        timed = list(zip(times, events, strict=True))
        late = 0
        if late_among(times, lows, before_ms):
            checked = [(time < low, time, event) for (time, event), low in zip(timed, (before_ms, *lows), strict=False)]
            timed = [(time, event) for is_late, time, event in checked if not is_late]
            late = len(checked) - len(timed)
            outputs += [event for is_late, _, event in checked if is_late and self._writes_late]
        self._store(category, timed)
        return StepResult(outputs + self._deliver(self.time.low_ms), [], late, late)

    def _store(self, category: AnyCategory, timed: Iterable[tuple[int, Any]]) -> None:
        """Add events to the buffer. Equal events share an entry with a count."""
        counts = Counter((time, _encode(event)) for time, event in timed)
        number = bytes([self._numbers[category.name]])
        entries = [(time, number + _order(encoded)) for time, encoded in counts]
        for entry, ((_, encoded), count), saved in zip(
            entries, counts.items(), self._buffer.values(entries), strict=True
        ):
            before = 0 if saved is None else _decode(saved)[0]
            self._buffer.add(*entry, _encode((before + count, msgspec.Raw(encoded))))

    def _deliver(self, low_ms: int) -> list[Any]:
        """Feed the buffered events before a low watermark to the operator, then fire its timers up to the watermark."""
        outputs: list[Any] = []
        while entries := self._take(low_ms):
            for number, run in groupby(entries, lambda entry: entry.identifier[0]):
                events = [event for entry in run for event in self._events(number, entry)]
                result = self._operator.feed(self._inputs[number], events, stop_at_error=True)
                outputs += result.outputs
                if result.rejected:
                    raise self._failed(events[result.rejected[0].at], result.rejected[0].error)
        return [*outputs, *self._operator.advance(dict.fromkeys(self._numbers, low_ms), {}).outputs]

    def _take(self, low_ms: int) -> list[ScheduledEntry]:
        entries: list[ScheduledEntry] = []
        while len(entries) < DELIVERY_BATCH and (entry := self._buffer.pop(low_ms - 1)) is not None:
            entries.append(entry)
        return entries

    def _events(self, number: int, entry: ScheduledEntry) -> list[Any]:
        count, encoded = _decode(entry.value)
        if _is_text(encoded):
            return [RowDeletion(self._inputs[number], _decode_key(encoded), entry.at)] * count
        if _is_extension(encoded):
            unchanged, record = _decode_update(_decode_extension(encoded).data)
            return [RowUpdate(self._decoders[number](record), unchanged)] * count
        return [self._decoders[number](encoded) for _ in range(count)]  # not shared: a processor may change its event

    def _failed(self, event: Any, error: UserCodeError) -> ProcessorFailed:
        return ProcessorFailed(
            f"{self._name} raised {error_in_words(error)}, for the buffered event {event!r}. Nothing of this checkpoint was "
            f"saved, and the event stays in the buffer. Correct {self._name} and start it again."
        )

    def advance(self, upstream: Mapping[str, int], idle: Mapping[str, int]) -> StepResult:
        """Deliver the events that upstream watermarks and idle inputs allow."""
        return StepResult(self._deliver(self.time.advance(upstream, idle)), [])

    def timers_of(self, key: str) -> list[Timer]:
        """Return the timers of a key, by clock and tag."""
        return self._operator.timers_of(key)

    def tick(self, now_ms: int) -> StepResult:
        """Fire the wall-clock timers and the schedules that are due."""
        return self._operator.tick(now_ms)

    def drain(self) -> CheckpointResult:
        """Return the changes of the states, the timers and the buffer since the last drain."""
        return CheckpointResult([], self._operator.drain().changes | self._buffer.drain() | self.time.drain())


def _is_text(encoded: msgspec.Raw) -> bool:
    """Return whether a MessagePack value is a string."""
    first = memoryview(encoded)[0]
    return 0xA0 <= first <= 0xBF or 0xD9 <= first <= 0xDB


def _is_extension(encoded: msgspec.Raw) -> bool:
    """Return whether a MessagePack value is an extension. A record is a map or an array."""
    first = memoryview(encoded)[0]
    return 0xC7 <= first <= 0xC9 or 0xD4 <= first <= 0xD8


def _order(encoded: bytes) -> bytes:
    """Return the order of a value among those of one time: incomplete rows are last, since they need an earlier row."""
    return _LAST + _hash(encoded) if _is_extension(msgspec.Raw(encoded)) else _hash(encoded)


def _hash(encoded: bytes) -> bytes:
    return sha256(encoded).digest()


def tie_breaker(event: Any) -> bytes:
    """Return the sort key of an event among events of the same time and input. It depends on the event alone."""
    return _hash(_encode(event))
