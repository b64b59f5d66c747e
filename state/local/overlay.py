"""A shard's state as its core sees it: what is saved, under the changes that no checkpoint has saved yet."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from ...processors.keyed_state.changes import Changes, MergeChanges, StateReader


class Overlay:
    """Changes that wait, over those that a checkpoint is saving, over saved state.

    Args:
        saved: the state under them. It is read while a checkpoint writes to it: what that changes is never looked up there.
        join: gives what two changes of one key amount to.
    """

    def __init__(self, saved: StateReader, join: MergeChanges) -> None:
        self._saved = saved
        self._join = join
        self._sealed: Changes = {}
        self.changes: Changes = {}

    def fetch(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, with the changes that wait or are being saved."""
        changes, sealed = self.changes, self._sealed
        if not (changes or sealed):
            return self._saved.fetch(keys)
        saved = iter(self._saved.fetch([key for key in keys if key not in changes and key not in sealed]))
        return [changes[key] if key in changes else sealed[key] if key in sealed else next(saved) for key in keys]

    def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return the first keys from `start` up to, not including, `end`, with their values, in order of keys."""
        waiting = sorted(key for key in {*self._sealed, *self.changes} if start <= key < end)
        found: list[tuple[bytes, bytes]] = []
        while len(found) < limit:
            saved = self._saved.scan(start, end, limit)
            border = saved[-1][0] + b"\x00" if len(saved) == limit else end
            below = waiting[: bisect_left(waiting, border)]
            values = dict(saved) | dict(zip(below, self.fetch(below), strict=True))
            found += [(key, value) for key in sorted(values) if (value := values[key]) is not None]
            if border == end:
                break
            start, waiting = border, waiting[len(below) :]
        return found[:limit]

    def add(self, changes: Changes) -> None:
        """Put changes on top."""
        if not self.changes:
            self.changes = changes
            return
        for key, later in changes.items():
            earlier = self.changes.get(key)
            self.changes[key] = later if earlier is None or later is None else self._join(earlier, later)

    def seal(self) -> Changes:
        """Hand the changes over to a checkpoint; later ones lie above them."""
        self._sealed, self.changes = self.changes, {}
        return self._sealed

    def settle(self, unsaved: Changes) -> None:
        """End a checkpoint: what it has not saved waits again, under what came later."""
        later, self.changes, self._sealed = self.changes, unsaved, {}
        self.add(later)
