"""State built in Spark's workers: a shard's own core over its archived bucket, and what is then its state stored, for a backup of it.

Who started it makes it one, when all of them are stored: until then nobody finds what was built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import pyarrow as pa

from ...processors.shard.position import StatePosition
from ...state.backups.manifest import Manifest
from ...state.backups.shard import ShardBackups
from ...state.backups.shard_backup import snapshot_folder
from ...state.backups.writer import claim
from ...state.files.file_store import open_file_store
from ...state.local.rocksdb import RocksShardState
from ...state.protocols import ShardIdentity
from ..spark.batches import Batches, Transform
from .arrival_order import outputs_of, scratch_state
from .inputs import Inputs
from .step import guarded

_BUILT: dict[str, pa.DataType] = {
    "bucket": pa.int32(),
    "keys": pa.int64(),
    "manifest": pa.binary(),
}
BUILT = pa.schema(_BUILT)
"""What is said of each shard."""


@dataclass(frozen=True)
class BackupTarget:
    """Where states go.

    Args:
        location: the place of backups.
        webhdfs: for HDFS, the address of WebHDFS.
        ends: the position that each bucket's state will reflect, with the number of the move that puts it in place.
    """

    location: str
    webhdfs: str | None
    ends: Mapping[int, StatePosition]


def state_builder(inputs: Inputs, target: BackupTarget) -> Transform:
    """Return the step as Spark runs it, on partitions that hold whole buckets, sorted by bucket and arrival."""
    return partial(_run, inputs, target)


def _run(inputs: Inputs, target: BackupTarget, batches: Batches) -> Batches:
    return guarded(inputs.steps[0], _built(inputs, target, batches))


def _built(inputs: Inputs, target: BackupTarget, batches: Batches) -> Batches:
    for bucket, events in groupby(inputs.events(batches), key=lambda one: one.bucket):
        with scratch_state(inputs.processor, bucket) as state:
            for _ in outputs_of(inputs, bucket, state, events):
                pass  # what the past gave is the business of a backfill
            state.save_position(target.ends[bucket])
            row = [bucket, state.estimated_keys(), _stored(inputs, target, bucket, state).encode()]
        yield pa.RecordBatch.from_pylist([dict(zip(BUILT.names, row, strict=True))], schema=BUILT)


def _stored(inputs: Inputs, target: BackupTarget, bucket: int, state: RocksShardState) -> Manifest:
    """Store a state where its shard's backups are; return what makes it the newest of them."""
    identity = ShardIdentity(inputs.processor.name, bucket, inputs.processor.state_shape() or "")
    backups = ShardBackups(open_file_store(target.location, target.webhdfs), identity.processor, bucket)
    owner = claim(backups, identity)
    with snapshot_folder(state.folder) as snapshot:
        state.snapshot(snapshot)
        return owner.store(snapshot, target.ends[bucket])
