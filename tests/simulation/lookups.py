"""Rows outside of every category, which lookups ask for: they change as time passes, and are sometimes away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from support.kinds import Row

import penstock as ps
from penstock.processors.lookups.lookup import LookupEnvironment

if TYPE_CHECKING:
    from .world import World

VERSION_S = 7.0
"""How long a row stays as it is."""
APPEARS_S = 30.0
"""When one row comes to be that was not there."""
ATTEMPT_S = 5.0
"""How long a client waits for an answer."""


def number_of(key: str, at_s: float) -> int | None:
    """Return the number in the row of a key at a time, which grows; None where there is no row."""
    if key in {"k0", "k1"} or (key == "k3" and at_s >= APPEARS_S):
        return int(at_s / VERSION_S)
    return None


class SimulatedRows:
    """The source of a run, and what is opened of it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.away_until_ms = 0.0

    def open(self) -> SimulatedRows:
        """Return what can be asked."""
        return self

    def fetch(self, keys: Sequence[str]) -> Mapping[str, Row]:
        """Return the row of each key that has one."""
        scheduler, clock = self._world.scheduler, self._world.clock
        scheduler.point("fetch rows")
        if not scheduler.wait(lambda: scheduler.now_ms >= self.away_until_ms, ATTEMPT_S):
            raise ps.lookups.LookupUnreachable("The rows are not there just now.")
        found = {key: number_of(key, clock.monotonic_s()) for key in keys}
        scheduler.point("after fetch rows")
        return {key: Row(number) for key, number in found.items() if number is not None}

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def outside(self) -> LookupEnvironment:
        """Return what processors are given instead of what they declare."""
        return LookupEnvironment(self, self._world.clock.monotonic_s, self._world.scheduler.sleep)
