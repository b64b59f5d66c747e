"""What a processor's group has committed, as the bus tells it."""

from __future__ import annotations

from ...processors.declare.processor import Processor
from ...state.checkpoints import CHECKPOINT_ID, have_ids, steps_of
from ...transport.bus import Bus


def committed_by(processor: type[Processor], bus: Bus) -> dict[str, dict[int, int]]:
    """Return a group's positions by input and bucket, and under CHECKPOINT_ID which checkpoint was the last of each bucket."""
    committed: dict[str, dict[int, int]] = {category.name: {} for category in processor.inputs()}
    ids: dict[int, int] = {}
    for name, offsets in committed.items():
        for (_, number), offset, checkpoint_id in bus.catalog.positions(processor.name, name):
            offsets[number] = offset or 0
            if checkpoint_id:
                ids[number] = max(checkpoint_id, ids.get(number, 0))
    return {**committed, CHECKPOINT_ID: ids} if have_ids(steps_of(processor)) else committed
