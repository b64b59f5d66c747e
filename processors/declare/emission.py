"""When aggregators write results, and what happens to late events."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from ..errors import DeclarationError
from ..validation import expect_types


@dataclass(frozen=True)
class AtCheckpoint:
    """Write every changed window at each checkpoint.

    Args:
        differences: write the value since the last result instead of the total. The aggregator then keeps no totals in its state.
    """

    differences: bool = False

    def __post_init__(self) -> None:
        expect_types("AtCheckpoint(…)", self)


@dataclass(frozen=True)
class AtWatermark:
    """Write a window when the low watermark passes its end, and again after each late change.

    Args:
        early: also write changed, incomplete windows at this interval (wall-clock time); None for no early results.
        differences: write the value since the last result instead of the total.

    Raises:
        DeclarationError: the interval is not greater than zero.

    Examples:
        >>> AtWatermark(early=timedelta(seconds=10)).differences
        False
    """

    early: timedelta | None = None
    differences: bool = False

    def __post_init__(self) -> None:
        expect_types("AtWatermark(…)", self)
        if self.early is not None and self.early <= timedelta():
            raise DeclarationError(f"{self}: the interval of early results must be greater than zero.")


Emission = AtCheckpoint | AtWatermark


class OnLate(Enum):
    """What to do with late events: the low watermark has passed the end of their windows and the allowed lateness."""

    INTO_WINDOW = "into its window"
    """Add the event to its windows, however late. The state keeps all windows forever."""
    DROP = "dropped"
    """Drop the event and count it. The state forgets closed windows."""
