"""Empty states of a batch run's tasks: temporary RocksDB databases, so that the keys of a task need not fit in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from ...processors.declare.processor import Processor
from ...state.local.folder import RocksStateFolder
from ...state.local.rocksdb import RocksShardState
from ...state.protocols import ShardIdentity

DRAINED_EVENTS = 100_000
"""The number of events after which changes leave memory."""


@contextmanager
def scratch_state(processor: Processor, number: int) -> Iterator[RocksShardState]:
    """Open an empty state for a shard or for a part of the keys, and remove it after the block."""
    identity = ShardIdentity(processor.name, number, processor.state_shape() or "")
    with TemporaryDirectory() as folder, closing(RocksStateFolder(Path(folder)).open(identity)) as state:
        yield state
