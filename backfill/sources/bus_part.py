"""The part of a run's input that is on the bus and not in the warehouse: planned once, read in Spark, and said at the end.

borders of each category --> stretches of its buckets --read--> messages --decoded--> rows as the archive has them
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from ...processors.declare.categories import AnyCategory
from ...transport.kafka import KafkaBus
from ..archive.archived_rows import archive_schema
from ..spark.counts import TaskCount
from ..spark.shipped_app import ShippedApp
from ..warehouse.columns import Columns
from ..warehouse.warehouse import Warehouse
from .bus_source import messages
from .decoding import Decoding, LeftOutParam, LeftOuts
from .handoff_offsets import HandoffOffsets, borders_of
from .origins import Origin

STRETCH_EVENTS = 250_000
"""How many offsets of a bucket a task reads."""


@dataclass(frozen=True)
class BusPart:
    """What is read from the bus.

    Args:
        bus: the bus.
        app: where workers find the app.
        borders: by category.
        left_out: what does not decode.
    """

    bus: KafkaBus
    app: ShippedApp
    borders: Mapping[str, HandoffOffsets]
    left_out: Accumulator[LeftOuts]

    @staticmethod
    def of(
        spark: SparkSession, bus: KafkaBus, app: ShippedApp, warehouse: Warehouse, categories: Iterable[AnyCategory]
    ) -> BusPart:
        """Look where the archive of each category ends now, and where the bus does.

        Raises:
            BackfillRefused: the two do not meet.
            BusError: as the bus raises.
        """
        borders = {category.name: borders_of(bus, warehouse, category.name) for category in categories}
        return BusPart(bus, app, borders, spark.sparkContext.accumulator({}, LeftOutParam()))

    def events(self, spark: SparkSession, category: AnyCategory) -> DataFrame | None:
        """Return a category's events behind its borders, without their day; None where there are none."""
        stretches = self.borders[category.name].stretches(STRETCH_EVENTS)
        if not stretches:
            return None
        settings = self.bus.settings.self_contained()
        decoding = Decoding(self.app, category.name, settings, self.left_out)
        schema = from_arrow_schema(archive_schema(Columns(category.record)))
        return messages(spark, settings, stretches).mapInArrow(decoding.transform, schema)

    def origins(self, spark: SparkSession, categories: Iterable[AnyCategory]) -> dict[str, Origin]:
        """Return what counts where a processor's events come from, by category; without those that the run itself gives."""
        context = spark.sparkContext
        names = [category.name for category in categories if category.name in self.borders]
        return {
            name: Origin(self.borders[name].offsets, TaskCount.of(context), TaskCount.of(context)) for name in names
        }

    def notes(self, origins: Mapping[str, Origin]) -> Iterator[str]:
        """Say where the events came from that a processor has read, and what was left out."""
        for category, origin in origins.items():
            yield f"{category}: {origin.archived.value:,} events from the warehouse, {origin.live.value:,} from the bus"
            dropped = self.borders[category].dropped
            if dropped:
                yield f"{category}: the bus has dropped {dropped:,} offsets that were never archived, and they are not in the result"
            yield from self._left_out(category)

    def _left_out(self, category: str) -> Iterator[str]:
        found = sorted((place, one) for place, one in self.left_out.value.items() if place[0] == category)
        if found:
            (_, bucket, _), first = found[0]
            yield (
                f"{category}: {sum(one.messages for _, one in found):,} messages on the bus do not decode and were left out, the first at "
                f"offset {first.offset} of bucket {bucket}: {first.reason}"
            )
