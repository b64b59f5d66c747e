"""What a processor's group has committed, as the bus tells it."""

from __future__ import annotations

from ...processors.kinds import Processor
from ...state.checkpoints import CHECKPOINT_ID, have_ids, steps_of
from ...transport.bus import Bus


def committed_by(processor: type[Processor], bus: Bus) -> dict[str, dict[int, int]]:
    """Return a group's positions by input and bucket, and under CHECKPOINT_ID which checkpoint was the last of each bucket."""
    catalog, names = bus.catalog, [category.name for category in processor.inputs()]
    committed = {name: dict(catalog.committed(processor.name, name)) for name in names}
    if have_ids(steps_of(processor)):
        ids: dict[int, int] = {}
        for name in names:
            for bucket, checkpoint_id in catalog.checkpoint_ids(processor.name, name).items():
                ids[bucket] = max(checkpoint_id, ids.get(bucket, 0))
        committed[CHECKPOINT_ID] = ids
    return committed
