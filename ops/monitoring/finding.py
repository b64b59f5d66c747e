"""One problem that monitoring found: severity, processor, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


class Severity(IntEnum):
    """How bad it is."""

    NOTE = 0
    """Worth knowing."""
    WARNING = 1
    """It will be worse if nobody does anything."""
    CRITICAL = 2
    """Events are not processed, or are about to be lost."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    Args:
        weight: how bad it is.
        kind: what it is, in a word that does not change while the figures do.
        processor: whose.
        says: what it is, what it means, and what to do.
    """

    weight: Severity
    kind: str
    processor: str
    says: str
