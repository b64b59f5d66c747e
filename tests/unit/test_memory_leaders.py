"""The bus in memory while clients do not reach the broker that leads a part of the buckets."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing

import pytest

from penstock.transport import Bucket, BusUnreachable, CategorySpec, Outgoing, OutputsTimedOut, Position
from penstock.transport.memory import MemoryBus
from penstock.transport.memory.network import REQUEST_LIMIT_S, Network

AWAY, NEAR = Bucket("calls", 0), Bucket("calls", 1)


class OneBrokerAway(Network):
    """The network of a client that does not reach the broker of one bucket."""

    is_away = True

    def reaches_all(self) -> bool:
        """Return whether the broker has come back."""
        return not self.is_away

    def reaches(self, bucket: Bucket) -> bool:
        """Return whether this is not its bucket."""
        return not self.is_away or bucket != AWAY

    def wait_for_leaders(self, what: str, buckets: Collection[Bucket], _: float = REQUEST_LIMIT_S) -> None:
        """Give up at once."""
        if not all(map(self.reaches, buckets)):
            raise BusUnreachable(f"A broker did not answer ({what}).")


def test_only_the_buckets_of_an_unreachable_broker_wait() -> None:
    """Their messages stay with the client, and readers get nothing from them; a request about all buckets fails."""
    network = OneBrokerAway()
    bus = MemoryBus(network=network)
    bus.create(CategorySpec("calls", buckets=2))
    with closing(bus.writer()) as writer, closing(bus.scanner([Position(AWAY, 0), Position(NEAR, 0)])) as scanner:
        writer.send("calls", [Outgoing(b"a", b"1", 0), Outgoing(b"b", b"2", 1), Outgoing(b"a", b"3", 0)])
        with pytest.raises(OutputsTimedOut):
            writer.flush()
        with pytest.raises(BusUnreachable):
            bus.ends("calls")
        first = [(batch.bucket, len(batch.messages)) for batch in scanner.poll(0.0).batches]
        network.is_away = False
        writer.flush()
        second = [
            (batch.bucket, [message.value() for message in batch.messages]) for batch in scanner.poll(0.0).batches
        ]

    assert first == [(NEAR, 1)]
    assert second == [(AWAY, [b"1", b"3"])]
