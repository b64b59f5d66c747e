"""A simulated lookup source: its rows change with time, and it is sometimes unreachable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from support.kinds import Row

import penstock as ps
from penstock.processors.lookups.lookup import LookupEnvironment

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
