"""The part of a run's input that is on the bus and not yet in the warehouse.

handoff offsets of each category --> offset ranges --read by tasks--> messages --decoded--> rows in the archive's columns

Messages that do not decode are skipped, as the archiver skips them. They are counted by offset range, so that a range that Spark reads
twice counts once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

import pyarrow as pa
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from ...processors import counted
from ...processors.declare import AnyCategory
from ...transport import Bucket, RawBatch
from ...transport.codecs import Codecs
from ...transport.kafka import KafkaBus, KafkaSettings
from ..archive import ArchivedRows, archive_schema_of
from ..spark import Batches, OriginCounts, ShippedApp, TaskCount, Transform, marked_errors
from ..warehouse import Warehouse
from .bus_source import messages, messages_in
from .handoff_offsets import HandoffOffsets, handoff_offsets

RANGE_OFFSETS = 250_000
"""The number of offsets that one task reads."""


@dataclass(frozen=True)
class BusPart:
    """The events to read from the bus.

    Args:
        bus: the bus.
        app: the app, for workers.
        handoffs: the handoff offsets of each category.
        undecodable: counts the messages that do not decode.
    """

    bus: KafkaBus
    app: ShippedApp
    handoffs: Mapping[str, HandoffOffsets]
    undecodable: Accumulator[UndecodableByRange]

    @staticmethod
    def of(
        spark: SparkSession, bus: KafkaBus, app: ShippedApp, warehouse: Warehouse, categories: Iterable[AnyCategory]
    ) -> BusPart:
        """Find the current end of each category's archive and of its buckets.

        Raises:
            BackfillRefused: events are missing between the archive and the bus.
            BusError: the bus failed.
        """
        handoffs = {category.name: handoff_offsets(bus, warehouse, category.name) for category in categories}
        return BusPart(bus, app, handoffs, spark.sparkContext.accumulator({}, UndecodableParam()))

    def events(self, spark: SparkSession, category: AnyCategory) -> DataFrame | None:
        """Return a category's events from its handoff offsets on, without their day; None if there are none."""
        offset_ranges = self.handoffs[category.name].offset_ranges(RANGE_OFFSETS)
        if not offset_ranges:
            return None
        settings = self.bus.settings.self_contained()
        decoding = Decoding(self.app, category.name, settings, self.undecodable)
        schema = from_arrow_schema(archive_schema_of(category))
        return messages(spark, settings, offset_ranges).mapInArrow(decoding.transform, schema)

    def origins(self, spark: SparkSession, categories: Iterable[AnyCategory]) -> dict[str, OriginCounts]:
        """Return the counters of archived and live events by category; categories written by the run have none."""
        context = spark.sparkContext
        names = [category.name for category in categories if category.name in self.handoffs]
        return {
            name: OriginCounts(self.handoffs[name].offsets, TaskCount.of(context), TaskCount.of(context))
            for name in names
        }

    def notes(self, origins: Mapping[str, OriginCounts]) -> Iterator[str]:
        """Yield a note for each category: archived events, live events, and messages that were skipped."""
        for category, origin in origins.items():
            yield f"{category}: {counted(origin.archived.value, 'event')} from the warehouse, {origin.live.value:,} from the bus"
            dropped = self.handoffs[category].dropped
            if dropped:
                yield f"{category}: {counted(dropped, 'offset')} expired on the bus before the archiver read them, so the result lacks them"
            yield from self._undecodable_note(category)

    def _undecodable_note(self, category: str) -> Iterator[str]:
        found = sorted((place, error) for place, error in self.undecodable.value.items() if place[0] == category)
        if found:
            (_, bucket, _), first = found[0]
            yield (
                f"{category}: skipped {counted(sum(one.messages for _, one in found), 'message')} on the bus that cannot be decoded, the first at "
                f"offset {first.offset} of bucket {bucket}: {first.reason}"
            )


class UndecodableMessages(NamedTuple):
    """The messages of one offset range that do not decode.

    Args:
        messages: their number.
        offset: the offset of the first.
        reason: why the first does not decode.
    """

    messages: int
    offset: int
    reason: str


RangeStart = tuple[str, int, int]
"""Category, bucket, and the first offset of the range."""


UndecodableByRange = Mapping[RangeStart, UndecodableMessages]


class UndecodableParam(AccumulatorParam[UndecodableByRange]):
    """Merges the reports of tasks; a task that runs twice reports the same range twice."""

    def zero(self, value: UndecodableByRange) -> UndecodableByRange:  # noqa: ARG002 - as the base has it
        """Return the empty report."""
        return {}

    def addInPlace(self, value1: UndecodableByRange, value2: UndecodableByRange) -> UndecodableByRange:  # noqa: N802 - as the base has it
        """Return both reports."""
        return {**value1, **value2}


@dataclass(frozen=True)
class Decoding:
    """The step that decodes the messages of a category.

    Args:
        app: the app, for workers.
        category: the category's name.
        settings: the bus with the schemas.
        undecodable: counts the messages that do not decode.
    """

    app: ShippedApp
    category: str
    settings: KafkaSettings
    undecodable: Accumulator[UndecodableByRange]

    @property
    def transform(self) -> Transform:
        """The step for Spark, on one partition per offset range."""
        return partial(_run, self)


def _run(decoding: Decoding, batches: Batches) -> Batches:
    with marked_errors(f"Decoding {decoding.category}"):
        yield from _decoded(decoding, batches)


def _decoded(decoding: Decoding, batches: Batches) -> Batches:
    settings = decoding.settings
    rows = _rows_of(decoding.app, decoding.category, settings.bootstrap, tuple(settings.further.items()))
    place: RangeStart | None = None
    undecodable: UndecodableMessages | None = None
    for received in filter(None, (_raw_batch(decoding.category, rows) for rows in batches)):
        made = rows.of(received)
        place = place or (decoding.category, received.bucket.number, received.messages[0].offset())
        if made.excluded:
            first = undecodable or UndecodableMessages(0, *made.excluded[0])
            undecodable = first._replace(messages=first.messages + len(made.excluded))
        yield made.batch
    if place and undecodable:
        decoding.undecodable.add({place: undecodable})


def _raw_batch(category: str, rows: pa.RecordBatch) -> RawBatch | None:
    """Return the messages in rows of one offset range; None if there are none."""
    found = messages_in(rows)
    return RawBatch(Bucket(category, found[0].partition()), found) if found else None


@cache
def _rows_of(app: ShippedApp, category: str, bootstrap: str, further: tuple[tuple[str, str], ...]) -> ArchivedRows:
    declared = next(
        category_declared for category_declared in app.load().categories() if category_declared.name == category
    )
    return ArchivedRows(declared, Codecs(KafkaBus(KafkaSettings(bootstrap, dict(further)))).of(declared))
