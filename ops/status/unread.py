"""Processors whose served results no client reads any more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from ...processors import counted, human_duration
from ...transport import Bus
from ...transport.tables import ResultReads, reads_on
from ..kernel import Node
from .finding import Finding, Severity

UNREAD_S = 14 * 86_400.0
"""The time without a read after which results get a finding."""
READ_AGAIN_S = 60.0
"""The interval in which an observer reads the counts again."""


class UnreadResults:
    """Finds unread results. One thread.

    Args:
        bus: contains the counts of the query servers.
        clock: monotonic seconds.
    """

    def __init__(self, bus: Bus, clock: Callable[[], float] = time.monotonic) -> None:
        self._bus = bus
        self._clock = clock
        self._read_s: float | None = None
        self._reads: Mapping[str, ResultReads] = {}

    def findings(self, nodes: Sequence[Node], now_ms: int) -> Iterator[Finding]:
        """Yield a finding for each processor with unread results, unless another processor reads them.

        Args:
            nodes: all processors.
            now_ms: the time (milliseconds since 1970, UTC).

        Raises:
            BusError: the bus does not answer.
        """
        if self._read_s is None or self._clock() - self._read_s >= READ_AGAIN_S:
            self._reads, self._read_s = reads_on(self._bus), self._clock()
        names = {node.name for node in nodes}
        for name, reads in self._reads.items():
            if name in names and reads.unread_s(now_ms) >= UNREAD_S and not readers_of(name, nodes):
                yield Finding(name, Severity.NOTE, "unread", _message(name, reads, now_ms))


def readers_of(name: str, nodes: Sequence[Node]) -> list[str]:
    """Return the processors that read the outputs of another one."""
    outputs = {output for node in nodes if node.name == name for output in node.outputs}
    return sorted(node.name for node in nodes if node.name != name and outputs & set(node.inputs))


def _message(name: str, reads: ResultReads, now_ms: int) -> str:
    when = human_duration(reads.unread_s(now_ms))
    what = (
        f"No client of a query server has read its results for {when}, after {counted(reads.reads, 'read')}."
        if reads.last_ms is not None
        else f"No client of a query server has ever read its results, which were served for the first time {when} ago."
    )
    return f"{what} No processor reads them either. If no other program does, stop it with `penstock undeploy {name}`."
