"""Bootstrap: build the state of a stream job from the archive, from which its workers continue.

archive --by bucket, in order of arrival, through the shard's operator--> state of each shard, stored with its backups
                                                          all stored --> handoff: backups, the group's positions

Until all states are stored, they are invisible and workers are unaffected. After the handoff, workers restore the states and continue
after the last archived event.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation calls it

from ...processors.apps import AppName
from ...processors.declare import Processor, Stateless, plan_of
from ...processors.shard import Offsets, StatePosition, is_remote
from ...state.backups import Manifest
from ...state.files import FileStore
from ...transport import Bus
from ...transport.kafka import KafkaBus
from ...transport.tables import Bootstrap, newest_maintenance, registration_of, topic_ids_of
from ..errors import BackfillRefused
from ..sources import (
    BatchEvents,
    BusPart,
    HandoffOffsets,
    WantedDays,
    check_coverage,
    expect_archived,
    handoff_offsets,
    spark_schema,
)
from ..spark import (
    Counters,
    OriginCounts,
    Progress,
    ShippedApp,
    no_progress,
    reported_progress,
    ship,
    spark_session,
    total_events_in,
    translated_errors,
)
from ..steps import BUILT, BackupTarget, BatchStep, Inputs, by_arrival, merged_inputs, state_builder
from ..warehouse import DAY_COLUMN, Days, RecordColumns, Warehouse
from .bootstrap_handoff import BootstrapHandoff, committed_by, plan_handoff
from .plans import expect_no_loop


@dataclass(frozen=True)
class BuiltShard:
    """The built state of one shard.

    Args:
        bucket: the number of its bucket.
        position: the next offset of each input.
        events: the number of archived events.
        keys: the estimated number of values.
        size_bytes: the size of its database.
        backup: the id of its backup.
    """

    bucket: int
    position: Offsets
    events: int
    keys: int
    size_bytes: int
    backup: str


@dataclass(frozen=True)
class BootstrapResult:
    """The result of a bootstrap.

    Args:
        processor: the name of its class.
        shards: one for each bucket with archived events.
        rejected: events skipped under the processor's error policy.
        seconds: the duration.
        notes: remarks for the reader.
    """

    processor: str
    shards: Sequence[BuiltShard]
    rejected: int
    seconds: float
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class BootstrapTarget:
    """The environment of the bootstrapped processor's workers.

    Args:
        bus: the bus, on which positions are set.
        place: the store of backups.
        webhdfs: the address of WebHDFS, for a store on HDFS.
    """

    bus: Bus
    place: FileStore
    webhdfs: str | None = None


def bootstrap(
    app_name: AppName,
    warehouse: Warehouse,
    destination: BootstrapTarget,
    *,
    first: date | None = None,
    master: str = "local[*]",
    overwrite: bool = False,
    until_now: KafkaBus | None = None,
    allow_missing: bool = False,
    progress: Progress = no_progress,
) -> BootstrapResult:
    """Build the state of a processor from the archive, and let its workers continue from there.

    Args:
        app_name: one processor of an app.
        warehouse: the archive of its inputs.
        destination: the environment of its workers.
        first: the first UTC day of event time; None for the whole archive.
        master: the Spark master.
        overwrite: replace the state and positions of a processor that has run before.
        until_now: the destination's bus, to read it beyond the archive's end up to its own end at the start of the run; None for the
            archive only.
        allow_missing: continue if days of the inputs are missing or incomplete; see `coverage`.
        progress: receives the progress.

    Raises:
        BackfillRefused: the bootstrap is impossible, or the processor has run before or is running; nothing was changed.
        BackfillFailed: an event or Spark failed; nothing was changed.
        GroupInUse: a worker of the processor runs; nothing was changed.
        FileStoreUnreachable, BusError: during the handoff, no worker starts until this command is repeated; before it, nothing was
            changed.
    """
    processor = single_processor(app_name)
    _refuse_unsuitable(processor)
    if not overwrite:
        refuse_if_started(processor, destination.bus)
    handoff = plan_handoff(processor, destination.bus, destination.place)
    read = Days(first or date.min, date.max)
    tolerant = allow_missing or until_now is not None  # the bus has the days that are not archived yet
    check_coverage(
        warehouse, [WantedDays(category, read, read) for category in plan_of(processor).sources], allow_missing=tolerant
    )
    if until_now is None:
        expect_archived(processor, plan_of(processor).sources, warehouse)
    began_s, topic_ids = time.monotonic(), topic_ids_of(destination.bus, processor)
    with spark_session(master) as spark:
        with translated_errors("Sending the app to Spark"):
            app = ship(spark.sparkContext, app_name, [processor])
        bus = BusPart.of(spark, until_now, app, warehouse, plan_of(processor).sources) if until_now else None
        ends = bus.handoffs if bus else _archive_only(processor, warehouse, destination.bus)
        build = _StateBuild.of(app, processor, BatchEvents(spark, warehouse, bus=bus, ends=ends))
        counters = build.counters
        reporting = reported_progress(
            spark.sparkContext, processor.__name__, lambda: total_events_in(counters), progress
        )
        with translated_errors(processor.__name__), reporting:
            built = build.run(first, destination, handoff, topic_ids)
    manifests = {bucket: state.manifest for bucket, state in built.items()}
    handoff.perform(manifests)
    return BootstrapResult(
        processor.__name__,
        [state.described(bucket) for bucket, state in built.items()],
        sum(counter.rejected.value for counter in counters),
        time.monotonic() - began_s,
        (*build.notes(), *_unchanged_note(handoff.untouched(manifests))),
    )


class _BuiltState(NamedTuple):
    """The stored state of a shard, which the handoff turns into its newest backup."""

    reach: _Reach
    keys: int
    manifest: Manifest

    def described(self, bucket: int) -> BuiltShard:
        reach, manifest = self.reach, self.manifest
        return BuiltShard(bucket, reach.position, reach.events, self.keys, manifest.size_bytes, str(manifest.id))


@dataclass(frozen=True)
class _StateBuild:
    """The Spark job that builds and stores the state of each shard."""

    processor: type[Processor]
    source: BatchEvents
    inputs: Inputs
    origins: Mapping[str, OriginCounts]

    @staticmethod
    def of(app: ShippedApp, processor: type[Processor], source: BatchEvents) -> _StateBuild:
        plan = plan_of(processor)
        context = source.spark.sparkContext
        origins = source.bus.origins(source.spark, plan.sources) if source.bus else {}
        steps = [
            BatchStep(app, processor.name, category.name, Counters.of(context), origins.get(category.name))
            for category in plan.sources
        ]
        return _StateBuild(processor, source, Inputs(steps), origins)

    @property
    def counters(self) -> list[Counters]:
        return [step.counters for step in self.inputs.steps]

    def run(
        self,
        first: date | None,
        destination: BootstrapTarget,
        handoff: BootstrapHandoff,
        topic_ids: dict[str, str],
    ) -> dict[int, _BuiltState]:
        """Build and store the states; return them by bucket, in order."""
        wanted = None if first is None else F.col(DAY_COLUMN) >= str(first)
        events = merged_inputs(self.processor, self.source, wanted)
        reach = _reach(events, self.processor, self.source.ends)
        handoff.require_same_buckets({bucket: resumed.first_offsets for bucket, resumed in reach.items()})
        ends = {
            bucket: StatePosition(resumed.position, generation=handoff.number, topic_ids=topic_ids)
            for bucket, resumed in reach.items()
        }
        target = BackupTarget(destination.place.location, destination.webhdfs, ends)
        rows = by_arrival(events, plan_of(self.processor).sources[0].buckets)
        built = rows.mapInArrow(state_builder(self.inputs, target), spark_schema(BUILT)).collect()
        return {
            row.bucket: _BuiltState(reach[row.bucket], row.keys, Manifest.decode(bytes(row.manifest)))
            for row in sorted(built)
        }

    def notes(self) -> Iterator[str]:
        if self.source.bus is not None:
            yield from self.source.bus.notes(self.origins)


def single_processor(app_name: AppName) -> type[Processor]:
    """Return the named processor; raise BackfillRefused if the app has several, or if it is part of a loop."""
    app = app_name.load()
    processors = app.processors
    expect_no_loop(app)
    if len(processors) > 1:
        names = ", ".join(processor.__name__ for processor in processors)
        raise BackfillRefused(
            f"{app_name.path} has several processors ({names}), and a bootstrap runs for one. Nothing was started. Name one: "
            f"{app_name.path}:{processors[0].__name__}."
        )
    return processors[0]


def _refuse_unsuitable(processor: type[Processor]) -> None:
    """Raise BackfillRefused for a processor without local state, or whose state the archive does not determine."""
    name = processor.__name__
    if issubclass(processor, Stateless):
        raise BackfillRefused(f"{name} has no state, so it needs no bootstrap. Nothing was started. Run it.")
    if is_remote(processor):
        raise BackfillRefused(
            f"{name} has its state in a remote store and not in backups. Nothing was started. Pass the store (`--store`) to load it "
            "instead."
        )
    if plan_of(processor).waits_for_upstream:
        upstream = ", ".join(sorted(plan_of(processor).upstream_inputs))
        raise BackfillRefused(
            f"{name} uses the watermarks of the processors that write {upstream}, and the archive does not record when they arrived, so its state cannot be "
            f"computed. Nothing was started. Let the stream read the past (`penstock reset APP:{name} --to earliest`), or declare "
            "`watermark = penstock.watermarks.Confidence()`, which estimates it from the events."
        )
    for category in plan_of(processor).sources:
        RecordColumns(category.record)


def _unchanged_note(untouched: Sequence[int]) -> list[str]:
    if not untouched:
        return []
    return [f"No events of bucket {', '.join(map(str, untouched))} are archived; its position and state are unchanged"]


def refuse_if_started(processor: type[Processor], bus: Bus) -> None:
    """Raise BackfillRefused if a processor's group has positions, unless a crashed bootstrap set them."""
    move = newest_maintenance(bus, processor.name)
    if move is not None and not move.is_done and isinstance(move.kind, Bootstrap):
        return
    committed, registration = committed_by(processor, bus), registration_of(bus, processor.name)
    if any(committed.values()) or any(shard.has_committed for shard in registration.shards.values()):
        raise BackfillRefused(
            f"{processor.__name__} has run already: its group {processor.name} is at {committed}. Nothing was started. Give the processor "
            "another name to run both side by side; or pass `--overwrite` to replace its state and positions, including the state on its "
            "workers' disks."
        )


@dataclass(frozen=True)
class _Reach:
    """The events of a bucket: the first and the next offset of each input, and the number of events."""

    first_offsets: Offsets
    position: Offsets
    events: int


def _reach(
    events: DataFrame, processor: type[Processor], handoffs: Mapping[str, HandoffOffsets]
) -> Mapping[int, _Reach]:
    """Return the reach of each bucket with events.

    The next offsets are the handoff offsets and not those after the last events, since files may contain events beyond missing ones.
    """
    names = [category.name for category in plan_of(processor).sources]
    found: dict[int, _Reach] = {}
    rows = (
        events.groupBy("_bucket", "_input").agg(F.min("_offset").alias("first"), F.count("*").alias("events")).collect()
    )
    for bucket, number, first, count in rows:
        position = {name: end for name in names if (end := handoffs[name].ends.get(bucket, 0))}
        before = found.get(bucket, _Reach({}, position, 0))
        found[bucket] = _Reach({**before.first_offsets, names[number]: first}, position, before.events + count)
    return found


def _archive_only(processor: type[Processor], warehouse: Warehouse, bus: Bus) -> dict[str, HandoffOffsets]:
    """Return the end of each input's archive, bucket by bucket.

    Raises:
        BackfillRefused: events are missing between the archive and the bus, so that no worker could continue.
    """
    return {
        category.name: handoff_offsets(bus, warehouse, category.name).archive_only()
        for category in plan_of(processor).sources
    }
