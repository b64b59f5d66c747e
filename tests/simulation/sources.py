"""The source of a run: writes the input and its watermarks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
from support.kinds import HOUR_MS, Event

from penstock.processors.declare.categories import AnyCategory
from penstock.transport.codecs.by_category import Codecs
from penstock.transport.messages import Outgoing
from penstock.transport.tables.upstream_watermarks import WATERMARKS, WatermarkStatement, watermark_messages

from .inputs import complete_ms, is_deletion, rounds

if TYPE_CHECKING:
    from .world import World

SKEW_MS = 2 * HOUR_MS
"""The maximum difference between writers' clocks and the brokers' clock."""


class Source:
    """Writes the input. Events that an outage delays are written at once after it.

    Args:
        world: the simulated world.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._codecs = Codecs(world.bus)
        self._rng = random.Random(world.scenario.seed)
        self.sent: dict[str, list[Event]] = {name: [] for name in world.scenario.sources}
        self.sent_s: dict[int, float] = {}
        """The write time of each event by its number."""
        self.is_done = False

    def write(self) -> None:
        """Write each round, and publish a watermark after it."""
        world, due_s = self._world, 0.0
        round_intervals_s = (*world.scenario.rounds_s, 1.0)
        for turn, (wait_s, written) in enumerate(zip(round_intervals_s, rounds(world.scenario), strict=True)):
            due_s += wait_s
            world.scheduler.sleep(max(due_s - world.clock.monotonic_s(), 0.0))
            for name, events in zip(world.scenario.sources, written, strict=True):
                world.scheduler.wait(lambda: world.brokers.are_up)
                self._write(name, events)
                self._publish_watermark(name, turn)
        self.is_done = True

    def _write(self, name: str, events: Sequence[Event]) -> None:
        category = self._categories[name]
        codec = self._codecs.of(category)
        for event in events:
            record = category.record(*msgspec.structs.astuple(event))
            value = None if is_deletion(event) else codec.encode([record])[0]
            message = Outgoing(event.key.encode(), value)
            self._world.cluster.append(name, message, sent_ms=self._stamp_ms(event))
            self.sent_s[event.number] = self._world.clock.monotonic_s()
        self.sent[name].extend(events)

    def _stamp_ms(self, event: Event) -> int:
        """Return a producer's timestamp of a message: the event's time, or its clock's, which may be wrong."""
        if not self._world.scenario.skewed:
            return event.at
        return self._world.clock.now_ms() + self._rng.randint(-SKEW_MS, SKEW_MS)

    @cached_property
    def _categories(self) -> dict[str, AnyCategory]:
        return {c.name: c for processor in self._world.processors.values() for c in processor.inputs()}

    def _publish_watermark(self, name: str, turn: int) -> None:
        scenario = self._world.scenario
        if any(name in node.reads and not node.estimates(name) for node in scenario.nodes):
            complete = complete_ms(turn, len(scenario.rounds_s), lopsided=scenario.lopsided)
            ends = {name: self._world.bus.ends(name)}
            watermark = WatermarkStatement(f"source:{name}", 0, 1, complete, ends)
            for message in watermark_messages([watermark]):
                self._world.bus.append(WATERMARKS.name, message)
