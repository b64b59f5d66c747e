"""Tiers of Laser tables, and a client that reads from all of them and checks each answer.

A tier is a processor of its own. Its clock may be wrong, and changes at each start.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from support.kinds import MINUTE_MS

import penstock as ps
from penstock.ops.kernel import Worker
from penstock.ops.serve.latest.pairs import NotServed
from penstock.ops.serve.latest.served_pairs import ServedPairs
from penstock.ops.serve.latest.table import LatestTable, Pair
from penstock.processors.declare import bucket_of, plan_of
from penstock.transport import Bucket, Bus

from .inputs import BASE_MS, KEYS, active_keys, is_deletion
from .scheduler import START_MS, Process

if TYPE_CHECKING:
    from .machines import Machine
    from .nodes import Node
    from .world import World

LIFETIME_MS = START_MS - BASE_MS + 20 * MINUTE_MS
"""The lifetime of pairs of "expiring". The earliest end during the run, by a right clock or a wrong one."""
CLOCK_ERRORS_MS = (0, 0, -40 * MINUTE_MS, 10 * MINUTE_MS, 40 * MINUTE_MS)
READ_EVERY_S = 0.25
ALL = 1 << 60


def table_of(name: str, category: ps.Category[ps.Record], kind: str) -> LatestTable:
    """Return the table of a tier: the last number of each key."""
    lifetime = timedelta(milliseconds=LIFETIME_MS) if kind == "expiring" else None
    return LatestTable(name, category, ("key",), ("number",), lifetime)


class Written(NamedTuple):
    """A message of a key: its offset, and the number and time of its event; no number for a deletion."""

    offset: int
    number: int | None
    at_ms: int

    def is_shown(self, now_ms: int, lifetime_ms: int | None) -> bool:
        """Return whether its pair is served."""
        return self.number is not None and (lifetime_ms is None or self.at_ms + lifetime_ms > now_ms)


@dataclass(frozen=True)
class Tier:
    """A running server.

    Args:
        table: its table.
        pairs: its pairs.
        ends: the ends of the buckets when it started.
        now_ms: its clock.
    """

    table: LatestTable
    pairs: ServedPairs
    ends: dict[int, int]
    now_ms: Callable[[], int]

    def publish(self, worker: Worker) -> bool:
        """Serve what the worker has saved; as a condition for its end, never."""
        self.pairs.publish(worker)
        return False


class Tiers:
    """The servers of a run, and what a client has learned from them.

    Args:
        world: the simulated world.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = random.Random(world.scenario.seed)
        self._acknowledged: dict[tuple[str, str], int] = {}
        """The offset of the newest answer, by tier and key."""
        self._running: dict[Process, Tier] = {}

    def start(self, node: Node, process: Process, bus: Bus) -> Tier:
        """Return the server of a process that starts."""
        [category] = plan_of(self._world.processors[node]).inputs
        table = table_of(node.name, category, node.kind)
        error_ms, clock = self._rng.choice(CLOCK_ERRORS_MS), self._world.clock

        def now_ms() -> int:
            return clock.now_ms() + error_ms

        ends = dict(self._world.bus.ends(category.name))
        self._running[process] = tier = Tier(table, ServedPairs(table, bus, now_ms), ends, now_ms)
        return tier

    def read(self) -> None:
        """Read from each server again and again."""
        while True:
            self._world.scheduler.sleep(READ_EVERY_S)
            for node in self._world.scenario.tiers:
                for machine in self._world.machines.of(node):
                    self._read(node, machine, self._rng.sample(self._keys(node), 3))

    def expect_current(self, node: Node) -> None:
        """Expect that a tier answers for each key with its last message."""
        [machine] = self._world.machines.of(node)
        answers = self._read(node, machine, self._keys(node))
        assert answers is not None, f"{node.name} does not answer"
        tier = self._running[_process(machine)]
        for key, answer in answers.items():
            last = self._history(node, key)[-1:]
            shown = [each.number for each in last if each.is_shown(tier.now_ms(), tier.table.lifetime_ms)]
            assert ([] if answer is None else [int(answer.value)]) == shown, (
                f"{node.name} has not the last value of {key}"
            )

    def _read(self, node: Node, machine: Machine, keys: Sequence[str]) -> dict[str, Pair | None] | None:
        """Return the checked answers of a server; None if it is down, paused or still reads."""
        tier = self._running.get(_process(machine)) if machine.is_up else None
        if tier is None or _process(machine).paused_until_ms > self._world.scheduler.now_ms:
            return None
        try:
            found = tier.pairs.fetch([key.encode() for key in keys])
        except NotServed:
            return None
        answers = dict(zip(keys, found, strict=True))
        for key, answer in answers.items():
            self._check(node, tier, key, answer)
        return answers

    def _check(self, node: Node, tier: Tier, key: str, answer: Pair | None) -> None:
        """Expect an answer that is not older than an earlier one of the tier, nor than its start, and not expired."""
        history = self._history(node, key)
        existed = tier.ends[bucket_of(key.encode(), len(tier.ends))]
        least = max([self._acknowledged.get((node.name, key), -1), *(m.offset for m in history if m.offset < existed)])
        now_ms, lifetime_ms = tier.now_ms(), tier.table.lifetime_ms
        recent = [message for message in history if message.offset >= least]
        if answer is None:
            hidden = [message for message in recent if not message.is_shown(now_ms, lifetime_ms)]
            assert least < 0 or hidden, f"{node.name} has lost {key}: it was at offset {least}"
            return
        [message] = [message for message in history if message.number == int(answer.value)]
        assert message.is_shown(now_ms, lifetime_ms), f"{node.name} answers with an expired value of {key}"
        assert message.offset >= least, (
            f"{node.name} answers for {key} as of offset {message.offset}, after offset {least}"
        )
        self._acknowledged[node.name, key] = message.offset

    def _history(self, node: Node, key: str) -> list[Written]:
        """Return the messages of a key. Its bucket has them in the order in which they were sent."""
        [name] = node.reads
        number = bucket_of(key.encode(), self._world.scenario.category_settings.buckets_of(name))
        messages = self._world.bus.slice(Bucket(name, number), 0, ALL)
        offsets = [message.at for message in messages if message.key() == key.encode()]
        events = [event for event in self._world.source.sent[name] if event.key == key]
        return [
            Written(offset, None if is_deletion(event) else event.number, event.at)
            for offset, event in zip(offsets, events, strict=True)
        ]

    def _keys(self, node: Node) -> list[str]:
        buckets = self._world.scenario.category_settings.buckets_of(node.reads[0])
        return [*(f"k{number}" for number in range(KEYS)), *active_keys(buckets)]


def _process(machine: Machine) -> Process:
    assert machine.process is not None
    return machine.process
