"""Spark data source of raw Kafka messages, one partition per offset range.

Messages are not decoded here: decoding imports the user's app, which Spark's planner does not need.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ...transport import MessageCopy, OffsetRange, RawBatch, read_offset_range
from ...transport.kafka import KafkaBus, KafkaSettings
from ..spark import BATCH_EVENTS, marked_errors

_COLUMNS: dict[str, pa.DataType] = {
    "bucket": pa.int32(),
    "offset": pa.int64(),
    "timestamp_type": pa.int8(),
    "timestamp": pa.int64(),
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())])),
}
MESSAGES = pa.schema(_COLUMNS)
"""A message: its position, timestamp (milliseconds since 1970, UTC), key, payload and headers."""

# Each task has a client of its own, and messages prefetched beyond its range are wasted.
_FETCHED_AHEAD = {"queued.min.messages": "50000", "queued.max.messages.kbytes": "32768"}
_REQUEST = "penstock"


class BusRequest(msgspec.Struct, frozen=True):
    """The source's only option. It may contain secrets of the settings, which its repr omits.

    Args:
        bootstrap: the cluster's address.
        further: further settings of librdkafka.
        offset_ranges: the ranges to read.
    """

    bootstrap: str
    further: dict[str, str]
    offset_ranges: list[OffsetRange]

    def __repr__(self) -> str:
        return f"Request({self.bootstrap!r}, {self.offset_ranges!r})"


def messages(spark: SparkSession, settings: KafkaSettings, offset_ranges: Sequence[OffsetRange]) -> DataFrame:
    """Return the messages of at least one offset range, lazily, one partition per range."""
    _register(spark)
    request = BusRequest(settings.bootstrap, dict(settings.further), list(offset_ranges))
    return spark.read.format(BusSource.name()).option(_REQUEST, msgspec.json.encode(request).decode()).load()


def _register(spark: SparkSession) -> None:
    """Register the source with a session; repeatable."""
    # Spark checks for a duplicate name in the active session, which may be another one.
    jvm: Any = spark._jvm  # noqa: SLF001 - Python has no public way to make a session the active one
    jvm.SparkSession.setActiveSession(spark._jsparkSession)  # noqa: SLF001 - as above
    spark.dataSource.register(BusSource)


class BusSource(DataSource):
    """Raw messages on Kafka."""

    @classmethod
    def name(cls) -> str:
        """Return its name in Spark."""
        return "penstock-bus"

    def schema(self) -> StructType:
        """Return the columns."""
        return from_arrow_schema(MESSAGES)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - there is one schema
        """Return the reader for the requested ranges."""
        return BusSourceReader(msgspec.json.decode(self.options[_REQUEST], type=BusRequest))


@dataclass
class OffsetRangePartition(InputPartition):
    """One offset range as a partition."""

    offset_range: OffsetRange


class BusSourceReader(DataSourceReader):
    """Reads each offset range in a task of its own.

    Args:
        request: the ranges and the cluster.
    """

    def __init__(self, request: BusRequest) -> None:
        self._request = request

    def partitions(self) -> Sequence[OffsetRangePartition]:
        """Return one partition per range."""
        return [OffsetRangePartition(offset_range) for offset_range in self._request.offset_ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a range."""
        offset_range: OffsetRange = partition.offset_range  # type: ignore[attr-defined]  # one of those above
        bus = KafkaBus(KafkaSettings(self._request.bootstrap, {**_FETCHED_AHEAD, **self._request.further}))
        with marked_errors(f"Reading {offset_range.bucket}"):
            for batch in read_offset_range(bus, offset_range):
                yield from _rows(batch)


def _rows(batch: RawBatch) -> Iterator[pa.RecordBatch]:
    for begin in range(0, len(batch.messages), BATCH_EVENTS):
        part = batch.messages[begin : begin + BATCH_EVENTS]
        timestamps = [message.timestamp() for message in part]
        columns: tuple[list[Any], ...] = (
            [batch.bucket.number] * len(part),
            [message.offset() for message in part],
            [kind for kind, _ in timestamps],
            [time_ms for _, time_ms in timestamps],
            [message.key() for message in part],
            [message.value() for message in part],
            [message.headers() for message in part],
        )
        arrays = [pa.array(column, field.type) for column, field in zip(columns, MESSAGES, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=MESSAGES)


def messages_in(rows: pa.RecordBatch) -> list[MessageCopy]:
    """Return the messages in rows of the source."""
    columns: dict[str, list[Any]] = rows.to_pydict()
    timestamps = zip(columns["timestamp_type"], columns["timestamp"], strict=True)
    headers = [found and [(one["name"], one["value"]) for one in found] for found in columns["headers"]]
    positions = columns["bucket"], columns["offset"]
    return list(map(MessageCopy, columns["value"], columns["key"], *positions, timestamps, headers))
