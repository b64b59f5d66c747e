"""States built in Spark: each shard's engine processes its archived bucket, and its final state is uploaded to the backup store.

The caller publishes the backups when all states are uploaded. Until then, no worker finds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import pyarrow as pa

from ...processors.declare import plan_of
from ...processors.shard import StatePosition
from ...state import ShardIdentity
from ...state.backups import Manifest, ShardBackups, claim, snapshot_folder
from ...state.files import open_file_store
from ...state.local import RocksShardState
from ..spark import Batches, Transform
from .arrival_order import outputs_of
from .inputs import Inputs
from .scratch_state import scratch_state
from .step import guarded

_BUILT: dict[str, pa.DataType] = {
    "bucket": pa.int32(),
    "keys": pa.int64(),
    "manifest": pa.binary(),
}
BUILT = pa.schema(_BUILT)
"""The result of each shard."""


@dataclass(frozen=True)
class BackupTarget:
    """The destination of the states.

    Args:
        location: the backup store.
        webhdfs: the WebHDFS address of an HDFS location.
        ends: the final position of each bucket's state, with the number of the maintenance operation that installs it.
    """

    location: str
    webhdfs: str | None
    ends: Mapping[int, StatePosition]


def state_builder(inputs: Inputs, target: BackupTarget) -> Transform:
    """Return the step for Spark, on partitions of complete buckets, sorted by bucket and arrival."""
    return partial(_run, inputs, target)


def _run(inputs: Inputs, target: BackupTarget, batches: Batches) -> Batches:
    return guarded(inputs.steps[0], _built(inputs, target, batches))


def _built(inputs: Inputs, target: BackupTarget, batches: Batches) -> Batches:
    for bucket, events in groupby(inputs.events(batches), key=lambda event: event.bucket):
        with scratch_state(inputs.processor, bucket) as state:
            for _ in outputs_of(inputs, bucket, state, events):
                pass  # a bootstrap needs the state only
            state.save_position(target.ends[bucket])
            row = [bucket, state.estimated_keys(), _stored(inputs, target, bucket, state).encode()]
        yield pa.RecordBatch.from_pylist([dict(zip(BUILT.names, row, strict=True))], schema=BUILT)


def _stored(inputs: Inputs, target: BackupTarget, bucket: int, state: RocksShardState) -> Manifest:
    """Upload a state to its shard's backups; return the manifest that makes it the newest one."""
    identity = ShardIdentity(inputs.processor.name, bucket, plan_of(inputs.processor).state_shape or "")
    backups = ShardBackups(open_file_store(target.location, target.webhdfs), identity.processor, bucket)
    owner = claim(backups, identity)
    with snapshot_folder(state.folder) as snapshot:
        state.snapshot(snapshot)
        return owner.store(snapshot, target.ends[bucket])
