"""Stores for the state of an aggregator: local or remote."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class WriteMode(Enum):
    """How a worker writes partial aggregates to a remote store.

    Source: Chen et al., "Realtime Data Processing at Facebook", 2016, section 4.4.2.
    """

    READ_MODIFY_WRITE = "read-modify-write"
    """Read a value at its first event after a checkpoint, update it in memory, and write it at the next checkpoint."""
    READ_MERGE_WRITE = "read-merge-write"
    """Collect partial aggregates in memory; at a checkpoint, read the stored values, merge and write."""
    APPEND = "append-only"
    """Write partial aggregates without reading. The store merges them on write if it can, otherwise on read."""


@dataclass(frozen=True)
class LocalStore:
    """Keep the state in RocksDB beside the worker, with backups."""


@dataclass(frozen=True)
class RemoteStore:
    """Keep the state in PostgreSQL or Redis. The address is an option of the command that runs the processor.

    Args:
        write_mode: how the worker writes partial aggregates.
    """

    write_mode: WriteMode = WriteMode.READ_MERGE_WRITE
