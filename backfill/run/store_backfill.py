"""Backfill into an aggregator's remote store, and the first load of a store.

    positions in the store, shard by shard -> archived events before them -> values, replacing those in the store
    the archive's end, without positions   -> all archived events         -> values, then that position, then the group's

A position in the store, beside the values, determines the events that a value includes. So batch and workers together count each event
exactly once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation calls it

from ...processors.apps import AppName
from ...processors.declare import Aggregator, Processor, plan_of
from ...processors.shard import Offsets, is_remote
from ...processors.time import GlobalWindow
from ...state.remote import open_rebuild
from ...transport import Bucket, Bus, Position
from ...transport.tables import Bootstrap, operation_to_replace, register_positions, require_idle
from ..archive import archived_ends
from ..errors import BackfillRefused
from ..sources import (
    ALL_DAYS,
    BatchEvents,
    WantedDays,
    check_coverage,
    expect_archived,
    in_days,
    joined_notes,
    spark_schema,
)
from ..spark import (
    Counters,
    Progress,
    no_progress,
    reported_progress,
    ship,
    spark_session,
    total_events_in,
    translated_errors,
)
from ..steps import LOADED, SHARD_PARTIALS, BatchStep, StoreLoad, empty_shard_row, shard_partials, store_writer
from ..warehouse import Days, RecordColumns, Warehouse
from .bootstrap import refuse_if_started, single_processor
from .plans import days_read, in_bus_order, merges_within_messages


@dataclass(frozen=True)
class WrittenShard:
    """The result for one shard.

    Args:
        bucket: the number of its bucket.
        position: the position of its values in each input.
        written: the number of values written.
        removed: the number of values removed, since the archive has no events of them.
    """

    bucket: int
    position: Offsets
    written: int
    removed: int


@dataclass(frozen=True)
class StoreBackfillResult:
    """The result of a backfill into a store.

    Args:
        processor: the name of its class.
        shards: one for each bucket with values or archived events.
        events: the number of archived events processed.
        rejected: events skipped under the processor's error policy.
        seconds: the duration.
        note: a remark for the reader; may be empty.
    """

    processor: str
    shards: Sequence[WrittenShard]
    events: int
    rejected: int
    seconds: float
    note: str


@dataclass(frozen=True)
class StoreTarget:
    """The bus and store of an aggregator.

    Args:
        bus: the bus with its group.
        url: its store, with the password.
    """

    bus: Bus
    url: str = field(repr=False)


def backfill_store(
    app_name: AppName,
    warehouse: Warehouse,
    destination: StoreTarget,
    *,
    first: date,
    last: date,
    master: str = "local[*]",
    allow_missing: bool = False,
    progress: Progress = no_progress,
) -> StoreBackfillResult:
    """Compute the windows that begin on some days again, and replace the values in an aggregator's store.

    The values include exactly the events before the store's positions, which the store has counted, too. A crashed run can be repeated. A
    window that never ends includes all events. The aggregator's outputs are not sent again.

    Args:
        app_name: one aggregator of an app, with a remote store.
        warehouse: the archive of its inputs.
        destination: its bus and store.
        first: the first UTC day of event time.
        last: the last UTC day, inclusive.
        master: the Spark master.
        allow_missing: continue if days of the inputs are missing or incomplete; see `coverage`.
        progress: receives the progress.

    Raises:
        BackfillRefused: the backfill is impossible; nothing was changed.
        BackfillFailed: an event, Spark or the store failed; each value is either the old or the computed one.
        GroupInUse: a worker of the processor runs.
        StateError: the store refuses access.
    """
    if last < first:
        raise BackfillRefused(f"The first day, {first}, is later than the last day, {last}. Exchange them.")
    processor, days = _remote(app_name), Days(first, last)
    endless = isinstance(processor.window, GlobalWindow)
    read = ALL_DAYS if endless else days_read(processor, None, days)
    missing = check_coverage(
        warehouse,
        [WantedDays(category, read, days) for category in plan_of(processor).sources],
        allow_missing=allow_missing,
    )
    operation_to_replace(processor, destination.bus, Bootstrap())
    require_idle(processor, destination.bus)
    with open_rebuild(destination.url, processor) as shards:
        _refuse_interrupted(processor, shards.unfinished())
        positions = shards.positions()
    if not positions:
        raise BackfillRefused(
            f"{processor.__name__} has no values in its store yet, so a backfill of some days would lack a position. "
            "Nothing was changed. Load the store from the whole archive first: penstock bootstrap."
        )
    _refuse_behind(processor, positions, _ends(processor, destination.bus, warehouse))
    load = StoreLoad(destination.url, positions, None if endless else days)
    scope = "its window never ends and includes all events" if endless else "windows that begin on these days"
    store_backfill = _StoreBackfill(
        app_name, processor, load, read, joined_notes(missing, plan_of(processor).sources, scope)
    )
    return store_backfill.run(warehouse, master, progress)


def bootstrap_store(
    app_name: AppName,
    warehouse: Warehouse,
    destination: StoreTarget,
    *,
    first: date | None = None,
    master: str = "local[*]",
    overwrite: bool = False,
    allow_missing: bool = False,
    progress: Progress = no_progress,
) -> StoreBackfillResult:
    """Load an aggregator's store from the archive, and let its workers continue at the archive's end.

    No worker opens a shard before it is complete, so a crashed run can be repeated. Shards that already have a position are computed up to
    that position.

    Args:
        app_name: one aggregator of an app, with a remote store.
        warehouse: the archive of its inputs.
        destination: its bus and store.
        first: the first UTC day of event time; None for the whole archive.
        master: the Spark master.
        overwrite: replace the values of a processor that has run before.
        allow_missing: continue if days of the inputs are missing or incomplete; see `coverage`.
        progress: receives the progress.

    Raises:
        BackfillRefused: the load is impossible, or the processor has run before; nothing was changed.
        BackfillFailed: an event, Spark or the store failed; no worker opens the shards until this command is repeated.
        GroupInUse: a worker of the processor runs.
        StateError: the store refuses access.
    """
    processor = _remote(app_name)
    if not overwrite:
        refuse_if_started(processor, destination.bus)
    read = Days(first or date.min, date.max)
    missing = check_coverage(
        warehouse,
        [WantedDays(category, read, read) for category in plan_of(processor).sources],
        allow_missing=allow_missing,
    )
    operation_to_replace(processor, destination.bus, Bootstrap())
    require_idle(processor, destination.bus)
    ends = _ends(processor, destination.bus, warehouse)
    with open_rebuild(destination.url, processor) as shards:
        counted = shards.positions()
        _refuse_behind(processor, counted, ends)
        shards.begin()
    positions = {
        bucket: counted.get(bucket) or ends.get(bucket, {}) for bucket in range(plan_of(processor).sources[0].buckets)
    }
    load = StoreLoad(destination.url, positions, None)
    store_backfill = _StoreBackfill(app_name, processor, load, read, joined_notes(missing, plan_of(processor).sources))
    done = store_backfill.run(warehouse, master, progress)
    register_positions(destination.bus, processor, positions)
    destination.bus.catalog.set_committed(processor.name, _as_positions(positions))
    return done


def _remote(app_name: AppName) -> type[Aggregator]:
    """Return the named aggregator with a remote store.

    Raises:
        BackfillRefused: the app has several processors, the state is not in a store, or the archive does not determine it.
    """
    processor = single_processor(app_name)
    if not (issubclass(processor, Aggregator) and is_remote(processor)):
        raise BackfillRefused(
            f"{processor.__name__} has no remote store. Nothing was started. Name an aggregator with "
            "`store = penstock.RemoteStore(…)`, or write the batch output to files."
        )
    if len(plan_of(processor).sources) > 1 and not processor.monoid.commutative:
        names = ", ".join(category.name for category in plan_of(processor).sources)
        raise BackfillRefused(
            f"{processor.__name__} reads several categories ({names}), and its monoid depends on the order of arrival of their events, which is "
            "not archived. Nothing was started. Choose a commutative monoid, or let the stream read the past."
        )
    if merges_within_messages(processor):
        raise BackfillRefused(
            f"{processor.__name__} reads messages with several events each, and its monoid depends on the order of the events, which partials do not "
            "keep. Nothing was started. Choose a commutative monoid, or let the stream read the past."
        )
    for category in plan_of(processor).sources:
        RecordColumns(category.record)
    return processor


def _refuse_interrupted(processor: type[Processor], buckets: Sequence[int]) -> None:
    if buckets:
        raise BackfillRefused(
            f"{processor.__name__}: a bootstrap is in progress or was interrupted (bucket "
            f"{', '.join(map(str, buckets))}). Nothing was changed. Wait for `penstock bootstrap` to end, or run it again if it was interrupted."
        )


def _ends(processor: type[Processor], bus: Bus, warehouse: Warehouse) -> dict[int, Offsets]:
    """Return the end of the archive of each input, by bucket."""
    ends: dict[int, Offsets] = {}
    for category in plan_of(processor).sources:
        for bucket, offset in archived_ends(bus, warehouse, category.name).items():
            ends.setdefault(bucket, {})[category.name] = offset
    return ends


def _refuse_behind(processor: type[Processor], counted: Mapping[int, Offsets], archived: Mapping[int, Offsets]) -> None:
    """Raise BackfillRefused if the store includes events that are not archived yet."""
    for bucket, position in counted.items():
        for name, offset in position.items():
            end = archived.get(bucket, {}).get(name, 0)
            if end < offset:
                raise BackfillRefused(
                    f"{processor.__name__} has counted {Bucket(name, bucket)} up to offset {offset}, but it is archived up to {end}: the events "
                    "between would be missing from the result. No value was changed. Let the archiver catch up (penstock archive run "
                    "… --until-end), and run this command again."
                )


@dataclass(frozen=True)
class _StoreBackfill:
    """The computation of values for a store.

    Args:
        app_name: the app.
        processor: the aggregator.
        load: the target of the values.
        read: the days of event time to read.
        note: a remark for the reader of the result.
    """

    app_name: AppName
    processor: type[Aggregator]
    load: StoreLoad
    read: Days
    note: str

    def run(self, warehouse: Warehouse, master: str, progress: Progress) -> StoreBackfillResult:
        """Compute the values in Spark and write them."""
        began_s, name = time.monotonic(), self.processor.__name__
        expect_archived(self.processor, plan_of(self.processor).sources, warehouse)
        with spark_session(master) as spark:
            source = BatchEvents(spark, warehouse)
            with translated_errors("Sending the app to Spark"):
                app = ship(spark.sparkContext, self.app_name, [self.processor])
            steps = [
                BatchStep(app, self.processor.name, category.name, Counters.of(spark.sparkContext))
                for category in plan_of(self.processor).sources
            ]
            counters = [step.counters for step in steps]
            with (
                translated_errors(name),
                reported_progress(spark.sparkContext, name, lambda: total_events_in(counters), progress),
            ):
                rows = self._by_shard(spark, self._partials(source, steps))
                done = rows.mapInArrow(store_writer(steps[0], self.load), spark_schema(LOADED)).collect()
        shards = [WrittenShard(row.bucket, self.load.positions[row.bucket], row.written, row.removed) for row in done]
        return StoreBackfillResult(
            name,
            sorted(shards, key=lambda shard: shard.bucket),
            total_events_in(counters),
            sum(count.rejected.value for count in counters),
            time.monotonic() - began_s,
            self.note,
        )

    def _partials(self, source: BatchEvents, steps: Sequence[BatchStep]) -> DataFrame:
        wanted = in_days(str(self.read.first), str(self.read.last))
        frames = [
            in_bus_order(self.processor, source.events(category).where(wanted)).mapInArrow(
                shard_partials(step, self.load), spark_schema(SHARD_PARTIALS)
            )
            for category, step in zip(plan_of(self.processor).sources, steps, strict=True)
        ]
        return reduce(DataFrame.unionAll, frames)

    def _by_shard(self, spark: SparkSession, partials: DataFrame) -> DataFrame:
        """Group the partials by shard, with at least one row per shard."""
        buckets = self.load.positions
        all_shards = spark.createDataFrame(
            [empty_shard_row(bucket) for bucket in buckets], spark_schema(SHARD_PARTIALS)
        )
        return (
            partials.unionAll(all_shards)
            .repartitionById(max(buckets) + 1, F.col("bucket"))
            .sortWithinPartitions("bucket", "slot", "offset")
        )


def _as_positions(positions: Mapping[int, Offsets]) -> list[Position]:
    return [
        Position(Bucket(name, bucket), offset)
        for bucket, position in sorted(positions.items())
        for name, offset in position.items()
    ]
