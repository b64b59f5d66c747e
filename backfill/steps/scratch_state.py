"""Empty states of a batch run's tasks: temporary RocksDB databases, so that the keys of a task need not fit in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from ...processors.declare import Processor, plan_of
from ...processors.keyed_state import STATE_CACHE
from ...state import ShardIdentity
from ...state.local import RocksShardState, RocksStateFolder

DRAINED_EVENTS = 50_000
"""The number of events after which changes leave memory."""
DATABASE_BYTES = 64 * 2**20
"""The memory of RocksDB in a task. Spark runs a task for each core, and gives all of their Python code less than half a GiB by default."""
DECODED_BYTES = 16 * 2**20
"""The memory of states that stay decoded."""


@contextmanager
def scratch_state(processor: Processor, number: int) -> Iterator[RocksShardState]:
    """Open an empty state for a shard or for a part of the keys, and remove it after the block. Limits the decoded states of this process."""
    identity = ShardIdentity(processor.name, number, plan_of(processor).state_shape or "")
    STATE_CACHE.limit_bytes = DECODED_BYTES
    with (
        TemporaryDirectory() as folder,
        closing(RocksStateFolder(Path(folder), DATABASE_BYTES).open(identity)) as state,
    ):
        yield state
