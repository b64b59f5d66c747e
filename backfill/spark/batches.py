"""Arrow record batches in Spark's Python workers: the types of a step, and blocks, in which the shuffle moves many events or outputs as one value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

Batches = Iterator[pa.RecordBatch]


Transform = Callable[[Iterable[pa.RecordBatch]], Batches]

_CODEC: Final = "zstd"
_SIZE_BYTES = 8


def joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return at least one batch as a single one."""
    [whole] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole


def to_block(batch: pa.RecordBatch) -> bytes:
    """Return a batch without its schema, compressed, after its size in bytes."""
    serialized = batch.serialize()
    return serialized.size.to_bytes(_SIZE_BYTES, "little") + pa.compress(serialized, _CODEC, asbytes=True)


def from_block(block: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch of a block."""
    size = int.from_bytes(block.slice(0, _SIZE_BYTES).to_pybytes(), "little")
    return pa.ipc.read_record_batch(pa.decompress(block.slice(_SIZE_BYTES), size, _CODEC), schema)
