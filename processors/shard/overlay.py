"""The state of a shard as its operator reads it: unsaved changes above the saved state."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from ..keyed_state import Changes, MergeChanges, StateReader


class Overlay:
    """Unsaved changes, above the changes of a running checkpoint, above the saved state.

    Args:
        saved: the saved state. It is read while a checkpoint writes to it; keys that the checkpoint changes are never looked up there.
        join: merges two changes of one key.
    """

    def __init__(self, saved: StateReader, join: MergeChanges) -> None:
        self._saved = saved
        self._join = join
        self._saving: Changes = {}
        self.changes: Changes = {}

    def fetch(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, with waiting changes and those of a running checkpoint."""
        changes, saving = self.changes, self._saving
        if not (changes or saving):
            return self._saved.fetch(keys)
        saved = iter(self._saved.fetch([key for key in keys if key not in changes and key not in saving]))
        return [changes[key] if key in changes else saving[key] if key in saving else next(saved) for key in keys]

    def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return the first keys from `start` up to, not including, `end`, with their values, in order of keys."""
        waiting = sorted(key for key in {*self._saving, *self.changes} if start <= key < end)
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
        """Add changes above all others."""
        if not self.changes:
            self.changes = changes
            return
        for key, later in changes.items():
            earlier = self.changes.get(key)
            self.changes[key] = later if earlier is None or later is None else self._join(earlier, later)

    def snapshot(self) -> Changes:
        """Return the changes for a checkpoint to save. Later changes take precedence over them."""
        self._saving, self.changes = self.changes, {}
        return self._saving

    def finish(self, unsaved: Changes) -> None:
        """End a checkpoint. Changes that it did not save wait for the next one, below later changes."""
        later, self.changes, self._saving = self.changes, unsaved, {}
        self.add(later)
