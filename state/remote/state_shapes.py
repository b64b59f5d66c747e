"""Whose state a shard is: refusing another processor's, in words that both kinds of stores share."""

from __future__ import annotations

from ..errors import ForeignState
from .addresses import Address
from .protocols import FORMAT, Shard


def built_shape(shape: str) -> str:
    """Return what a shard is while its first values are computed elsewhere: nobody takes it for one that is whole."""
    return f"{shape}, being built"


def foreign_shape(address: Address, shard: Shard, found: str, expected: str) -> ForeignState:
    """Return the error for state that means something else."""
    if found == built_shape(expected):
        return ForeignState(
            f"The state of {shard} at {address} is being built from the archive, or was when that broke off: what is there is a part. Nothing "
            "was changed. Let `penstock bootstrap` come to its end; one that broke off is started again. Workers go on from there."
        )
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
