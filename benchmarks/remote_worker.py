"""The measured side: one worker that counts by key in a remote store, which it fills first.

    python remote_worker.py BOOTSTRAP WRITING INTERVAL CHECKPOINTS STORE

INTERVAL is in seconds, between checkpoints; CHECKPOINTS is how many are measured; STORE is an address. Prints the messages that
count, and the seconds.
"""

from __future__ import annotations

import sys
from datetime import timedelta

from events import by_dim
from measuring import measured
from rounds import unique

import penstock as ps
from penstock.transport.kafka import KafkaBus, KafkaSettings

KEYS = 20_000
WARM_UP = 5 * KEYS
"""The number of unmeasured first messages. After them, fewer than one key in a hundred is new."""

NEVER = 2**62
"""More events or bytes than the input has, so only time triggers checkpoints."""


def main(bootstrap: str, writing: str, interval: str, checkpoints: str, store: str) -> None:
    """Run the counter."""
    processor = counter(ps.WriteMode(writing), timedelta(seconds=float(interval)))
    bus = KafkaBus(KafkaSettings(bootstrap))
    wanted = bus.catalog.describe(by_dim.name).events
    events, seconds, _ = measured(processor, bus, wanted, warm_up=WARM_UP, checkpoints=int(checkpoints), store=store)
    print(events, seconds)
    if seconds < float(interval) * int(checkpoints):
        print(f"The input ended after {seconds:.1f} s at {interval} s; increase --messages.", file=sys.stderr)


def counter(mode: ps.WriteMode, interval: timedelta) -> type[ps.Aggregator]:
    """Return a counter of events by key, with a name of its own."""

    class CountRemotely(ps.Aggregator):
        """Counts by dimension in a global window."""

        name = unique("remote")
        reads = by_dim
        monoid = ps.monoids.Count()
        store = ps.RemoteStore(mode)
        checkpoint = ps.CheckpointInterval(events=NEVER, size_bytes=NEVER, time=interval)

    return CountRemotely


if __name__ == "__main__":
    main(*sys.argv[1:])
