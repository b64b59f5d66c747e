"""The values of windows: saved values, and above them the values merged since the last drain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..declare import Aggregator
from ..keyed_state import Changes, StateReader, decode_window_key, encode_time, encode_window_key
from ..monoids import Monoid
from .aggregator import encoded, partial_decoder, window_starts

READ_AT_ONCE = 10_000
"""The number of saved values per read."""


class PaneValues:
    """The values of windows by start and key, over the saved state.

    Args:
        processor: declares the windows and the monoid.
        saved: the shard's state, including all drained changes.
    """

    def __init__(self, processor: Aggregator, saved: StateReader) -> None:
        self._processor = processor
        self._monoid: Monoid[Any] = processor.monoid
        self._decode = partial_decoder(processor)
        self._saved = saved
        self._merged: dict[int, dict[str, Any]] = {}
        self._removed: set[bytes] = set()

    def merge(self, start: int, partials: Mapping[str, Any]) -> dict[str, Any]:
        """Merge partials into the values of a window; return the new values of their keys."""
        values, combine = self.values(start, partials), self._monoid.combine
        merged = {key: combine(values[key], partial) if key in values else partial for key, partial in partials.items()}
        self._merged.setdefault(start, {}).update(merged)
        return merged

    def values(self, start: int, keys: Iterable[str]) -> dict[str, Any]:
        """Return the values of these keys in a window; a key without a value is missing."""
        merged, removed, decode = self._merged.get(start, {}), self._removed, self._decode
        found = {key: merged[key] for key in keys if key in merged}
        slots = {key: encode_window_key(key, start) for key in keys if key not in merged}
        unread = [key for key, slot in slots.items() if slot not in removed]
        for key, saved in zip(unread, self._saved.fetch([slots[key] for key in unread]), strict=True):
            if saved is not None:
                found[key] = decode(saved)
        return found

    def of(self, start: int) -> dict[str, Any]:
        """Return the values of all keys in a window, in order of keys."""
        keys = {decode_window_key(slot)[0] for slot in self._slots(start)}
        return dict(sorted(self.values(start, keys.union(self._merged.get(start, ()))).items()))

    def remove(self, start: int, keys: Iterable[str]) -> None:
        """Remove the values of these keys from a window."""
        merged = self._merged.get(start, {})
        for key in keys:
            merged.pop(key, None)
            self._removed.add(encode_window_key(key, start))

    def remove_all(self, start: int) -> None:
        """Remove all values of a window."""
        self._merged.pop(start, None)
        self._removed.update(self._slots(start))

    def starts(self) -> list[int]:
        """Return the starts of all windows with a saved value."""
        return list(window_starts(self._saved))

    def starts_after(self, start: int) -> set[int]:
        """Return the starts of the windows with a value after another one."""
        return {*window_starts(self._saved, start + 1), *(other for other in self._merged if other > start)}

    def drain(self) -> Changes:
        """Return the changes since the last drain."""
        changes: Changes = dict.fromkeys(self._removed)
        for start, values in self._merged.items():
            changes |= encoded(self._processor, {(key, start): value for key, value in values.items()})
        self._merged, self._removed = {}, set()
        return changes

    def _slots(self, start: int) -> list[bytes]:
        """Return the saved window keys of a window."""
        begin, end = encode_time(start), encode_time(start + 1)
        found: list[bytes] = []
        while slots := self._saved.scan(begin, end, READ_AT_ONCE):
            found += [slot for slot, _ in slots]
            begin = found[-1] + b"\x00"
        return found
