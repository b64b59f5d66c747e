"""When an aggregator writes the result of a window, and what becomes of events that come after it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from ..errors import DeclarationError
from ..validation import expect_types


@dataclass(frozen=True)
class AtCheckpoint:
    """Each checkpoint writes the windows that changed.

    Args:
        differences: write what came since the last time, instead of all that came so far; nothing is kept in state then.
    """

    differences: bool = False

    def __post_init__(self) -> None:
        expect_types("AtCheckpoint(…)", self)


@dataclass(frozen=True)
class AtWatermark:
    """A window is written when the low watermark has passed its end; and again if it changes later.

    Args:
        early: write windows that changed at this interval (time of day) before that, too; None for not.
        differences: write what came since the last time, instead of all that came so far.

    Raises:
        DeclarationError: an interval of nothing.
    """

    early: timedelta | None = None
    differences: bool = False

    def __post_init__(self) -> None:
        expect_types("AtWatermark(…)", self)
        if self.early is not None and self.early <= timedelta():
            raise DeclarationError(f"{self}: early results at every nothing. The interval must be above zero.")


Emission = AtCheckpoint | AtWatermark


class OnLate(Enum):
    """What becomes of an event whose windows are done: the low watermark has passed their ends, and the lateness that is allowed."""

    INTO_WINDOW = "into its window"
    """No window is ever done: all are kept in state for good, and written again when they change."""
    DROP = "dropped"
    """It is counted and left out; windows that are done are removed from state."""
