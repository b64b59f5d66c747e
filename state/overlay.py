"""A shard's state as its core sees it: what is saved, under the changes that no checkpoint has saved yet."""

from __future__ import annotations

from collections.abc import Sequence

from ..processors.cores import Changes, Join, StateReader


class Overlay:
    """Changes that wait, over saved state.

    Args:
        saved: the state under them.
        join: gives what two changes of one key amount to.
    """

    def __init__(self, saved: StateReader, join: Join) -> None:
        self._saved = saved
        self._join = join
        self.changes: Changes = {}

    def fetch(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, with the changes that wait."""
        waiting = self.changes
        if not waiting:
            return self._saved.fetch(keys)
        saved = iter(self._saved.fetch([key for key in keys if key not in waiting]))
        return [waiting[key] if key in waiting else next(saved) for key in keys]

    def add(self, changes: Changes) -> None:
        """Put changes on top."""
        if not self.changes:
            self.changes = changes
            return
        for key, later in changes.items():
            earlier = self.changes.get(key)
            self.changes[key] = later if earlier is None or later is None else self._join(earlier, later)

    def clear(self) -> None:
        """Forget the changes: they are saved."""
        self.changes = {}
