"""Crash trials in memory: a subject of any kind, irregular events, crashing workers, and the comparison with the guarantees."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import msgspec

import penstock as ps
from penstock.ops.kernel import changelog_of
from penstock.processors.declare import bucket_of, plan_of
from penstock.processors.shard import is_remote
from penstock.transport import Bucket, Outgoing

from .by_event import BY_EVENT, Outputs
from .by_time import expect_event_time_guarantees
from .kinds import BEHIND_MS, HOUR_MS, KINDS, MINUTE_MS, Answer, Event, other_key
from .lateness import expect_late, too_late
from .mortal import Crash, CrashingDriver
from .subjects import BUCKETS, EXACT, LEAST, Subject
from .verdicts import expect_each_event

ROUNDS = 4
A_ROUND = 16
"""The number of events per round; an even number, for subjects with two inputs."""
KEYS = 6
CHECKPOINT = ps.CheckpointInterval(events=10)
TICK_S = 1.0
"""The time after a round: early results are due, but no input is idle."""
LATE = ("late", "differences")
"""Kinds with late events."""


def irregular(seed: str, *, late: bool) -> list[Event]:
    """Draw events: keys are skewed, times repeat, pause and jump, and the first are before 1970.

    Args:
        seed: the seed of the random numbers.
        late: whether a fifth of the events may be hours late. Otherwise the watermark waits for each event.
    """
    rng = random.Random(seed)
    found: list[Event] = []
    now_ms = -3 * HOUR_MS
    for number in range(ROUNDS * A_ROUND):
        now_ms += rng.choice((0, 0, 0, 1, MINUTE_MS, 5 * MINUTE_MS, 30 * MINUTE_MS))
        delay_ms = rng.choice((0, 0, 1, rng.randrange(BEHIND_MS)))
        if late and rng.random() < 0.2:
            delay_ms = rng.randrange(4 * HOUR_MS)
        key = min(rng.randrange(KEYS) for _ in range(3))
        found.append(Event(f"k{key}", now_ms - delay_ms, number))
    return found


class Trial:
    """A subject that reads events in rounds.

    Args:
        subject: the subject.
        deaths: when its workers die.
    """

    def __init__(self, subject: Subject, deaths: Sequence[Crash] = ()) -> None:
        self.subject = subject
        self.processor = subject.make("x", CHECKPOINT)
        self.driver = CrashingDriver(self.processor, deaths)
        self.events = irregular(subject.kind, late=subject.kind in LATE)
        self.rows: list[tuple[str, int | None]] = []
        """The rows written to a table, in order."""
        self.met: dict[int, int | None] = {}
        """The row of an event's key at the event's arrival, by the event's number."""

    def run(self) -> None:
        """Write all rounds, each after the previous round is read."""
        for turn in range(ROUNDS):
            batch = self.events[turn * A_ROUND : (turn + 1) * A_ROUND]
            if self.subject.kind == "table":
                self._write_rows(turn)
                self._record_rows(batch)
            self._write(batch)
            if self.subject.kind == "injected":
                self._publish_watermark(turn)
            self.driver.clock.advance(TICK_S)
            self.driver.run()
            if turn == ROUNDS // 3:
                self.driver.remember()
            self._compact()

    def _compact(self) -> None:
        """Compact the changelog: the last message of each key remains; deletions remain for now."""
        changelog = changelog_of(self.processor)
        if changelog is None:
            return
        for number in range(changelog.buckets):
            log = self.driver.bus.cluster.log(Bucket(changelog.name, number))
            log.compact(self.driver.clock.now_ms(), 0)

    def _write(self, batch: Sequence[Event]) -> None:
        if self.subject.kind == "table":
            self.driver.send(plan_of(self.processor).inputs[1], batch)
            return
        inputs = plan_of(self.processor).inputs
        for number, category in enumerate(inputs):
            self.driver._write(
                category, [category.record(*msgspec.structs.astuple(event)) for event in batch[number :: len(inputs)]]
            )
        self.driver.run()

    def _write_rows(self, turn: int) -> None:
        """Write rows of a table, and delete one."""
        table, deleted = plan_of(self.processor).inputs[0], f"k{turn % 3}"
        rows = [Answer(f"k{key}", turn, 10 * turn + key) for key in range(0, KEYS, 1 + turn % 2)]
        self.driver._write(table, rows)
        self.driver.bus.writer().send(table.name, [Outgoing(deleted.encode(), None)])
        self.rows += [(row.key, row.number) for row in rows]
        self.rows.append((deleted, None))
        self.driver.run()

    def _record_rows(self, batch: Sequence[Event]) -> None:
        latest = dict(self.rows)
        self.met |= {event.number: latest.get(event.key) for event in batch}

    def _publish_watermark(self, turn: int) -> None:
        with ps.watermarks.WatermarkWriter(self.driver.bus, plan_of(self.processor).inputs[0].name) as injector:
            injector.advance(self._published_ms(turn))

    def _published_ms(self, turn: int) -> int:
        """Return the watermark after a round: no later event is earlier."""
        return min(
            (event.at for event in self.events[(turn + 1) * A_ROUND :]), default=max(event.at for event in self.events)
        )

    @cached_property
    def outputs(self) -> Outputs:
        """The outputs without late events."""
        return self._read(KINDS[self.subject.kind].writes)

    @cached_property
    def late(self) -> Outputs:
        """The late events that were written."""
        return self._read("late")

    def _read(self, name: str) -> Outputs:
        categories = {category.name: category for category in plan_of(self.processor).outputs}
        found = categories.get(f"x.{name}")
        if self.subject.sink and name == KINDS[self.subject.kind].writes:
            return [msgspec.to_builtins(row) for row in self.driver.rows(plan_of(self.processor).sinks[0])]
        return [] if found is None else [msgspec.to_builtins(one) for one in self.driver.read(found)]

    @cached_property
    def state(self) -> dict[bytes, Any]:
        """The saved values of keys, without event time and timers."""
        return {
            key: msgspec.msgpack.decode(value)
            for shard in self.driver._states[self.processor]._shards.values()
            for key, value in shard.items()
            if not key.startswith(b"\xff")
        }

    def low_ms(self) -> dict[str, int]:
        """Return the final watermark of each key: the minimum of the inputs."""
        if self.subject.kind == "injected":
            return {event.key: self._published_ms(ROUNDS - 1) for event in self.events}
        inputs = len(KINDS[self.subject.kind].reads)
        newest: list[list[int]] = [[-(2**62)] * inputs for _ in range(BUCKETS)]
        for place, event in enumerate(self.events):
            times = newest[_bucket(event.key)]
            times[place % inputs] = max(times[place % inputs], event.at)
        return {event.key: min(newest[_bucket(event.key)]) - BEHIND_MS for event in self.events}

    def expect_kept(self) -> None:
        """Compare outputs and state with the events."""
        special = {"late": self._expect_late, "differences": self._expect_late, "table": self._expect_rows}
        if self.subject.kind in special:
            special[self.subject.kind]()
        elif self.subject.kind in BY_EVENT:
            BY_EVENT[self.subject.kind](self.subject, self.outputs, self.state, self.events)
        else:
            expect_event_time_guarantees(self.subject, self.events, self.outputs, self.state, self.low_ms())
        if self.subject.kind == "repartition":
            self._expect_other_buckets()

    def _expect_other_buckets(self) -> None:
        for bucket in range(BUCKETS):
            for message in self.driver.bus.slice(Bucket("x.out", bucket), 0, 10**6):
                event = msgspec.json.decode(message.value() or b"", type=Event)
                assert (message.key(), bucket) == (other_key(event).encode(), _bucket(other_key(event)))

    def _expect_late(self) -> None:
        """Compare windows with the events in time, and the late category with the late events."""
        late = too_late(self.subject, self.events)
        assert late
        expect_late(self.subject, self.events, late, self.outputs, self.late, self.low_ms())

    def _expect_rows(self) -> None:
        """Compare joined rows with the rows at each event's arrival; a rebuilt state may also join later rows."""
        subject, outputs = self.subject, self.outputs
        events = self.events
        expect_each_event(subject.output, outputs, events)
        rows = {(key, row) for key, row in self.rows}
        for output in outputs:
            assert output["answer"] is None or (output["key"], output["answer"]) in rows
            if subject.output is not LEAST and subject.state is EXACT:
                assert output["answer"] == self.met[output["number"]], output
        if subject.state is EXACT:
            found = {key.decode(): row["number"] for key, row in self.state.items()}
            assert found == {key: row for key, row in dict(self.rows).items() if row is not None}


def moments_of(subject: Subject) -> Sequence[str]:
    """Return the moments of a trial without a crash."""
    trial = Trial(subject)
    trial.run()
    trial.expect_kept()
    return trial.driver.moments


def can_lose_disk(subject: Subject) -> bool:
    """Tell whether a subject has a local state."""
    made = subject.make("x")
    return plan_of(made).state_shape is not None and not is_remote(made)


def _bucket(key: str) -> int:
    return bucket_of(key.encode(), BUCKETS)
