"""Types of stored states, and the errors for state of another type, shared by both kinds of stores."""

from __future__ import annotations

from ..errors import ForeignState
from .addresses import StoreAddress
from .protocols import FORMAT, StoredShard


def unfinished_shape(shape: str) -> str:
    """Return the type of a shard while its first values are computed elsewhere. No worker opens it."""
    return f"{shape}, being built"


def foreign_shape(address: StoreAddress, shard: StoredShard, found: str, expected: str) -> ForeignState:
    """Return the error for state of another type."""
    if found == unfinished_shape(expected):
        return ForeignState(
            f"The state of {shard} at {address} is incomplete: it is being built from the archive, or the build was interrupted. Nothing was "
            "changed. Wait for `penstock bootstrap`, or run it again if it was interrupted. Workers continue from there."
        )
    return ForeignState(
        f"The state of {shard} at {address} has another type: it is {found}, expected {expected}. Nothing was "
        "changed. Run its own processor, or give the new one another name or store."
    )


def foreign_format(address: StoreAddress, shard: StoredShard, found: object) -> ForeignState:
    """Return the error for state of another format."""
    return ForeignState(
        f"The state of {shard} at {address} has format {found}, but this Penstock uses format {FORMAT}. Nothing was "
        "changed. Run the version that wrote it, or use another store."
    )
