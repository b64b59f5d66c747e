"""Types of a step in Spark's Python workers: Arrow record batches in and out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

Batches = Iterator[pa.RecordBatch]


Transform = Callable[[Iterable[pa.RecordBatch]], Batches]
