"""The steps of a checkpoint, as data: what is made durable, in which order.

Outputs O, state S, position P. The order decides what a crash between two steps does to the data, and every gap between
two steps is a place where a test can stop the process.

Source: Chen et al., "Realtime Data Processing at Facebook", 2016, section 4.3.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Step(Enum):
    """One durable step of a checkpoint."""

    FLUSH_OUTPUTS = "flush outputs"
    SAVE_STATE = "save state"
    SAVE_POSITION = "save position"


# A crash between two of these repeats events; in the other order it would lose them.
AT_LEAST_ONCE = (Step.FLUSH_OUTPUTS, Step.SAVE_STATE, Step.SAVE_POSITION)


def without_state(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the steps of a processor that keeps no state."""
    return tuple(step for step in steps if step is not Step.SAVE_STATE)


class Gap(NamedTuple):
    """A place where a process can die: before a step, or, where `before` is None, after the last one."""

    before: Step | None

    def __str__(self) -> str:
        return f"before {self.before.value}" if self.before else "after the last step"
