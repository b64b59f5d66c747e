"""What a processor's group has committed, as the bus tells it."""

from __future__ import annotations

from ...processors.declare.processor import Processor
from ...processors.shard.checkpoints import have_ids, steps_of
from ...processors.shard.position import StatePosition
from ...transport.bus import Bus


def committed_by(processor: type[Processor], bus: Bus) -> dict[int, StatePosition]:
    """Return a group's committed positions by bucket, with the id of the last checkpoint where checkpoints have ids."""
    committed: dict[int, StatePosition] = {}
    has_ids = have_ids(steps_of(processor))
    for category in processor.inputs():
        for (name, number), offset, checkpoint_id in bus.catalog.positions(processor.name, category.name):
            before = committed.get(number, StatePosition())
            newest_id = max(checkpoint_id or 0, before.checkpoint_id) if has_ids else 0
            committed[number] = before.updated(StatePosition({name: offset or 0}, checkpoint_id=newest_id))
    return committed
