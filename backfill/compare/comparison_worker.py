"""Steps of a batch comparison that run in Spark's Python workers.

stored outputs --encoded_records--> records as bytes --paired on equal bytes by Spark--> summarized: one summary per task
                                                                                     --> differing: one row per pair that differs

Records travel as MessagePack with sorted keys: equal bytes are equal records, floats to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import msgspec
import pyarrow as pa

from ...processors.apps import AppName
from ...processors.declare import AnyCategory
from ...processors.models import encode_model
from ..spark import Batches, ShippedApp, Transform, marked_errors
from ..warehouse import RecordColumns
from .comparer import Kind, RecordComparer, RecordPair
from .summary import ComparisonSummary

_RECORDS: dict[str, pa.DataType] = {
    "key": pa.string(),
    "time": pa.int64(),
    "bucket": pa.int32(),
    "offset": pa.int64(),
    "value": pa.binary(),
}
RECORDS = pa.schema(_RECORDS)
"""An output record. Bucket and offset are null in a batch result."""

_PAIRS: dict[str, pa.DataType] = {
    "key": pa.string(),
    "time": pa.int64(),
    "equal": pa.int64(),
    "stream": pa.binary(),
    "batch": pa.binary(),
}
PAIRS = pa.schema(_PAIRS)
"""The number of equal records of a key and event time, and one other record of either side or of both."""

_DIFFERING: dict[str, pa.DataType] = {"key": pa.string(), "time": pa.int64(), "pair": pa.binary()}
DIFFERING = pa.schema(_DIFFERING)
"""An encoded RecordPair that is not equal."""

_SUMMARIES: dict[str, pa.DataType] = {"summary": pa.binary()}
SUMMARIES = pa.schema(_SUMMARIES)
"""An encoded ComparisonSummary."""

_encode = msgspec.msgpack.Encoder(order="sorted", enc_hook=encode_model).encode
_decode = msgspec.msgpack.Decoder().decode
decode_pair = msgspec.msgpack.Decoder(RecordPair).decode
decode_summary = msgspec.msgpack.Decoder(ComparisonSummary).decode


@dataclass(frozen=True)
class ComparedCategory:
    """A category and the app that declares it, for use in a worker.

    Args:
        app: the app, or one processor of it, importable in the worker.
        name: the category's name.
    """

    app: AppName | ShippedApp
    name: str

    @property
    def category(self) -> AnyCategory:
        """The declared category."""
        return next(category for category in self.app.load().categories() if category.name == self.name)

    def comparer(self) -> RecordComparer:
        """Return the rules for comparing its records."""
        return RecordComparer.of(self.category, self.app.load().processors)


def encoded_records(compared: ComparedCategory) -> Transform:
    """Return the step that turns stored events into RECORDS."""
    return partial(_encoded_records, compared)


def summarized(compared: ComparedCategory) -> Transform:
    """Return the step that turns PAIRS into one row of SUMMARIES per task."""
    return partial(_summarized, compared)


def differing(compared: ComparedCategory) -> Transform:
    """Return the step that turns PAIRS into DIFFERING."""
    return partial(_differing, compared)


def _encoded_records(compared: ComparedCategory, batches: Batches) -> Batches:
    with marked_errors(f"Reading {compared.name}"):
        columns = RecordColumns(compared.category.record)
        for batch in batches:
            values = pa.array(map(_encode, columns.records(batch)), pa.binary())
            marks = [batch.column(name) for name in ("_key", "_event_time", "_bucket", "_offset")]
            yield pa.RecordBatch.from_arrays([*marks, values], schema=RECORDS)


def _summarized(compared: ComparedCategory, batches: Batches) -> Batches:
    with marked_errors(f"Comparing {compared.name}"):
        summary, comparer = ComparisonSummary(), compared.comparer()
        for batch in batches:
            summary.equal += sum(count for count in batch.column("equal").to_pylist() if count)
            for pair in _pairs(comparer, batch):
                summary.add(pair)
        yield pa.RecordBatch.from_pylist([{"summary": msgspec.msgpack.encode(summary)}], schema=SUMMARIES)


def _differing(compared: ComparedCategory, batches: Batches) -> Batches:
    with marked_errors(f"Comparing {compared.name}"):
        comparer = compared.comparer()
        for batch in batches:
            rows = [
                {"key": pair.key, "time": pair.event_time, "pair": msgspec.msgpack.encode(pair)}
                for pair in _pairs(comparer, batch)
                if pair.kind is not Kind.EQUAL
            ]
            yield pa.RecordBatch.from_pylist(rows, schema=DIFFERING)


def _pairs(comparer: RecordComparer, batch: pa.RecordBatch) -> Iterator[RecordPair]:
    """Compare the records beyond the equal ones."""
    columns: Iterable[list[object]] = (batch.column(name).to_pylist() for name in ("key", "time", "stream", "batch"))
    for key, time, stream, other in zip(*columns, strict=True):
        if stream is not None or other is not None:
            yield comparer.pair(key, time, *(None if side is None else _decode(side) for side in (stream, other)))
