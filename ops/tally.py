"""What a worker counts: all that it has done, and what waits for the next checkpoint."""

from __future__ import annotations

from dataclasses import dataclass

from ..processors.kinds import Processor


@dataclass
class Tally:
    """What a worker has done since it started."""

    events_in: int = 0
    events_out: int = 0
    dead_letters: int = 0
    checkpoints: int = 0

    def __str__(self) -> str:
        return (
            f"{self.events_in:,} events in, {self.events_out:,} out, {self.dead_letters:,} dead letters, "
            f"{self.checkpoints:,} checkpoints"
        )


@dataclass
class Pending:
    """What has been read since the last checkpoint."""

    since_s: float
    events: int = 0
    size_bytes: int = 0

    def add(self, events: int, size_bytes: int) -> None:
        """Note a batch."""
        self.events += events
        self.size_bytes += size_bytes

    def put_back(self, earlier: Pending) -> None:
        """Take up again what was not saved."""
        self.add(earlier.events, earlier.size_bytes)
        self.since_s = earlier.since_s

    def due(self, processor: Processor, now_s: float) -> bool:
        """Tell whether a checkpoint is due; never for nothing."""
        every = processor.checkpoint
        return self.events > 0 and (
            self.events >= every.events
            or self.size_bytes >= every.size_bytes
            or now_s - self.since_s >= every.time.total_seconds()
        )
