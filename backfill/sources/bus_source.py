"""Stretches of a category on Kafka as Spark reads them: a data source whose partitions are the stretches, and whose rows are raw messages.

It knows nothing of records: whoever decodes imports the user's app, which Spark's planner need not.
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

from ...transport.kafka import KafkaBus, KafkaSettings
from ...transport.messages import RawBatch
from ...transport.offset_range import OffsetRange, read_offset_range
from ..spark.failures import carried
from ..spark.session import BATCH_EVENTS

_COLUMNS: dict[str, pa.DataType] = {
    "bucket": pa.int32(),
    "offset": pa.int64(),
    "arrived": pa.int64(),
    "value": pa.binary(),
}
MESSAGES = pa.schema(_COLUMNS)
"""A message: where it lies, when it came to the bus (milliseconds since 1970, UTC), and its payload."""

# Several clients of one task each fetch ahead, and all of it beyond a stretch is for nothing.
_FETCHED_AHEAD = {"queued.min.messages": "50000", "queued.max.messages.kbytes": "32768"}
_REQUEST = "penstock"


class Request(msgspec.Struct, frozen=True):
    """What is to be read, and where: the source's one option. Holds secrets where the settings do: never shown.

    Args:
        bootstrap: the cluster's address.
        further: further settings of librdkafka.
        stretches: what is to be read.
    """

    bootstrap: str
    further: dict[str, str]
    stretches: list[OffsetRange]

    def __repr__(self) -> str:
        return f"Request({self.bootstrap!r}, {self.stretches!r})"


def messages(spark: SparkSession, settings: KafkaSettings, stretches: Sequence[OffsetRange]) -> DataFrame:
    """Return the messages of some stretches, at least one, each as a partition; they are read when Spark asks for them."""
    _register(spark)
    request = Request(settings.bootstrap, dict(settings.further), list(stretches))
    return spark.read.format(BusSource.name()).option(_REQUEST, msgspec.json.encode(request).decode()).load()


def _register(spark: SparkSession) -> None:
    """Make the source known to a session; again, where it is."""
    # Spark refuses a name that the session has which is active just then, whichever that is.
    jvm: Any = spark._jvm  # noqa: SLF001 - Python has no public way to make a session the active one
    jvm.SparkSession.setActiveSession(spark._jsparkSession)  # noqa: SLF001 - as above
    spark.dataSource.register(BusSource)


class BusSource(DataSource):
    """Messages on Kafka."""

    @classmethod
    def name(cls) -> str:
        """Return what Spark calls it."""
        return "penstock-bus"

    def schema(self) -> StructType:
        """Return the columns."""
        return from_arrow_schema(MESSAGES)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - there is one schema
        """Return what plans, and reads."""
        return BusSourceReader(msgspec.json.decode(self.options[_REQUEST], type=Request))


@dataclass
class OneOffsetRange(InputPartition):
    """A partition."""

    stretch: OffsetRange


class BusSourceReader(DataSourceReader):
    """Reads stretches, each in a task of its own.

    Args:
        request: which.
    """

    def __init__(self, request: Request) -> None:
        self._request = request

    def partitions(self) -> Sequence[OneOffsetRange]:
        """Return the stretches."""
        return [OneOffsetRange(stretch) for stretch in self._request.stretches]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the messages of a stretch."""
        stretch: OffsetRange = partition.stretch  # type: ignore[attr-defined]  # one of those above
        bus = KafkaBus(KafkaSettings(self._request.bootstrap, {**_FETCHED_AHEAD, **self._request.further}))
        with carried(f"Reading {stretch.bucket}"):
            for batch in read_offset_range(bus, stretch):
                yield from _rows(batch)


def _rows(batch: RawBatch) -> Iterator[pa.RecordBatch]:
    for begin in range(0, len(batch.messages), BATCH_EVENTS):
        part = RawBatch(batch.bucket, batch.messages[begin : begin + BATCH_EVENTS])
        columns: tuple[list[Any], ...] = (
            [batch.bucket.number] * len(part.messages),
            [message.offset() for message in part.messages],
            part.arrivals_ms(),
            part.values(),
        )
        arrays = [pa.array(column, field.type) for column, field in zip(columns, MESSAGES, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=MESSAGES)
