"""What the live processor gave for the events of a span, as far as that can be told from its output categories.

A record does not say which event it comes of. So it is told from when it arrived, and from its key and its event time:

    arrived before the span began                                   not of the span
    same category, key and event time as one that the replay gave   of the span
    arrived in the span, or before the last of the former           of the span if its event time and its key are those of its events; or, where
                                                                    outputs have others than their events, at all
    the same as one that the replay gave while it warmed up         not of the span, whenever it arrived

Of updates, one that is the same as the replay's counts, since checkpoints fall where they fall; a window that went on after the span is left
out where none is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from math import inf

import msgspec

from ...processors.declare.categories import AnyCategory
from ...processors.declare.processor import Processor
from ...transport.bus import Bus
from ...transport.codecs.by_category import Codecs
from ...transport.messages import Bucket
from ...transport.offset_range import OffsetRange, read_offset_range
from .differences import OutputSlot, by_slot, updates_of
from .input_summary import InputSummary
from .outputs import OutputRecord, plain

_encode = msgspec.msgpack.Encoder(order="sorted").encode


@dataclass(frozen=True)
class LiveOutputs:
    """What was found.

    Args:
        told: what the live processor gave for the span.
        open: where windows went on after the span, so that neither side is to be compared.
    """

    told: Sequence[OutputRecord]
    open: frozenset[OutputSlot]


@dataclass(frozen=True)
class Replayed:
    """What a replay gave.

    Args:
        processor: the processor.
        ours: for the events of the span.
        warming: for those before, while it warmed up.
        inputs: the events of the span.
        is_part: whether only some keys or buckets were replayed.
        until_ms: when the span ends (milliseconds since 1970, UTC); None where it ends with what there is.
    """

    processor: type[Processor]
    ours: Sequence[OutputRecord]
    warming: Sequence[OutputRecord]
    inputs: InputSummary
    is_part: bool
    until_ms: int | None


def live_of(replayed: Replayed, bus: Bus) -> LiveOutputs:
    """Find what the live processor gave for the events that were replayed."""
    since_ms = replayed.inputs.first_ms
    if since_ms is None:
        return LiveOutputs([], frozenset())
    found = [one for category in replayed.processor.outputs() for one in _arrived(bus, category, since_ms)]
    updated = updates_of(replayed.processor)
    appended = [one for one in found if one.told.category not in updated]
    updates = [one for one in found if one.told.category in updated]
    chosen, is_open = _settled(replayed, updates)
    return LiveOutputs([*_appended(replayed, appended), *chosen], is_open)


@dataclass(frozen=True)
class _Arrived:
    told: OutputRecord
    arrived_ms: int

    @property
    def slot(self) -> OutputSlot:
        return _slot(self.told)


def _slot(told: OutputRecord) -> OutputSlot:
    return OutputSlot(told.category, told.key, told.event_time)


def _arrived(bus: Bus, category: AnyCategory, since_ms: int) -> Iterator[_Arrived]:
    """Give what arrived in a category since a time; what does not decode is none of ours."""
    starts = bus.catalog.at_time(category.name, datetime.fromtimestamp(since_ms / 1000, timezone.utc))
    codec = Codecs(bus).of(category)
    for number, end in bus.catalog.stable_ends(category.name).items():
        if starts[number] >= end:
            continue
        for batch in read_offset_range(bus, OffsetRange(Bucket(category.name, number), starts[number], end)):
            decoded, arrivals = codec.decode(batch.values()), batch.arrivals_ms()
            marks = category.keys_of(decoded.events), category.event_times_of(decoded.events)
            for at, key, time, event in zip(decoded.at, *marks, decoded.events, strict=True):
                yield _Arrived(OutputRecord(category.name, number, key, time, plain(event)), arrivals[at])


def _appended(replayed: Replayed, found: Sequence[_Arrived]) -> Iterator[OutputRecord]:
    inputs, given = replayed.inputs, {_slot(one) for one in replayed.ours}
    explained = Counter(map(_identity, replayed.warming))
    names_keys = replayed.is_part or bool(replayed.ours)
    passes_keys = all(one.key in inputs.keys for one in replayed.ours)
    passes_times = all(one.event_time in inputs.times for one in replayed.ours)
    # A processor that was behind wrote until long after the span: up to the last record that the replay gave, too.
    reached_ms = max((one.arrived_ms + 1 for one in found if one.slot in given), default=0)
    horizon_ms = inf if replayed.until_ms is None else max(replayed.until_ms, reached_ms)
    for one in found:
        if explained[_identity(one.told)] > 0:
            explained[_identity(one.told)] -= 1
        elif one.slot in given:
            yield one.told
        elif passes_keys and names_keys and one.told.key not in inputs.keys:
            continue
        elif replayed.is_part and not passes_keys:
            continue  # whose it is cannot be told
        elif one.arrived_ms < horizon_ms and (one.told.event_time in inputs.times or not passes_times):
            yield one.told


def _identity(told: OutputRecord) -> tuple[OutputSlot, bytes]:
    return _slot(told), _encode(told.value)


def _is_inside(replayed: Replayed, one: _Arrived) -> bool:
    return replayed.until_ms is None or one.arrived_ms < replayed.until_ms


def _settled(replayed: Replayed, updates: Iterable[_Arrived]) -> tuple[list[OutputRecord], frozenset[OutputSlot]]:
    """Return of each window the update that counts, and the windows of which none does."""
    by_window: dict[OutputSlot, list[_Arrived]] = {}
    for one in updates:
        by_window.setdefault(one.slot, []).append(one)
    ours = by_slot(replayed.processor, replayed.ours)
    warming = {_slot(one) for one in replayed.warming}
    chosen: list[OutputRecord] = []
    is_open: set[OutputSlot] = set()
    for slot, found in by_window.items():
        if slot in ours:
            same = next((one for one in found if _encode(one.told.value) == _encode(ours[slot][-1])), None)
            if same is None and not _is_inside(replayed, found[-1]):
                is_open.add(slot)
            else:
                chosen.append((same or found[-1]).told)
        elif slot not in warming and not replayed.is_part and _is_inside(replayed, found[0]):
            chosen.append(found[-1].told)
    return chosen, frozenset(is_open)
