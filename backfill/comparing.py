"""What runs in Spark's Python workers when stream and batch are compared: records as bytes, and a second look at unequal ones.

Records are compared as MessagePack with sorted keys: equal bytes are equal records, floats to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa

from ..processors.apps import AppName
from ..processors.monoids.plain import alike
from .columns import Columns
from .failures import carried
from .steps import Batches, Transform

_VALUES: dict[str, pa.DataType] = {
    "key": pa.string(),
    "time": pa.int64(),
    "bucket": pa.int32(),
    "offset": pa.int64(),
    "value": pa.binary(),
}
VALUES = pa.schema(_VALUES)
"""An output as it is compared; in a batch result, bucket and offset are null."""

_PAIRS: dict[str, pa.DataType] = {
    "key": pa.string(),
    "time": pa.int64(),
    "stream": pa.binary(),
    "batch": pa.binary(),
    "alike": pa.bool_(),
}
PAIRS = pa.schema(_PAIRS)
"""What stream and batch have for one key and time, and whether it is the same but for the rounding of floats."""

_encode = msgspec.msgpack.Encoder(order="sorted").encode
_decode = msgspec.msgpack.Decoder().decode


@dataclass(frozen=True)
class Compared:
    """A category as a worker finds it.

    Args:
        app: the app file.
        category: the category's name.
    """

    app: str
    category: str


def values_of(compared: Compared) -> Transform:
    """Return what turns stored events into rows of VALUES."""
    return partial(_values, compared)


def look_again() -> Transform:
    """Return what fills in the last column of PAIRS."""
    return _look_again


def shown(value: bytes) -> Any:
    """Return a record's fields as plain values."""
    return _decode(value)


def _values(compared: Compared, batches: Batches) -> Batches:
    with carried(f"Reading {compared.category}"):
        app = AppName.parse(compared.app).load()
        category = next(category for category in app.categories() if category.name == compared.category)
        columns = Columns(category.record)
        for batch in batches:
            values = pa.array(map(_encode, columns.records(batch)), pa.binary())
            marks = [batch.column(name) for name in ("_key", "_event_time", "_bucket", "_offset")]
            yield pa.RecordBatch.from_arrays([*marks, values], schema=VALUES)


def _look_again(batches: Iterable[pa.RecordBatch]) -> Batches:
    for batch in batches:
        pairs = zip(batch.column("stream").to_pylist(), batch.column("batch").to_pylist(), strict=True)
        judged = [_alike(stream, other) for stream, other in pairs]
        kept = [batch.column(name) for name in ("key", "time", "stream", "batch")]
        yield pa.RecordBatch.from_arrays([*kept, pa.array(judged, pa.bool_())], schema=PAIRS)


def _alike(stream: bytes | None, batch: bytes | None) -> bool:
    if stream is None or batch is None:
        return False
    return stream == batch or alike(_decode(stream), _decode(batch))
