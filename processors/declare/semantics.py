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
_REPEATED = (
    "A restart reads events again that the state has counted already, so what it writes then is computed from counts that "
    "are too high"
)
_SKIPPED = "A restart goes on after events that were neither counted nor answered, so their outputs never come"
_REFUSED = {
    (_LEAST, _MOST): f"{_REPEATED}, and the right output may be the one that is left out.",
    (_LEAST, _EXACT): f"{_REPEATED}: each output once, but a wrong one.",
    (_MOST, _LEAST): f"{_SKIPPED}.",
    (_MOST, _EXACT): f"{_SKIPPED}.",
}


def expect_pair(owner: str, state: Semantics, output: Semantics) -> None:
    """Raise DeclarationError if no order of writes can keep both guarantees."""
    reason = _REFUSED.get((state, output))
    if reason is not None:
        raise DeclarationError(
            f"{owner}: state {state.value} with output {output.value} cannot be promised. {reason} Exactly-once state goes with "
            f"every output; otherwise choose {state.value} for both."
        )
