"""What a replay counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ReplayCounts:
    """What a replay has done.

    Args:
        warmed_up: events before the span, read for the state alone.
        events: events of the span, with those that were refused.
        outputs: outputs of the span.
        late: events that came after the watermark had passed them.
        dropped: those of them that were too late for every window.
        dead_letters: messages and events that a worker would have set aside.
        exceptions: events for which the processor raised.
        unmatched: events left out because nothing was found outside that belongs to them.
    """

    warmed_up: int = 0
    events: int = 0
    outputs: int = 0
    late: int = 0
    dropped: int = 0
    dead_letters: int = 0
    exceptions: int = 0
    unmatched: int = 0

    def __str__(self) -> str:
        warm = f" ({self.warmed_up:,} before to warm up)" if self.warmed_up else ""
        text = (
            f"{self.events:,} events read{warm}, {self.outputs:,} outputs, {self.late:,} late, {self.dropped:,} too late, "
            f"{self.dead_letters:,} dead letters, {self.exceptions:,} exceptions"
        )
        return f"{text}, {self.unmatched:,} left out without a row" if self.unmatched else text
