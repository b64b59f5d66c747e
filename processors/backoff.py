"""How long to wait between attempts: exponential backoff with full jitter."""

from __future__ import annotations

import random
from collections.abc import Iterator

_FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 5.0


def pauses() -> Iterator[float]:
    """Give how many seconds to wait before each further attempt, without end: below a bound that doubles up to 5 s."""
    longest = _FIRST_PAUSE_S
    while True:
        # Full jitter: the workers that lost a store at one moment do not come back to it at one moment.
        yield random.uniform(0, longest)  # noqa: S311 - spread, not secret
        longest = min(2 * longest, LONGEST_PAUSE_S)
