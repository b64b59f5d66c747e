"""What a replay noted of the events of its span: whose they were, and when they happened and arrived."""

from __future__ import annotations

from ...processors.shard.source_events import SourceEvents


class InputSummary:
    """Notes events as they pass.

    Args:
        key: only those of this key; None for all.
    """

    def __init__(self, key: str | None = None) -> None:
        self._key = key
        self.keys: set[str] = set()
        self.times: set[int] = set()
        self.first_ms: int | None = None
        self.last_ms: int | None = None

    def note(self, seen: SourceEvents) -> None:
        """Note events of the span."""
        keys, times = seen.category.keys_of(seen.events), seen.category.event_times_of(seen.events)
        chosen = [(key, time) for key, time in zip(keys, times, strict=True) if self._key in (None, key)]
        self.keys.update(key for key, _ in chosen)
        self.times.update(time for _, time in chosen)
        first_ms, last_ms = seen.arrived_ms[0], seen.arrived_ms[-1]
        self.first_ms = first_ms if self.first_ms is None else min(first_ms, self.first_ms)
        self.last_ms = last_ms if self.last_ms is None else max(last_ms, self.last_ms)
