"""What a processor keeps on this machine, read beside its worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...processors.declare.processor import Processor
from ...state.backups.decoded_state import Inspection, inspection
from ...state.backups.inventory import ShardName, local_shards, read_database
from ...state.errors import StateError
from ...state.local.rocksdb import RocksShardState


@dataclass(frozen=True)
class SeenShard:
    """What was seen of one shard.

    Args:
        bucket: its bucket number.
        seen: what is saved; None where it cannot be read.
        problem: why.
    """

    bucket: int
    seen: Inspection | None
    problem: str


def states_of(processor: type[Processor], root: Path, key: str | None, limit: int) -> list[SeenShard]:
    """Return the first saved values of each shard that has its state on this machine.

    Args:
        processor: whose.
        root: the folder of states.
        key: only this key's; None for all.
        limit: how many of each shard.

    Raises:
        StateError: it keeps none, or keeps it elsewhere.
    """
    see = inspection(processor, key, limit)
    return [_seen(name, root, see) for name in local_shards(root) if name.processor == processor.name]


def _seen(name: ShardName, root: Path, see: Callable[[RocksShardState], Inspection]) -> SeenShard:
    try:
        return SeenShard(name.bucket, read_database(name.folder(root), see), "")
    except StateError as error:
        return SeenShard(name.bucket, None, str(error))
