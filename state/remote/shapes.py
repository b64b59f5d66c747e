"""Whose state a shard is: refusing another processor's, in words that both kinds of stores share."""

from __future__ import annotations

from ..errors import ForeignState
from .addresses import Address
from .seam import FORMAT, Shard


def foreign_shape(address: Address, shard: Shard, found: str, expected: str) -> ForeignState:
    """Return the error for state that means something else."""
    return ForeignState(
        f"The state of {shard} at {address} is not what this processor keeps: it is {found}, expected was {expected}. Nothing was "
        "changed. Run the processor that it belongs to, or give the new one another name or another store."
    )


def foreign_format(address: Address, shard: Shard, found: object) -> ForeignState:
    """Return the error for state of another version."""
    return ForeignState(
        f"The state of {shard} at {address} is in format {found}; this Penstock reads and writes format {FORMAT}. Nothing was "
        "changed. Run the version that wrote it, or give this one another store."
    )
