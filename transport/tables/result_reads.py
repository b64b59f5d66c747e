"""Reads of served results: how often, and when last.

    penstock.reads, compacted    key  processor/server    value  the reads of one query server, as JSON

A query server adds to its own entry, so several servers never lose each other's counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from ..bus import Bus
from ..category_spec import CategorySpec
from .bus_table import BusTable, TableKeys

READS = CategorySpec("penstock.reads", buckets=1, compacted=True)
"""The category of reads."""


class ServerReads(msgspec.Struct, frozen=True):
    """The reads of a processor's results from one server.

    Args:
        since_ms: when the server served them first (milliseconds since 1970, UTC).
        reads: the number of answered queries since then.
        last_ms: the time of the last one; None without any.
    """

    since_ms: int
    reads: int = 0
    last_ms: int | None = None


@dataclass(frozen=True)
class ResultReads:
    """The reads of a processor's results from all servers.

    Args:
        servers: the reads by server.
    """

    servers: Mapping[str, ServerReads]

    @property
    def reads(self) -> int:
        """The number of answered queries."""
        return sum(each.reads for each in self.servers.values())

    @property
    def last_ms(self) -> int | None:
        """The time of the last one; None without any."""
        return max((each.last_ms for each in self.servers.values() if each.last_ms is not None), default=None)

    @property
    def since_ms(self) -> int:
        """When the results were served first."""
        return min(each.since_ms for each in self.servers.values())

    def unread_s(self, now_ms: int) -> float:
        """Return the time since the last read; without any, since the results were served first."""
        return (now_ms - (self.since_ms if self.last_ms is None else self.last_ms)) / 1000


def _split(key: bytes) -> tuple[str, str]:
    processor, _, server = key.decode().partition("/")
    return processor, server


_KEY: TableKeys[tuple[str, str]] = TableKeys(lambda key: f"{key[0]}/{key[1]}".encode(), _split)
_TABLE: BusTable[tuple[str, str], ServerReads] = BusTable(READS, _KEY, msgspec.json.Decoder(ServerReads).decode)


def reads_on(bus: Bus) -> dict[str, ResultReads]:
    """Return the reads of all processors that were ever served, by processor.

    Raises:
        BusError: the bus does not answer.
    """
    found: dict[str, dict[str, ServerReads]] = {}
    for (processor, server), reads in _TABLE.read(bus).items():
        found.setdefault(processor, {})[server] = reads
    return {processor: ResultReads(servers) for processor, servers in sorted(found.items())}


def write_reads(bus: Bus, server: str, reads: Mapping[str, ServerReads]) -> None:
    """Save the reads of a server, by processor.

    Raises:
        BusError: the bus does not answer.
    """
    _TABLE.write(bus, [_TABLE.put((processor, server), each) for processor, each in reads.items()])
