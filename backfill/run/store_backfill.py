"""A backfill into an aggregator's remote store, and the first values of one that has never run.

    the store's own positions, shard by shard   -> the archived events before them -> values in the place of what was counted
    the archive's end, where nothing was counted -> all that is archived            -> values, then that position, then the group's

Which events are in a value is decided once, by a position, and the position is in the store beside the values. So what is computed in batch
and what workers count from there on meet without an event too many or too few.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation calls it

from ...processors.declare.aggregator import Aggregator
from ...processors.declare.apps import AppName
from ...processors.declare.processor import Processor
from ...processors.shard.checkpoints import is_remote
from ...processors.shard.position import Offsets
from ...processors.time.windows import GlobalWindow
from ...state.remote.rebuild import rebuilds
from ...transport.bus import Bus
from ...transport.messages import Bucket, Position
from ...transport.tables.maintenance_start import expect_idle
from ...transport.tables.registrations import register_positions
from ..archive.archived_ends import archived_ends
from ..errors import BackfillRefused
from ..sources.coverage import EVER, WantedDays, covered, noted
from ..sources.source import Source, in_days, spark_schema
from ..spark.counts import Counters, taken_by
from ..spark.failures import told
from ..spark.progress import Progress, followed, silent
from ..spark.session import spark_session
from ..spark.shipping import place
from ..steps.step import Step
from ..steps.store_loader import REFILLED, SHARD_PARTIALS, Refill, no_slot, refiller, sharder
from ..warehouse.columns import Columns
from ..warehouse.layout import Days
from ..warehouse.warehouse import Warehouse
from .bootstrap import only_one, refuse_begun, refuse_unarchived
from .bootstrap_handoff import settled_move
from .plans import days_read, in_bus_order


@dataclass(frozen=True)
class RefilledShard:
    """What became of one shard.

    Args:
        bucket: which.
        position: up to where its values reflect each input.
        written: how many values were written.
        removed: how many were removed, since nothing was computed for them.
    """

    bucket: int
    position: Offsets
    written: int
    removed: int


@dataclass(frozen=True)
class Refilled:
    """What was done to an aggregator's store.

    Args:
        processor: its class's name.
        shards: one for each bucket of which anything was counted, or is archived.
        events: how many archived events were taken.
        set_aside: events that raised and were left out, as the processor asks.
        seconds: how long it took.
        note: what else a reader should know; may be empty.
    """

    processor: str
    shards: Sequence[RefilledShard]
    events: int
    set_aside: int
    seconds: float
    note: str


@dataclass(frozen=True)
class StoreDestination:
    """Where an aggregator's state lives.

    Args:
        bus: where its group is.
        url: its store, with its password.
    """

    bus: Bus
    url: str = field(repr=False)


def refill_store(
    app_name: AppName,
    warehouse: Warehouse,
    destination: StoreDestination,
    *,
    first: date,
    last: date,
    master: str = "local[*]",
    allow_missing: bool = False,
    progress: Progress = silent,
) -> Refilled:
    """Compute the windows that begin on some days anew, and put them in the place of what an aggregator's store has.

    They are computed of exactly the events that the store has counted, which are those before its positions, and a run that died is
    started again. Of a window that never ends, all events count. What the aggregator writes to a category is not sent again.

    Args:
        app_name: one aggregator of an app, with a remote store.
        warehouse: the archive of its inputs.
        destination: where its state lives.
        first: the first UTC day of event time.
        last: the last UTC day, itself included.
        master: where Spark runs.
        allow_missing: go on where days of the inputs are missing, or are not complete; see `coverage`.
        progress: told how far it is.

    Raises:
        BackfillRefused: it cannot be done; nothing was changed.
        BackfillFailed: an event, Spark or the store failed; each value is the one that was or the one that was computed.
        GroupInUse: a worker of it runs.
        StateError: the store does not let us do it.
    """
    if last < first:
        raise BackfillRefused(f"No day lies between {first} and {last}: give the earlier one first.")
    processor, days = _remote(app_name), Days(first, last)
    ever = isinstance(processor.window, GlobalWindow)
    read = EVER if ever else days_read(processor, None, days)
    missing = covered(
        warehouse, [WantedDays(one, read, days) for one in processor.inputs()], allow_missing=allow_missing
    )
    settled_move(processor, destination.bus)
    expect_idle(processor, destination.bus)
    with rebuilds(destination.url, processor) as shards:
        _refuse_broken_off(processor, shards.broken_off())
        positions = shards.counted()
    if not positions:
        raise BackfillRefused(
            f"{processor.__name__} has counted nothing yet, so there is nothing to replace, and nobody would know which events a few days "
            "are made of. Nothing was changed. Build its state of all that is archived: penstock bootstrap."
        )
    _refuse_behind(processor, positions, _ends(processor, destination.bus, warehouse))
    refill = Refill(destination.url, positions, None if ever else days)
    what = "its window never ends, so that all events are in it" if ever else "windows that begin on these days"
    filling = _Filling(app_name, processor, refill, read, noted(missing, processor.inputs(), what))
    return filling.run(warehouse, master, progress)


def bootstrap_store(
    app_name: AppName,
    warehouse: Warehouse,
    destination: StoreDestination,
    *,
    first: date | None = None,
    master: str = "local[*]",
    overwrite: bool = False,
    allow_missing: bool = False,
    progress: Progress = silent,
) -> Refilled:
    """Fill an aggregator's store from the archive, and let its workers go on at the archive's end.

    Until a shard is whole nobody opens it, so a run that died is started again. Shards that are at a position already are computed
    up to that.

    Args:
        app_name: one aggregator of an app, with a remote store.
        warehouse: the archive of its inputs.
        destination: where its state is to live.
        first: the first UTC day of event time that counts; None for all that is archived.
        master: where Spark runs.
        overwrite: do so although the processor has run before: its workers then go on from here.
        allow_missing: go on where days of the inputs are missing, or are not complete; see `coverage`.
        progress: told how far it is.

    Raises:
        BackfillRefused: it cannot be done, or it has run before; nothing was changed.
        BackfillFailed: an event, Spark or the store failed; it may be started again, and until then no worker opens the shards.
        GroupInUse: a worker of it runs.
        StateError: the store does not let us do it.
    """
    processor = _remote(app_name)
    if not overwrite:
        refuse_begun(processor, destination.bus)
    read = Days(first or date.min, date.max)
    missing = covered(
        warehouse, [WantedDays(one, read, read) for one in processor.inputs()], allow_missing=allow_missing
    )
    settled_move(processor, destination.bus)
    expect_idle(processor, destination.bus)
    ends = _ends(processor, destination.bus, warehouse)
    with rebuilds(destination.url, processor) as shards:
        counted = shards.counted()
        _refuse_behind(processor, counted, ends)
        shards.begin()
    positions = {bucket: counted.get(bucket) or ends.get(bucket, {}) for bucket in range(processor.inputs()[0].buckets)}
    refill = Refill(destination.url, positions, None)
    filling = _Filling(app_name, processor, refill, read, noted(missing, processor.inputs()))
    done = filling.run(warehouse, master, progress)
    register_positions(destination.bus, processor, positions)
    destination.bus.catalog.set_committed(processor.name, _as_positions(positions))
    return done


def _remote(app_name: AppName) -> type[Aggregator]:
    """Return the one aggregator that is named.

    Raises:
        BackfillRefused: there are several, or its state is not in a store, or the archive does not determine it.
    """
    processor = only_one(app_name)
    if not (issubclass(processor, Aggregator) and is_remote(processor)):
        raise BackfillRefused(
            f"{processor.__name__} keeps no state in a remote store, so there is none to fill. Nothing was started. Name an aggregator with "
            "`store = penstock.RemoteStore(…)`, or write the batch's output to files."
        )
    if len(processor.inputs()) > 1 and not processor.monoid.commutative:
        names = ", ".join(category.name for category in processor.inputs())
        raise BackfillRefused(
            f"{processor.__name__} reads several categories ({names}), and its monoid combines in the order in which their events met, which is "
            "not archived. Nothing was started. Choose a monoid that is commutative, or let the stream read the past."
        )
    for category in processor.inputs():
        Columns(category.record)
    return processor


def _refuse_broken_off(processor: type[Processor], buckets: Sequence[int]) -> None:
    if buckets:
        raise BackfillRefused(
            f"{processor.__name__}: its state is being built from the archive, or was when that broke off (bucket "
            f"{', '.join(map(str, buckets))}). Nothing was changed. Let `penstock bootstrap` come to its end; one that broke off is started again."
        )


def _ends(processor: type[Processor], bus: Bus, warehouse: Warehouse) -> dict[int, Offsets]:
    """Return up to where the inputs are archived, by bucket."""
    ends: dict[int, Offsets] = {}
    for category in processor.inputs():
        for bucket, offset in archived_ends(bus, warehouse, category.name).items():
            ends.setdefault(bucket, {})[category.name] = offset
    return ends


def _refuse_behind(processor: type[Processor], counted: Mapping[int, Offsets], archived: Mapping[int, Offsets]) -> None:
    """Raise BackfillRefused where the store has counted events that are not archived yet."""
    for bucket, position in counted.items():
        for name, offset in position.items():
            end = archived.get(bucket, {}).get(name, 0)
            if end < offset:
                raise BackfillRefused(
                    f"{processor.__name__} has counted {Bucket(name, bucket)} up to offset {offset}, and it is archived up to {end}: what lies "
                    "between would be missing from what is computed. No value was changed. Let the archiver catch up (penstock archive run "
                    "… --until-end), and start this again."
                )


@dataclass(frozen=True)
class _Filling:
    """What is computed and where it goes.

    Args:
        app_name: the app.
        processor: whose store is filled.
        refill: where the values go.
        read: the days of event time whose events are read.
        note: what a reader of the result should know.
    """

    app_name: AppName
    processor: type[Aggregator]
    refill: Refill
    read: Days
    note: str

    def run(self, warehouse: Warehouse, master: str, progress: Progress) -> Refilled:
        """Compute it in Spark, and put it there."""
        began_s, name = time.monotonic(), self.processor.__name__
        with spark_session(master) as spark:
            source = Source(spark, warehouse)
            refuse_unarchived(self.processor, source)
            with told("Sending the app to Spark"):
                app = place(spark.sparkContext, self.app_name, [self.processor])
            steps = [
                Step(app, self.processor.name, category.name, Counters.of(spark.sparkContext))
                for category in self.processor.inputs()
            ]
            counters = [step.counters for step in steps]
            with told(name), followed(spark.sparkContext, name, lambda: taken_by(counters), progress):
                rows = self._by_shard(spark, self._partials(source, steps))
                done = rows.mapInArrow(refiller(steps[0], self.refill), spark_schema(REFILLED)).collect()
        shards = [
            RefilledShard(row.bucket, self.refill.positions[row.bucket], row.written, row.removed) for row in done
        ]
        return Refilled(
            name,
            sorted(shards, key=lambda shard: shard.bucket),
            taken_by(counters),
            sum(count.set_aside.value for count in counters),
            time.monotonic() - began_s,
            self.note,
        )

    def _partials(self, source: Source, steps: Sequence[Step]) -> DataFrame:
        wanted = in_days(str(self.read.first), str(self.read.last))
        frames = [
            in_bus_order(self.processor, source.events(category).where(wanted)).mapInArrow(
                sharder(step, self.refill), spark_schema(SHARD_PARTIALS)
            )
            for category, step in zip(self.processor.inputs(), steps, strict=True)
        ]
        return reduce(DataFrame.unionAll, frames)

    def _by_shard(self, spark: SparkSession, partials: DataFrame) -> DataFrame:
        """Bring what is to be written of each shard together; every shard is there."""
        buckets = self.refill.positions
        all_shards = spark.createDataFrame([no_slot(bucket) for bucket in buckets], spark_schema(SHARD_PARTIALS))
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
