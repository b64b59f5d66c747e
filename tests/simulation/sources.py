"""The source of a run: writes the input and its watermarks."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from itertools import accumulate
from typing import TYPE_CHECKING

import msgspec
from support.kinds import HOUR_MS, Event

from penstock.processors.declare import AnyCategory, MessageHeaders, plan_of
from penstock.transport import Outgoing
from penstock.transport.codecs import Codecs
from penstock.transport.memory.log import MessageState
from penstock.transport.tables import WATERMARKS, WatermarkStatement, watermark_messages

from .inputs import complete_ms, is_deletion, rounds

if TYPE_CHECKING:
    from .world import World

Schedule = Sequence[tuple[float, Mapping[str, Sequence[Event]]]]
"""The time of each round in seconds since the start, and its events by input."""
FOREIGN_HEADERS: tuple[MessageHeaders, ...] = (
    (("penstock.retry.origin", b"x"),),
    (("penstock.retry.origin", b"x"), ("penstock.retry.error", b"\xff")),
    (
        (
            "penstock.retry.origin",
            b'{"category":"other","bucket":7,"offset":5,"timestamp_type":1,"timestamp_ms":1,"attempts":4}',
        ),
        ("penstock.retry.error", None),
    ),
)
"""Headers of other programs, or of another Penstock."""
FOREIGN_WRITER = "foreign"
FOREIGN_PROBABILITY = 0.3
"""The probability that a transaction of another program is open during a round; it is aborted."""
SKEW_MS = 2 * HOUR_MS
"""The maximum difference between writers' clocks and the brokers' clock."""


class Source:
    """Writes the input. Events that an outage delays are written after it, at once or when the producer of their input tries again.

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
        """Write each round, and publish a watermark after it. Producers that hesitate write their inputs independently."""
        scenario, scheduler = self._world.scenario, self._world.scheduler
        times_s = list(accumulate((*scenario.rounds_s, 1.0)))
        schedule = [
            (due_s, dict(zip(scenario.sources, written, strict=True)))
            for due_s, written in zip(times_s, rounds(scenario), strict=True)
        ]
        if not scenario.hesitation_s:
            self._produce(scenario.sources, schedule)
        else:
            process = scheduler.current.process
            tasks = [
                scheduler.spawn(process, f"producer of {name}", partial(self._produce, [name], schedule))
                for name in scenario.sources
            ]
            scheduler.wait(lambda: all(task.is_done for task in tasks))
        self.is_done = True

    def _produce(self, names: Sequence[str], schedule: Schedule) -> None:
        """Write some inputs."""
        world = self._world
        for turn, (due_s, written) in enumerate(schedule):
            world.scheduler.sleep(max(due_s - world.clock.monotonic_s(), 0.0))
            for name in names:
                self._await_brokers()
                self._write(name, written[name])
                if world.scenario.foreign:
                    self._leave_open(name, written[name], is_last=turn == len(schedule) - 1)
                self._publish_watermark(name, turn)

    def _await_brokers(self) -> None:
        """Wait until the brokers answer, and after an outage until the producer tries again."""
        world, hesitation_s = self._world, self._world.scenario.hesitation_s
        is_delayed = not world.brokers.are_up
        world.scheduler.wait(lambda: world.brokers.are_up)
        while is_delayed and hesitation_s:
            world.scheduler.sleep(self._rng.uniform(0.0, hesitation_s))
            is_delayed = not world.brokers.are_up

    def _write(self, name: str, events: Sequence[Event]) -> None:
        codec = self._codecs.of(self._categories[name])
        for event in events:
            value = None if is_deletion(event) else codec.encode([self._record(name, event)])[0]
            headers = self._rng.choice(FOREIGN_HEADERS) if self._world.scenario.foreign else None
            message = Outgoing(event.key.encode(), value, headers=headers)
            self._world.cluster.append(name, message, sent_ms=self._stamp_ms(event))
            self.sent_s[event.number] = self._world.clock.monotonic_s()
        self.sent[name].extend(events)

    def _leave_open(self, name: str, events: Sequence[Event], *, is_last: bool) -> None:
        """Abort the open transaction of another program, and perhaps begin the next one with some of the messages."""
        topic = self._world.cluster.topic(name)
        for log in topic.logs:
            log.mark(FOREIGN_WRITER, MessageState.ABORTED)
        if not is_last and self._rng.random() < FOREIGN_PROBABILITY:
            values = self._codecs.of(self._categories[name]).encode([self._record(name, event) for event in events])
            for event, value in zip(events, values, strict=True):
                self._world.cluster.append(name, Outgoing(event.key.encode(), value), FOREIGN_WRITER)

    def _record(self, name: str, event: Event) -> object:
        """Return an event as a record of a category."""
        return self._categories[name].record(*msgspec.structs.astuple(event))

    def _stamp_ms(self, event: Event) -> int:
        """Return a producer's timestamp of a message: the event's time, or its clock's, which may be wrong."""
        if not self._world.scenario.skewed:
            return event.at
        return self._world.clock.now_ms() + self._rng.randint(-SKEW_MS, SKEW_MS)

    @cached_property
    def _categories(self) -> dict[str, AnyCategory]:
        return {c.name: c for processor in self._world.processors.values() for c in plan_of(processor).inputs}

    def _publish_watermark(self, name: str, turn: int) -> None:
        scenario = self._world.scenario
        if any(name in node.reads and not node.estimates(name) for node in scenario.nodes):
            complete = complete_ms(turn, len(scenario.rounds_s), lopsided=scenario.lopsided)
            ends = {name: self._world.bus.ends(name)}
            watermark = WatermarkStatement(f"source:{name}", 0, 1, complete, ends)
            for message in watermark_messages([watermark]):
                self._world.bus.append(WATERMARKS.name, message)
