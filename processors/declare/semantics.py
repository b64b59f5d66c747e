"""How often an event counts in the state, and how often an output appears: two settings, and the pairs of them that hold.

Source: Chen et al., "Realtime Data Processing at Facebook", 2016, section 4.3, figure 8.
"""

from __future__ import annotations

from enum import Enum

from ..errors import DeclarationError


class Semantics(Enum):
    """A promise that holds whatever dies."""

    AT_LEAST_ONCE = "at least once"
    """Nothing is missing; some may come again."""
    AT_MOST_ONCE = "at most once"
    """Nothing comes again; some may be missing."""
    EXACTLY_ONCE = "exactly once"
    """Nothing is missing and nothing comes again."""


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
    """Raise DeclarationError, with the reason, where no order of saving can keep both promises."""
    reason = _REFUSED.get((state, output))
    if reason is not None:
        raise DeclarationError(
            f"{owner}: state {state.value} with output {output.value} cannot be promised. {reason} Exactly-once state goes with "
            f"every output; otherwise choose {state.value} for both."
        )
