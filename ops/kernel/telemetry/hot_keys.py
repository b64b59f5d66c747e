"""The most frequent key of each bucket, from a sample of its recent events."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

from ....transport import RawBatch

SAMPLED = 8
"""The number of events of a batch whose keys are counted."""
WINDOW = 2_000
"""The number of counted events after which all counts are halved, so that recent events weigh more."""
ENOUGH = 50
"""The number of counted events below which no key is reported."""
KEY_LIMIT = 100
"""The number of characters of a reported key."""


class HotKey(NamedTuple):
    """The most frequent key of a bucket.

    Args:
        key: the key, as text.
        share: its share of the bucket's recent events, from 0 to 1; estimated.
    """

    key: str
    share: float


class HotKeys:
    """Counts sampled keys by bucket number. One thread."""

    def __init__(self) -> None:
        self._counts: dict[int, Counter[bytes]] = defaultdict(Counter)
        self._totals: Counter[int] = Counter()
        self._begin = 0

    def record(self, batch: RawBatch) -> None:
        """Count the keys of some events of a batch, at equal distances. Messages without a key do not count."""
        step = -(-len(batch.messages) // SAMPLED)
        if not step:
            return
        self._begin = (self._begin + 1) % step  # another part of each batch
        sample = (batch.messages[at].key() for at in range(self._begin, len(batch.messages), step))
        keys = [key for key in sample if key is not None]
        number = batch.bucket.number
        self._counts[number].update(keys)
        self._totals[number] += len(keys)
        if self._totals[number] > WINDOW:
            self._halve(number)

    def _halve(self, number: int) -> None:
        """Halve the counts; rare keys are forgotten, and stay in the total."""
        counts = self._counts[number]
        self._counts[number] = Counter({key: count // 2 for key, count in counts.items() if count > 1})
        self._totals[number] //= 2

    def of(self, number: int) -> HotKey | None:
        """Return the most frequent key of a bucket; None without enough events."""
        total = self._totals[number]
        newest = self._counts[number].most_common(1) if total >= ENOUGH else []
        for key, count in newest:
            return HotKey(key.decode(errors="backslashreplace")[:KEY_LIMIT], count / total)
        return None
