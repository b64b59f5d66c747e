"""Outputs of the live processor that belong to the replayed range of events.

An output does not contain its input event. The rules below use its arrival, its key and its event time:

    arrived before the range begins                                  does not belong
    has the category, key and event time of a replayed output        belongs
    arrived in the range, or before the last of the former           belongs if its key and event time are those of an input event, or if
                                                                     outputs have other keys and times than their inputs
    equals an output that the replay made while it warmed up         does not belong, whenever it arrived
    is a tombstone, which has no event time                          belongs if it arrived before the end above, under the rule of keys

Checkpoints divide updates arbitrarily: among the updates of a window, one that equals the replay's final update is used. A window that
received events after the range is excluded if no update equals the replay's.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import inf
from typing import Any, NamedTuple

import msgspec

from ....backfill.compare import Comparison, identical, writes_updates
from ....processors.declare import AnyCategory, Processor, Tombstone, plan_of
from ....transport import Bucket, Bus, OffsetRange, read_offset_range, split_batch
from ....transport.codecs import Codecs, decode_outputs
from .differences import OutputSlot, by_slot, compare
from .outputs import InputSummary, OutputRecord, plain

_encode = msgspec.msgpack.Encoder(order="sorted").encode


class LiveComparison(NamedTuple):
    """A replay compared with the live processor.

    Args:
        comparisons: one per category.
        open_windows: the number of windows that received events after the range, excluded on both sides.
    """

    comparisons: Sequence[Comparison]
    open_windows: int


@dataclass(frozen=True)
class Replayed:
    """The result of a replay.

    Args:
        processor: the processor.
        outputs: its outputs for the events of the range.
        warm_up: its outputs for earlier events, while it warmed up.
        inputs: the events of the range.
        is_part: whether only some keys or buckets were replayed.
        until_ms: the end of the range (milliseconds since 1970, UTC); None for the end of the buckets.
    """

    processor: type[Processor]
    outputs: Sequence[OutputRecord]
    warm_up: Sequence[OutputRecord]
    inputs: InputSummary
    is_part: bool
    until_ms: int | None

    @property
    def horizon_ms(self) -> float:
        """The end of the range, or infinity."""
        return inf if self.until_ms is None else self.until_ms


def compare_with_live(replayed: Replayed, bus: Bus) -> LiveComparison:
    """Compare a replay with the outputs of the live processor for the same events."""
    sinks = {sink.name for sink in plan_of(replayed.processor).sinks}  # their rows are not on the bus
    replayed = replace(replayed, outputs=[output for output in replayed.outputs if output.category not in sinks])
    live, is_open = _live_outputs(replayed, bus)
    outputs = [output for output in replayed.outputs if _slot(output) not in is_open]
    return LiveComparison(compare(replayed.processor, live, outputs), len(is_open))


def _live_outputs(replayed: Replayed, bus: Bus) -> tuple[list[OutputRecord], frozenset[OutputSlot]]:
    """Return the live outputs that belong to the range, and the windows to exclude."""
    since_ms = replayed.inputs.first_ms
    if since_ms is None:
        return [], frozenset()
    appended: list[Arrived] = []
    updates: list[Arrived] = []
    for category in plan_of(replayed.processor).outputs:
        arrived = updates if writes_updates(replayed.processor, category.name) else appended
        since = datetime.fromtimestamp(since_ms / 1000, UTC)
        arrived += arrived_from(bus, category, bus.catalog.at_time(category.name, since))
    chosen, is_open = _chosen_updates(replayed, updates)
    return [*_chosen_appended(replayed, appended), *chosen], is_open


class Arrived(NamedTuple):
    """An output and its arrival at the bus (milliseconds since 1970, UTC)."""

    output: OutputRecord
    arrived_ms: int

    @property
    def slot(self) -> OutputSlot:
        """Its category, key and event time."""
        return _slot(self.output)

    def has_slot_in(self, slots: Collection[OutputSlot]) -> bool:
        """Return whether key and event time are those of one of the outputs. A tombstone has no event time, so it has no such slot."""
        return self.output.event_time is not None and self.slot in slots


def _slot(output: OutputRecord) -> OutputSlot:
    return OutputSlot(output.category, output.key, output.event_time)


def arrived_from(bus: Bus, category: AnyCategory, starts: Mapping[int, int]) -> Iterator[Arrived]:
    """Yield the outputs of a category from given offsets on, by bucket; messages that do not decode are skipped, since no processor has made them."""
    codec = Codecs(bus).of(category)
    for number, end in bus.catalog.stable_ends(category.name).items():
        if starts[number] >= end:
            continue
        for received in read_offset_range(bus, OffsetRange(Bucket(category.name, number), starts[number], end)):
            batch = split_batch(codec, received)
            arrivals = batch.arrivals_ms().tolist()
            for at, output in decode_outputs(category, codec, batch.messages):
                yield Arrived(_output_record(category, number, output), arrivals[at])


def _output_record(category: AnyCategory, number: int, output: Any) -> OutputRecord:
    if type(output) is Tombstone:
        return OutputRecord(category.name, number, output.key, None, None)
    [key], [time] = category.keys_of([output]), category.event_times_of([output])
    return OutputRecord(category.name, number, key, time, plain(output))


def _chosen_appended(replayed: Replayed, arrived: Sequence[Arrived]) -> Iterator[OutputRecord]:
    """Yield the outputs that belong to the range, of categories without updates."""
    inputs, slots = replayed.inputs, {_slot(output) for output in replayed.outputs}
    warm_up = Counter(map(_identity, replayed.warm_up))
    same_keys = all(output.key in inputs.keys for output in replayed.outputs)
    times = {*inputs.times, None}  # a tombstone has no event time
    same_times = all(output.event_time in times for output in replayed.outputs)
    # Without replayed outputs, only a partial replay limits the keys.
    keys_matter = same_keys and (replayed.is_part or bool(replayed.outputs))
    # A processor that was behind wrote long after the range: the last slot of the replay extends the horizon.
    last_ms = max((arrival.arrived_ms + 1 for arrival in arrived if arrival.has_slot_in(slots)), default=0)
    horizon_ms = max(replayed.horizon_ms, last_ms)
    for arrival in arrived:
        identity = _identity(arrival.output)
        if warm_up[identity]:
            warm_up[identity] -= 1
        elif arrival.has_slot_in(slots):
            yield arrival.output
        elif keys_matter and arrival.output.key not in inputs.keys:
            continue
        elif replayed.is_part and not same_keys:
            continue  # its input event may belong to a part that was not replayed
        elif arrival.arrived_ms < horizon_ms and (arrival.output.event_time in times or not same_times):
            yield arrival.output


def _identity(output: OutputRecord) -> tuple[OutputSlot, bytes]:
    return _slot(output), _encode(output.value)


def _chosen_updates(replayed: Replayed, updates: Iterable[Arrived]) -> tuple[list[OutputRecord], frozenset[OutputSlot]]:
    """Return the update to compare of each window, and the windows to exclude."""
    by_window: defaultdict[OutputSlot, list[Arrived]] = defaultdict(list)
    for update in updates:
        by_window[update.slot].append(update)
    final = by_slot(replayed.processor, replayed.outputs)
    warm_up = {_slot(output) for output in replayed.warm_up}
    chosen: list[OutputRecord] = []
    is_open: set[OutputSlot] = set()
    for slot, arrived in by_window.items():
        if slot in final:
            equal = next((arrival for arrival in arrived if identical(arrival.output.value, final[slot][-1])), None)
            if equal is None and arrived[-1].arrived_ms >= replayed.horizon_ms:
                is_open.add(slot)
            else:
                chosen.append((equal or arrived[-1]).output)
        elif slot not in warm_up and not replayed.is_part and arrived[0].arrived_ms < replayed.horizon_ms:
            chosen.append(arrived[-1].output)
    return chosen, frozenset(is_open)
