"""The memory for states that operators keep decoded between checkpoints: one budget for all shards of a process.

A decoded state saves the read and the decoding of the next event of its key. Objects of Python are several times as large as their encoded
form, and their size is not measured but estimated.

Source: Akidau et al., "MillWheel", 2013, section 8.3 (the effect of the cache size).
"""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakKeyDictionary

DEFAULT_BYTES = 256 * 2**20
"""The budget where no worker has set one."""
ENTRY_BYTES = 250
"""The memory of a small state, its key, and their place in a table."""
DECODED_FACTOR = 8
"""The memory of a decoded state in relation to its encoded form. Lists of small integers take more, texts take less."""


class SizeEstimate:
    """The mean memory of a decoded state, from the sizes of encoded states."""

    def __init__(self) -> None:
        self._bytes = 0
        self._count = 0

    def add(self, encoded: Iterable[bytes | None]) -> None:
        """Add encoded states; None stands for an empty one."""
        sizes = [0 if state is None else len(state) for state in encoded]
        self._bytes += sum(sizes)
        self._count += len(sizes)

    def of(self, states: int) -> int:
        """Return the estimated memory of a number of decoded states, in bytes."""
        mean = self._bytes / self._count if self._count else 0.0
        return int(states * (ENTRY_BYTES + DECODED_FACTOR * mean))


class StateCache:
    """Decides when the shards of a process forget their decoded states. Its owners are the tables of decoded states.

    Args:
        limit_bytes: the memory for all of them.
    """

    def __init__(self, limit_bytes: int = DEFAULT_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.hits = 0
        """The keys of batches whose state was decoded already; each key counts once for each batch."""
        self.misses = 0
        """The keys of batches whose state was read and decoded."""
        self._sizes: WeakKeyDictionary[object, int] = WeakKeyDictionary()

    @property
    def size_bytes(self) -> int:
        """The estimated memory of all owners at their last checkpoint."""
        return sum(self._sizes.values())

    def count(self, keys: int, misses: int) -> None:
        """Count the keys of a batch, and those whose state was not decoded yet."""
        self.hits += keys - misses
        self.misses += misses

    def must_forget(self, owner: object, size_bytes: int) -> bool:
        """Record the size of an owner's table. Return whether it has to be emptied: all are too large, and this is not a small one.

        Args:
            owner: the owner; recorded as long as it exists.
            size_bytes: the estimated memory of its table.
        """
        self._sizes[owner] = size_bytes
        total = self.size_bytes
        if total <= self.limit_bytes or size_bytes * len(self._sizes) < total:
            return False
        self._sizes[owner] = 0
        return True


STATE_CACHE = StateCache()
"""The budget of this process. A worker sets its limit at the start."""
