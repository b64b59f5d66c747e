"""What a replay gives, one by one: which category it would have gone to, under which key, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from ...processors.declare.categories import AnyCategory, Category
from ...processors.declare.processor import Processor
from ...processors.declare.routes import Routes
from ...transport.codecs.json_codec import JsonCodec
from .errors import ReplayStopped
from .shard_replay import ReplayedBatch

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Output(NamedTuple):
    """One record.

    Args:
        category: which category it is for.
        number: the bucket number of the shard that gave it.
        key: its key.
        event_time: its event time (milliseconds since 1970, UTC).
        record: the record.
    """

    category: AnyCategory
    number: int
    key: str
    event_time: int
    record: Any


class OutputRecord(msgspec.Struct, frozen=True):
    """One record as a line of JSON has it.

    Args:
        category: the name of the category it is for.
        bucket: the bucket number of the shard that gave it.
        key: its key.
        event_time: its event time (milliseconds since 1970, UTC).
        value: the record's fields.
    """

    category: str
    bucket: int
    key: str
    event_time: int
    value: Any


class Outputs:
    """Tells where the records of a processor would go.

    Args:
        processor: whose.
    """

    def __init__(self, processor: type[Processor]) -> None:
        self._name = processor.__name__
        self._routes = Routes(processor)
        self._codecs: dict[str, JsonCodec] = {}
        self._late = getattr(processor, "late", None)

    def of(self, played: ReplayedBatch) -> Iterator[Output]:
        """Give what was played, one by one.

        Raises:
            ReplayStopped: a record that no category of the processor takes.
        """
        try:
            routed = self._routes.split(played.outputs)
        except TypeError as error:
            raise ReplayStopped(f"{error} A worker would stop there; mend {self._name}.") from error
        for category, given in routed:
            records = self._as_read(category, given)
            keys, times = category.keys_of(records), category.event_times_of(records)
            for key, time, record in zip(keys, times, records, strict=True):
                yield Output(category, played.number, key, time, record)

    def _as_read(self, category: AnyCategory, given: Sequence[Any]) -> list[Any]:
        """Return records as a reader of the category would find them: a whole number in a field of floats is a float."""
        if category.name not in self._codecs:
            self._codecs[category.name] = JsonCodec(category)
        codec = self._codecs[category.name]
        try:
            decoded = codec.decode(codec.encode(given))
        except TypeError as error:
            raise ReplayStopped(f"{error} A worker would stop there; mend {self._name}.") from error
        if decoded.bad:
            raise ReplayStopped(
                f"A {category.record.__name__} does not fit its own type: {decoded.bad[0].reason}. Whoever reads {category.name} would have to "
                f"refuse it; mend {self._name}."
            )
        return decoded.events

    def is_late(self, output: Output) -> bool:
        """Tell whether a record is an event that came too late, and not made by the processor's own code."""
        return isinstance(self._late, Category) and output.category.name == self._late.name


def told(output: Output) -> OutputRecord:
    """Return an output with plain values, as it is compared and shown."""
    return OutputRecord(output.category.name, output.number, output.key, output.event_time, plain(output.record))


def plain(record: Any) -> Any:
    """Return what a record says, as JSON has it."""
    return _decode(_encode(record))


def line_of(output: Output) -> bytes:
    """Return an output as a line of JSON: the same bytes each time."""
    return (
        _encode(OutputRecord(output.category.name, output.number, output.key, output.event_time, output.record)) + b"\n"
    )
