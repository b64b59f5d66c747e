"""The parts of Penstock that C code makes faster, and why one is off: the list that `penstock --version` shows.

Without any of them, results are the same, and everything takes more CPU time.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..processors.declare import keys_obstacle
from .codecs import json_obstacle
from .kafka import reader_limit, reader_obstacle, writer_obstacle


@dataclass(frozen=True, slots=True)
class CompiledPart:
    """A part of Penstock that C code makes faster.

    Args:
        name: its name in messages.
        obstacle: why the C code is not used; None if it is.
        limit: why it is used, but slower than it could be; None without a reason.
    """

    name: str
    obstacle: str | None
    limit: str | None = None


def compiled_parts() -> list[CompiledPart]:
    """Return all parts as they are in this process: what is installed, and what its environment turns off."""
    reader = reader_obstacle()
    return [
        CompiledPart("keys", keys_obstacle()),
        CompiledPart("JSON", json_obstacle()),
        CompiledPart("Kafka reader", reader, reader_limit() if reader is None else None),
        CompiledPart("Kafka writer", writer_obstacle()),
    ]
