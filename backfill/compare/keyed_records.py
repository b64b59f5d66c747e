"""What runs in Spark's Python workers when stream and batch are compared: records as bytes, and a close look at unequal ones.

Records are compared as MessagePack with sorted keys: equal bytes are equal records, floats to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa

from ...processors.declare.aggregator import Aggregator
from ...processors.declare.apps import App, AppName
from ...processors.declare.categories import AnyCategory
from ...processors.declare.processor import as_tuple
from ..spark.batches import Batches, Transform
from ..spark.failures import carried
from ..spark.shipped_app import ShippedApp
from ..warehouse.columns import Columns
from .record_difference import RecordComparer

_VALUES: dict[str, pa.DataType] = {
    "key": pa.string(),
    "time": pa.int64(),
    "bucket": pa.int32(),
    "offset": pa.int64(),
    "value": pa.binary(),
}
VALUES = pa.schema(_VALUES)
"""An output as it is compared; in a batch result, bucket and offset are null."""

_FIELD: dict[str, pa.DataType] = {
    "field": pa.string(),
    "stream": pa.string(),
    "batch": pa.string(),
    "absolute": pa.float64(),
    "relative": pa.float64(),
    "within_error": pa.bool_(),
}
_JUDGED: dict[str, pa.DataType] = {
    "key": pa.string(),
    "time": pa.int64(),
    "equal": pa.int64(),
    "kind": pa.string(),
    "stream": pa.binary(),
    "batch": pa.binary(),
    "within_error": pa.bool_(),
    "fields": pa.list_(pa.struct(list(_FIELD.items()))),
}
JUDGED = pa.schema(_JUDGED)
"""What stream and batch have for one key and time: so many equal records, or one of each side that are not, and in which fields."""

ONLY_STREAM, ONLY_BATCH, DIFFERENT = "only stream", "only batch", "different"

_encode = msgspec.msgpack.Encoder(order="sorted").encode
_decode = msgspec.msgpack.Decoder().decode


@dataclass(frozen=True)
class Compared:
    """A category as a worker finds it.

    Args:
        app: the app, or one processor of it, where it can be imported.
        category: the category's name.
    """

    app: AppName | ShippedApp
    category: str


def values_of(compared: Compared) -> Transform:
    """Return what turns stored events into rows of VALUES."""
    return partial(_values, compared)


def judged(compared: Compared) -> Transform:
    """Return what looks at rows of JUDGED of which kind, error and fields are still open."""
    return partial(_judged, compared)


def shown(value: bytes) -> Any:
    """Return a record's fields as plain values."""
    return _decode(value)


def writers_of(app: App, category: AnyCategory) -> dict[bool, list[str]]:
    """Return the names of the processors that write a category: under True those whose records there are updates."""
    found: dict[bool, list[str]] = {}
    for processor in app.processors:
        if category.name in {output.name for output in processor.outputs()}:
            found.setdefault(_updates(processor, category), []).append(processor.__name__)
    return found


def _updates(processor: type, category: AnyCategory) -> bool:
    """Tell whether a processor's records in a category are updates: an aggregator's results, not the late events it passes on."""
    return issubclass(processor, Aggregator) and category.name in {c.name for c in as_tuple(processor.writes)}


def _values(compared: Compared, batches: Batches) -> Batches:
    with carried(f"Reading {compared.category}"):
        columns = Columns(_category(compared).record)
        for batch in batches:
            values = pa.array(map(_encode, columns.records(batch)), pa.binary())
            marks = [batch.column(name) for name in ("_key", "_event_time", "_bucket", "_offset")]
            yield pa.RecordBatch.from_arrays([*marks, values], schema=VALUES)


def _judged(compared: Compared, batches: Batches) -> Batches:
    with carried(f"Comparing {compared.category}"):
        judge = judge_of(compared)
        for batch in batches:
            pairs = zip(*(batch.column(name).to_pylist() for name in ("equal", "stream", "batch")), strict=True)
            rows = [_look(judge, *pair) for pair in pairs]
            columns = zip(*rows, strict=True) if rows else [()] * 6
            arrays = [
                pa.array(list(column), field.type) for column, field in zip(columns, list(JUDGED)[2:], strict=True)
            ]
            yield pa.RecordBatch.from_arrays([batch.column("key"), batch.column("time"), *arrays], schema=JUDGED)


def _look(judge: RecordComparer, equal: int, stream: bytes | None, batch: bytes | None) -> tuple[Any, ...]:
    """Return the columns of JUDGED that follow key and time."""
    if stream is None or batch is None:
        kind = None if stream is batch else ONLY_STREAM if batch is None else ONLY_BATCH
        return equal, kind, stream, batch, None, []
    found = judge.differences(_decode(stream), _decode(batch))
    if not found:
        return equal + 1, None, None, None, None, []
    within = all(difference.within_error for difference in found)
    return equal, DIFFERENT, stream, batch, within, [difference._asdict() for difference in found]


def judge_of(compared: Compared) -> RecordComparer:
    """Return how the records of a category are to be compared."""
    app, category = compared.app.load(), _category(compared)
    aggregators = [p for p in app.processors if issubclass(p, Aggregator) and _updates(p, category)]
    return RecordComparer.of(category, next(iter(aggregators), None))


def _category(compared: Compared) -> AnyCategory:
    return next(category for category in compared.app.load().categories() if category.name == compared.category)
