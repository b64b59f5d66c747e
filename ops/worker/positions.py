"""Positions, for people."""

from __future__ import annotations

from ...state.checkpoints import offsets_in
from ...state.protocols import Offsets
from ...transport.tables.maintenance_log import MOVES


def shown_position(position: Offsets) -> str:
    """Return how far a state has read, without what else its position holds."""
    read = {name: offset for name, offset in offsets_in(position).items() if name != MOVES.name}
    return ", ".join(f"{name} {offset:,}" for name, offset in sorted(read.items())) or "nothing read"
