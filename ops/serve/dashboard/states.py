"""The content of a processor's state on this machine, read while its worker runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ....processors.declare import Processor
from ....state import StateError
from ....state.backups import Inspection, ShardName, local_shards, read_database, state_inspector
from ....state.local import RocksShardState


@dataclass(frozen=True)
class ShardContent:
    """The content of the state of one shard.

    Args:
        bucket: its bucket number.
        state: its saved state; None if it is unreadable, or was removed.
        problem: the error; empty without one.
    """

    bucket: int
    state: Inspection | None
    problem: str


def states_of(processor: type[Processor], root: Path, key: str | None, limit: int) -> list[ShardContent]:
    """Return the first saved values of each shard with a state on this machine.

    Args:
        processor: the processor.
        root: the folder of states.
        key: the key to read; None for all keys.
        limit: the largest number of values of each shard.

    Raises:
        StateError: the processor has no state, or stores it in a remote store.
    """
    inspect = state_inspector(processor, key, limit)
    return [_content(name, root, inspect) for name in local_shards(root) if name.processor == processor.name]


def _content(name: ShardName, root: Path, inspect: Callable[[RocksShardState], Inspection]) -> ShardContent:
    try:
        return ShardContent(name.bucket, read_database(name.folder(root), inspect), "")
    except StateError as error:
        return ShardContent(name.bucket, None, str(error))
