"""Outputs of a replay: their categories, keys and event times, and their collection."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from ....processors import with_capital_article
from ....processors.declare import AnyCategory, Category, Codec, Destination, Processor, Routes, Sink, Tombstone
from ....processors.models import encode_model
from ....processors.shard import SourceEvents
from ....transport import MessageCopy
from ....transport.codecs import whole_record_json
from .errors import ReplayStopped
from .shard_replay import ReplayCounts, ReplayedBatch

_encode = msgspec.json.Encoder(enc_hook=encode_model).encode
_decode = msgspec.json.Decoder().decode


class Output(NamedTuple):
    """One output record.

    Args:
        category: its category or sink.
        number: the bucket number of its shard.
        key: its key; empty for a row of a sink.
        event_time: its event time (milliseconds since 1970, UTC); None for a tombstone and for a row of a sink.
        record: the record, or a tombstone.
    """

    category: Destination
    number: int
    key: str
    event_time: int | None
    record: Any


class OutputRecord(msgspec.Struct, frozen=True):
    """One output record with plain values.

    Args:
        category: the name of its category or sink.
        bucket: the bucket number of its shard.
        key: its key; empty for a row of a sink.
        event_time: its event time (milliseconds since 1970, UTC); None for a tombstone and for a row of a sink.
        value: the record's fields; None for a tombstone.
    """

    category: str
    bucket: int
    key: str
    event_time: int | None
    value: Any


class Outputs:
    """Assigns a processor's records to its categories.

    Args:
        processor: the processor.
    """

    def __init__(self, processor: type[Processor]) -> None:
        self._name = processor.__name__
        self._routes = Routes(processor)
        self._codecs: dict[str, Codec] = {}
        self._late = getattr(processor, "late", None)

    def of(self, played: ReplayedBatch) -> Iterator[Output]:
        """Yield the outputs of a batch.

        Raises:
            ReplayStopped: no category of the processor accepts a record.
        """
        try:
            routed = self._routes.split(played.outputs)
        except TypeError as error:
            raise ReplayStopped(f"{error} A worker would stop there. Correct {self._name}.") from error
        for category, outputs in routed:
            if isinstance(category, Sink):
                yield from (Output(category, played.number, "", None, output) for output in outputs)
                continue
            records = self._as_read(category, [output for output in outputs if type(output) is not Tombstone])
            marked = zip(category.keys_of(records), category.event_times_of(records), records, strict=True)
            for output in outputs:
                marks = (output.key, None, output) if type(output) is Tombstone else next(marked)
                yield Output(category, played.number, *marks)

    def _as_read(self, category: AnyCategory, records: Sequence[Any]) -> list[Any]:
        """Return records as a reader of the category decodes them: a whole number in a float field is a float."""
        if category.name not in self._codecs:
            self._codecs[category.name] = whole_record_json(category)
        codec = self._codecs[category.name]
        try:
            decoded = codec.decode(list(map(MessageCopy, codec.encode(records))))
        except TypeError as error:
            raise ReplayStopped(f"{error} A worker would stop there. Correct {self._name}.") from error
        if decoded.bad:
            raise ReplayStopped(
                f"{with_capital_article(category.record_name)} does not fit its own type: {decoded.bad[0].reason}. Readers of {category.name} would reject "
                f"it. Correct {self._name}."
            )
        return list(decoded.events)

    def is_late(self, output: Output) -> bool:
        """Return whether a record is a late event that was passed on, and not an output of the processor's code."""
        return isinstance(self._late, Category) and output.category.name == self._late.name


def as_record(output: Output) -> OutputRecord:
    """Return an output with plain values, for comparison and display."""
    value = None if type(output.record) is Tombstone else plain(output.record)
    return OutputRecord(output.category.name, output.number, output.key, output.event_time, value)


def plain(record: Any) -> Any:
    """Return a record as plain values."""
    return _decode(_encode(record))


def line_of(output: Output) -> bytes:
    """Return an output as a line of JSON; equal outputs have equal bytes."""
    value = None if type(output.record) is Tombstone else output.record
    return _encode(OutputRecord(output.category.name, output.number, output.key, output.event_time, value)) + b"\n"


class InputSummary:
    """Keys and times of the replayed events.

    Args:
        key: events of this key only; None for all.
    """

    def __init__(self, key: str | None = None) -> None:
        self._key = key
        self.keys: set[str] = set()
        self.times: set[int] = set()
        self.first_ms: int | None = None
        self.last_ms: int | None = None

    def note(self, events: SourceEvents) -> None:
        """Add events of the span."""
        keys, times = events.category.keys_of(events.events), events.category.event_times_of(events.events)
        chosen = [(key, time) for key, time in zip(keys, times, strict=True) if self._key in (None, key)]
        self.keys.update(key for key, _ in chosen)
        self.times.update(time for _, time in chosen)
        first_ms, last_ms = events.arrived_ms[0], events.arrived_ms[-1]
        self.first_ms = first_ms if self.first_ms is None else min(first_ms, self.first_ms)
        self.last_ms = last_ms if self.last_ms is None else max(last_ms, self.last_ms)


Give = Callable[[Output], None]


class OutputCollector:
    """Collects the outputs of shards, counts them, and passes them on.

    Args:
        processor: the processor.
        key: outputs of this key's events only; None for all.
        gives: functions that receive each output of the span.
        keeps: whether to keep the outputs for a comparison.
    """

    def __init__(self, processor: type[Processor], key: str | None, gives: Sequence[Give], *, keeps: bool) -> None:
        self._outputs = Outputs(processor)
        self._key = key
        self._gives = gives
        self._keeps = keeps
        self.counts = ReplayCounts()
        self.inputs = InputSummary(key)
        self.ours: list[OutputRecord] = []
        self.warming: list[OutputRecord] = []

    def all(self, played: Iterable[ReplayedBatch]) -> None:
        """Collect the outputs of all batches."""
        for outputs in played:
            if not outputs.state_only:
                self._take(self._chosen(outputs))
            elif self._keeps:
                self.warming += map(as_record, self._chosen(outputs))

    def _take(self, outputs: Iterable[Output]) -> None:
        for output in outputs:
            self.counts.outputs += 1
            for give in self._gives:
                give(output)
            if self._keeps:
                self.ours.append(as_record(output))

    def _chosen(self, played: ReplayedBatch) -> Iterable[Output]:
        for output in self._outputs.of(played):
            # Outputs of the processor's code are filtered by key already; late events were only passed on.
            if self._key is None or output.key == self._key or not self._outputs.is_late(output):
                yield output
