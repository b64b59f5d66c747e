"""Simulated lookup sources, whose rows change with time: one that is sometimes unreachable, and a category."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from support.kinds import Row

import penstock as ps
from penstock.processors.lookups import LookupEnvironment
from penstock.transport import Outgoing
from penstock.transport.codecs import Codecs

from .nodes import NUMBERED_ROWS, NumberedRow

if TYPE_CHECKING:
    from .world import World

VERSION_S = 7.0
"""The time between two versions of a row."""
APPEARS_S = 30.0
"""The time at which a missing row appears."""
ATTEMPT_S = 5.0
"""The client's timeout."""


def number_of(key: str, at_s: float) -> int | None:
    """Return the growing number in the row of a key at a time, or None without a row."""
    if key in {"k0", "k1"} or (key == "k3" and at_s >= APPEARS_S):
        return int(at_s / VERSION_S)
    return None


class TableWriter:
    """Writes the rows to a category as they change, for workers that read it as a table.

    Args:
        world: the simulated world.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._codec = Codecs(world.bus).of(NUMBERED_ROWS)
        self._written: dict[str, int] = {}

    def write_due(self) -> None:
        """Write the rows that have changed since the last call."""
        for key in ("k0", "k1", "k3"):
            number = number_of(key, self._world.clock.monotonic_s())
            if number is not None and number != self._written.get(key):
                self._written[key] = number
                value = self._codec.encode([NumberedRow(key, self._world.clock.now_ms(), number)])[0]
                self._world.bus.append(NUMBERED_ROWS.name, Outgoing(key.encode(), value))


class SimulatedRows:
    """The lookup source of a run, and its client."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.unreachable_until_ms = 0.0

    def open(self) -> SimulatedRows:
        """Return the client."""
        return self

    def fetch(self, keys: Sequence[str]) -> Mapping[str, Row]:
        """Return the row of each key that has one."""
        scheduler, clock = self._world.scheduler, self._world.clock
        scheduler.point("fetch rows")
        if not scheduler.wait(lambda: scheduler.now_ms >= self.unreachable_until_ms, ATTEMPT_S):
            raise ps.lookups.LookupUnreachable("The lookup source does not answer.")
        found = {key: number_of(key, clock.monotonic_s()) for key in keys}
        scheduler.point("after fetch rows")
        return {key: Row(number) for key, number in found.items() if number is not None}

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def environment(self) -> LookupEnvironment:
        """Return the environment that replaces the declared source."""
        return LookupEnvironment(self, self._world.clock.monotonic_s, self._world.scheduler.sleep)
