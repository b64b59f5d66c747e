"""Where an aggregator keeps its state: in each shard's own store, or merged into one that is shared and can be asked."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class WriteMode(Enum):
    """How partials get into a remote store (section 4.4.2 of "Realtime Data Processing at Facebook")."""

    READ_MODIFY_WRITE = "read-modify-write"
    """The stored value is read when its first event after a checkpoint comes, changed here, and written at the checkpoint."""
    READ_MERGE_WRITE = "read-merge-write"
    """Partials gather here; a checkpoint reads the stored values, merges, and writes them."""
    APPEND = "append-only"
    """A checkpoint writes partials without reading; the store merges them, at once where it can, else when it is read."""


@dataclass(frozen=True)
class LocalStore:
    """State lies beside the worker, in RocksDB, and is backed up."""


@dataclass(frozen=True)
class RemoteStore:
    """State lies in PostgreSQL or Redis, whose address is given when the processor is run.

    Args:
        writing: how partials get there.
    """

    writing: WriteMode = WriteMode.READ_MERGE_WRITE
