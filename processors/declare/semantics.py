"""Delivery guarantees of state and outputs, and their valid combinations.

Source: Chen et al., "Realtime Data Processing at Facebook", 2016, section 4.3, figure 8.
"""

from __future__ import annotations

from enum import Enum

from ..errors import DeclarationError


class Semantics(Enum):
    """A delivery guarantee that survives any crash."""

    AT_LEAST_ONCE = "at least once"
    """Nothing is lost; repetitions are possible."""
    AT_MOST_ONCE = "at most once"
    """Nothing is repeated; losses are possible."""
    EXACTLY_ONCE = "exactly once"
    """Nothing is lost or repeated."""


_LEAST, _MOST, _EXACT = Semantics.AT_LEAST_ONCE, Semantics.AT_MOST_ONCE, Semantics.EXACTLY_ONCE
_REPEATED = "After a restart, the processor counts some events twice, and outputs contain counts that are too high"
_SKIPPED = "After a restart, the processor skips some events, and their outputs are lost"
_REFUSED = {
    (_LEAST, _MOST): f"{_REPEATED}; the correct output may be the lost one.",
    (_LEAST, _EXACT): f"{_REPEATED}: each output appears once, but may be wrong.",
    (_MOST, _LEAST): f"{_SKIPPED}.",
    (_MOST, _EXACT): f"{_SKIPPED}.",
}


def expect_pair(owner: str, state: Semantics, output: Semantics) -> None:
    """Raise DeclarationError if no order of writes can keep both guarantees."""
    reason = _REFUSED.get((state, output))
    if reason is not None:
        raise DeclarationError(
            f"{owner}: state {state.value} and output {output.value} cannot be combined. {reason} Declare exactly-once state, which allows "
            f"every output, or {state.value} for both."
        )
