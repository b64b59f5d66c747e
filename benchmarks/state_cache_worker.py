"""The measured side: one stateful worker with a given memory for decoded states.

    python state_cache_worker.py BOOTSTRAP MEBIBYTES GROUP

Prints the messages read after the first batch, the seconds, and their processor time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from events import Event, by_dim
from measuring import measured

import penstock as ps
from penstock.ops.kernel import ends_of
from penstock.processors.declare import plan_of
from penstock.transport.kafka import KafkaBus, KafkaSettings


class Seen(ps.Record, frozen=True):
    """What a dimension has seen."""

    events: int
    first: int
    last: int
    kind: str
    text: str


class Follow(ps.Stateful):
    """Follows each of 100,000 dimensions; writes nothing."""

    reads = by_dim
    state = Seen

    def process(self, event: Event, state: Seen | None, context: ps.Context) -> tuple[Seen, Iterable[ps.Record]]:
        """Count the event, and keep its text."""
        events, first = (0, event.event_time) if state is None else (state.events, state.first)
        return Seen(events + 1, first, event.event_time, event.event, event.text), ()


def main(bootstrap: str, size_mib: str, group: str) -> None:
    """Run the processor to the end of its input."""
    Follow.name = group
    bus = KafkaBus(KafkaSettings(bootstrap))
    wanted = sum(ends_of(plan_of(Follow).inputs, bus).values())
    print(*measured(Follow, bus, wanted, state_cache_bytes=int(size_mib) * 2**20))


if __name__ == "__main__":
    main(*sys.argv[1:])
