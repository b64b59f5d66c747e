"""Bootstrap: the state that a stream job would have now, had it read all of the archive; the job then goes on from there.

archive --by bucket, in order of arrival, through the shard's own core--> its state, stored where the shard's backups are
                                                  all of them stored --> handed over: backups, the group's positions

Until all are stored nobody finds what was built, and a worker of that name is as it was. From then on it restores the states, and goes on
behind the last archived event.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation calls it

from ...processors.declare.apps import AppName
from ...processors.declare.processor import Processor
from ...processors.declare.stateless import Stateless
from ...processors.shard.checkpoints import is_remote
from ...processors.shard.position import Offsets, StatePosition
from ...processors.time.watermarks import UpstreamWatermark
from ...state.backups.manifest import Manifest
from ...state.files.file_store import FileStore
from ...transport.bus import Bus
from ...transport.kafka import KafkaBus
from ...transport.tables.maintenance_log import newest_maintenance
from ...transport.tables.registrations import registration_of, topic_ids_of
from ..errors import BackfillRefused
from ..sources.bus_part import BusPart
from ..sources.coverage import WantedDays, covered
from ..sources.handoff_offsets import HandoffOffsets, borders_of
from ..sources.source import Source, spark_schema
from ..spark.counts import Counters, taken_by
from ..spark.failures import told
from ..spark.hadoop import Folders
from ..spark.progress import Progress, followed, silent
from ..spark.session import spark_session
from ..spark.shipping import place
from ..steps.inputs import Inputs, by_arrival, merged
from ..steps.state_builder import BUILT, BackupTarget, state_builder
from ..steps.step import Step
from ..warehouse.columns import Columns
from ..warehouse.layout import Days
from ..warehouse.warehouse import Warehouse
from .bootstrap_handoff import WHAT, committed_by, plan_handoff


@dataclass(frozen=True)
class BuiltShard:
    """The state of one shard.

    Args:
        bucket: which.
        position: the next offset of each input.
        events: how many archived events it was made of.
        keys: about how many values it has.
        size_bytes: how large its database is.
        backup: which backup of the shard it is.
    """

    bucket: int
    position: Offsets
    events: int
    keys: int
    size_bytes: int
    backup: str


@dataclass(frozen=True)
class Bootstrapped:
    """What a bootstrap did.

    Args:
        processor: its class's name.
        shards: one for each bucket of which anything was archived.
        set_aside: events that raised and were left out, as the processor asks.
        seconds: how long it took.
        notes: what else a reader should know.
    """

    processor: str
    shards: Sequence[BuiltShard]
    set_aside: int
    seconds: float
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Destination:
    """Where a bootstrapped processor is to run.

    Args:
        bus: whose positions are set.
        place: where its workers look for backups.
        webhdfs: for a place on HDFS, the address of WebHDFS.
    """

    bus: Bus
    place: FileStore
    webhdfs: str | None = None


def bootstrap(
    app_name: AppName,
    warehouse: Warehouse,
    destination: Destination,
    *,
    first: date | None = None,
    master: str = "local[*]",
    overwrite: bool = False,
    until_now: KafkaBus | None = None,
    allow_missing: bool = False,
    progress: Progress = silent,
) -> Bootstrapped:
    """Build the state of a processor from the archive, and let its workers go on from there.

    Args:
        app_name: one processor of an app.
        warehouse: the archive of its inputs.
        destination: where it is to run.
        first: the first UTC day of event time that counts; None for all that is archived.
        master: where Spark runs.
        overwrite: do so although the processor has run before: its workers then go on from here, wherever they run.
        until_now: the destination's bus, to read on from it where the archive ends, up to where it ends itself as this begins; None
            for the archive alone.
        allow_missing: go on where days of the inputs are missing, or are not complete; see `coverage`.
        progress: told how far it is.

    Raises:
        BackfillRefused: it cannot be done, or it has run before, or runs meanwhile; nothing was changed.
        BackfillFailed: an event or Spark failed; nothing was changed.
        GroupInUse: a worker of it runs; nothing was changed.
        FileStoreUnreachable, BusError: if what was built was about to be handed over, no worker starts until this is given again; otherwise
            nothing was changed.
    """
    processor = only_one(app_name)
    _refuse(processor)
    if not overwrite:
        refuse_begun(processor, destination.bus)
    handing_over = plan_handoff(processor, destination.bus, destination.place)
    read = Days(first or date.min, date.max)
    beyond = allow_missing or until_now is not None  # what the archive has not yet, the bus has
    covered(warehouse, [WantedDays(one, read, read) for one in processor.inputs()], allow_missing=beyond)
    began_s, topic_ids = time.monotonic(), topic_ids_of(destination.bus, processor)
    with spark_session(master) as spark:
        with told("Sending the app to Spark"):
            app = place(spark.sparkContext, app_name, [processor])
        bus = BusPart.of(spark, until_now, app, warehouse, processor.inputs()) if until_now else None
        borders = bus.borders if bus else _archive_only(processor, warehouse, destination.bus)
        source = Source(spark, warehouse, bus=bus, ends=borders)
        refuse_unarchived(processor, source)
        origins = bus.origins(spark, processor.inputs()) if bus else {}
        steps = [
            Step(app, processor.name, it.name, Counters.of(spark.sparkContext), origins.get(it.name))
            for it in processor.inputs()
        ]
        counters = [step.counters for step in steps]
        following = followed(spark.sparkContext, processor.__name__, lambda: taken_by(counters), progress)
        with told(processor.__name__), following:
            events = merged(processor, source, first)
            reach = _reach(events, processor, borders)
            handing_over.expect_keyed_alike({n: one.begins for n, one in reach.items()})
            ends = {
                n: StatePosition(one.position, maintenance_number=handing_over.number, topic_ids=topic_ids)
                for n, one in reach.items()
            }
            target = BackupTarget(destination.place.location, destination.webhdfs, ends)
            rows = by_arrival(events, processor.inputs()[0].buckets)
            built = rows.mapInArrow(state_builder(Inputs(steps), target), spark_schema(BUILT)).collect()
    keys = {row.bucket: row.keys for row in built}
    manifests = {row.bucket: Manifest.decode(bytes(row.manifest)) for row in sorted(built)}
    handing_over.perform(manifests)
    shards = [_described(bucket, reach[bucket], keys[bucket], manifest) for bucket, manifest in manifests.items()]
    notes = (*(bus.notes(origins) if bus else ()), *_noted(handing_over.untouched(manifests)))
    set_aside = sum(count.set_aside.value for count in counters)
    return Bootstrapped(processor.__name__, shards, set_aside, time.monotonic() - began_s, notes)


def only_one(app_name: AppName) -> type[Processor]:
    """Return the processor that is named; raise BackfillRefused where the app has several."""
    processors = app_name.load().processors
    if len(processors) > 1:
        names = ", ".join(processor.__name__ for processor in processors)
        raise BackfillRefused(
            f"{app_name.path} has several processors ({names}), and each is bootstrapped by itself. Nothing was started. Name one: "
            f"{app_name.path}:{processors[0].__name__}."
        )
    return processors[0]


def _refuse(processor: type[Processor]) -> None:
    """Raise BackfillRefused for a processor that has no state here, or one that the archive does not determine."""
    name = processor.__name__
    if issubclass(processor, Stateless):
        raise BackfillRefused(f"{name} keeps no state, so there is nothing to build. Nothing was started. Run it.")
    if is_remote(processor):
        raise BackfillRefused(
            f"{name} keeps its state in a remote store, and not in backups. Nothing was started. Name the store (`--store`), which is filled "
            "instead."
        )
    if isinstance(processor.watermark, UpstreamWatermark):
        raise BackfillRefused(
            f"{name} goes by what was promised about its inputs, and the archive does not hold when which promise came: what its state would "
            "be is not known. Nothing was started. Declare another `watermark`, or let the stream read the past."
        )
    for category in processor.inputs():
        Columns(category.record)


def _described(bucket: int, reach: _Reach, keys: int, manifest: Manifest) -> BuiltShard:
    return BuiltShard(bucket, reach.position, reach.events, keys, manifest.size_bytes, str(manifest.id))


def _noted(untouched: Sequence[int]) -> list[str]:
    if not untouched:
        return []
    return [f"Nothing is archived of bucket {', '.join(map(str, untouched))}, which stays where it was, with its state"]


def refuse_begun(processor: type[Processor], bus: Bus) -> None:
    """Raise BackfillRefused where a processor's group has positions, unless a bootstrap that died has set them."""
    move = newest_maintenance(bus, processor.name)
    if move is not None and not move.done and move.what == WHAT:
        return
    begun, known = committed_by(processor, bus), registration_of(bus, processor.name)
    if any(begun.values()) or any(shard.has_committed for shard in known.shards.values()):
        raise BackfillRefused(
            f"{processor.__name__} has run already: its group {processor.name} is at {begun}. Nothing was started. Give the processor "
            "another name, so that both can run side by side; or replace its state and its positions with `--overwrite`: its workers then go "
            "on from there, whatever state they have on their disks."
        )


def refuse_unarchived(processor: type[Processor], source: Source) -> None:
    """Raise BackfillRefused where the warehouse lacks what a processor reads."""
    archive = Folders(source.spark, source.location)
    missing = [category.name for category in processor.inputs() if not (source.bus or archive.has(category.name))]
    if missing:
        raise BackfillRefused(
            f"{processor.__name__} reads {', '.join(missing)}, which is not in the warehouse {source.location}. Nothing was started. "
            "Archive it first."
        )


@dataclass(frozen=True)
class _Reach:
    """What is read of a bucket: the first and the next offset of each input, and how many events there are."""

    begins: Offsets
    position: Offsets
    events: int


def _reach(
    events: DataFrame, processor: type[Processor], borders: Mapping[str, HandoffOffsets]
) -> Mapping[int, _Reach]:
    """Return what is read of each bucket of which there is anything.

    The next offsets are the borders, and not behind the last events: files may hold some that lie behind others that are missing.
    """
    names = [category.name for category in processor.inputs()]
    found: dict[int, _Reach] = {}
    rows = (
        events.groupBy("_bucket", "_input").agg(F.min("_offset").alias("first"), F.count("*").alias("events")).collect()
    )
    for bucket, number, first, count in rows:
        position = {name: end for name in names if (end := borders[name].ends.get(bucket, 0))}
        before = found.get(bucket, _Reach({}, position, 0))
        found[bucket] = _Reach({**before.begins, names[number]: first}, position, before.events + count)
    return found


def _archive_only(processor: type[Processor], warehouse: Warehouse, bus: Bus) -> dict[str, HandoffOffsets]:
    """Return where the archive of each input ends, bucket by bucket.

    Raises:
        BackfillRefused: the archive and the bus do not meet there, so that no worker could go on.
    """
    return {one.name: borders_of(bus, warehouse, one.name).archive_only() for one in processor.inputs()}
