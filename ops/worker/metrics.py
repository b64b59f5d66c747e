"""The counts of a worker."""

from __future__ import annotations

from dataclasses import dataclass

from ...processors.lookups import LookedUp


@dataclass
class Metrics:
    """What a worker has done since it started.

    Args:
        events_in: events read.
        events_out: records written.
        late: events that came after the watermark of their shard had passed them.
        dropped: those of them that came too late for every window, and were left out or put aside, as the processor asks.
        dead_letters: events that could not be processed.
        checkpoints: checkpoints saved.
        unmatched: events left out, as their processor asks, because nothing was found outside that belongs to them.
        bytes_in: the size of what was read, without keys.
        bytes_out: the size of what was written, likewise.
        saved_ms: when the last checkpoint was complete (milliseconds since 1970, UTC); None before the first.
        saving_s: how long that took.
        lookups: what was counted where the processor looks things up, by the process; None where it does not.
    """

    events_in: int = 0
    events_out: int = 0
    late: int = 0
    dropped: int = 0
    dead_letters: int = 0
    checkpoints: int = 0
    unmatched: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    saved_ms: int | None = None
    saving_s: float = 0.0
    lookups: LookedUp | None = None

    def __str__(self) -> str:
        text = (
            f"{self.events_in:,} events in, {self.events_out:,} out, {self.late:,} late, {self.dropped:,} too late, "
            f"{self.dead_letters:,} dead letters, {self.checkpoints:,} checkpoints"
        )
        return text if self.lookups is None else f"{text}; {self.unmatched:,} left out without a row, {self.lookups}"
