"""A processor as the bus describes it: its group's positions, its inputs, its registration and its last maintenance operation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ....processors.declare import Processor, plan_of
from ....processors.shard import StatePosition
from ....processors.time import SavedTimes
from ....transport import Bus, Topic
from ....transport.tables import MaintenanceOperation, Registration, registration_of
from .changelog_replay import changelog_of
from .resume_checks import event_times, finished_maintenance, positions_of_group, state_positions
from .topic_watch import expect_bucket_counts


@dataclass(frozen=True)
class BusSnapshot:
    """The bus's description of a processor, by category and bucket number.

    Args:
        committed: the group's positions by bucket.
        starts: the first offset that the bus still has.
        ends: the offset after the last event; read after the positions, so no position is greater.
        compacted: the inputs that keep only the latest event of each key.
        topic_ids: the topic ids of the inputs and of the changelog.
        registration: the processor's registration from earlier runs.
        maintenance: the last maintenance operation; None without one.
        times: the event times of a processor without state at its last checkpoint, by bucket.
    """

    committed: dict[int, StatePosition]
    starts: dict[str, dict[int, int]]
    ends: dict[str, dict[int, int]]
    compacted: frozenset[str]
    topic_ids: dict[str, str]
    registration: Registration
    maintenance: MaintenanceOperation | None
    times: Mapping[int, SavedTimes] = field(default_factory=dict)

    def committed_at(self, number: int) -> StatePosition:
        """Return the group's position in a bucket; empty without one."""
        return self.committed.get(number, StatePosition())

    def have_expired(self, number: int) -> bool:
        """Return whether the group once had positions in a bucket and has none now."""
        record = self.registration.shards.get(number)
        return record is not None and record.has_committed and not self.committed_at(number).offsets

    def required_at(self, number: int) -> StatePosition:
        """Return the least position of an up-to-date state."""
        generation = 0 if self.maintenance is None else self.maintenance.lineage.generation(number)
        return self.committed_at(number).updated(StatePosition(generation=generation))


def read_bus_snapshot(processor: type[Processor], bus: Bus) -> BusSnapshot:
    """Read a snapshot. The caller is a member of the processor's group.

    Raises:
        BucketMismatch: a category has another number of buckets than declared.
        MaintenanceUnfinished: a maintenance operation is in progress.
        BusUnreachable: the bus does not answer.
    """
    # As a member of the group: a maintenance operation is recorded before it checks that the group has no members.
    plan = plan_of(processor)
    maintenance = finished_maintenance(bus, processor.name)
    committed = positions_of_group(processor, bus)
    inputs = {category.name: bus.catalog.describe(category.name) for category in plan.inputs}
    outputs = bus.catalog.topics([category.name for category in plan.outputs])
    topics = {name: Topic(state.topic_id, state.spec.buckets) for name, state in inputs.items()}
    expect_bucket_counts(processor, {**outputs, **topics})
    topic_ids = {name: topic.id for name, topic in topics.items()}
    changelog = changelog_of(processor)
    if changelog is not None:
        topic_ids.update((name, topic.id) for name, topic in bus.catalog.topics([changelog.name]).items())
    return BusSnapshot(
        state_positions(processor, committed),
        starts={name: dict(state.starts) for name, state in inputs.items()},
        ends={name: dict(state.ends) for name, state in inputs.items()},
        compacted=frozenset(name for name, state in inputs.items() if state.may_be_compacted),
        topic_ids=topic_ids,
        registration=registration_of(bus, processor.name),
        maintenance=maintenance,
        times=event_times(committed) if plan.state_shape is None else {},
    )
