"""Trials in memory: a subject of any kind, irregular events in rounds, workers that die; and whether what was promised was kept."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import msgspec

import penstock as ps
from penstock.ops.worker.changelog_replay import changelog_of
from penstock.processors.declare.partitioner import bucket_of
from penstock.processors.shard.checkpoints import is_remote
from penstock.transport.messages import Bucket, Outgoing

from .by_event import BY_EVENT, Outputs
from .by_time import expect_kept_by_time
from .kinds import BEHIND_MS, HOUR_MS, KINDS, MINUTE_MS, Answer, Event, other_key
from .lateness import expect_late, too_late
from .mortal import Death, Mortal
from .subjects import BUCKETS, EXACT, LEAST, Subject
from .verdicts import expect_each_event

ROUNDS = 4
A_ROUND = 16
"""How many events there are in each; an even number, for what reads two inputs in turn."""
KEYS = 6
CHECKPOINT = ps.CheckpointInterval(events=10)
TICK_S = 1.0
"""How much time passes after a round: early results are due then, and nobody is idle yet."""
LATE = ("late", "differences")
"""Kinds whose events may come too late."""


def irregular(seed: str, *, late: bool) -> list[Event]:
    """Draw events: some keys have most of them, some times have several, time stands still and leaps, and begins before 1970.

    Args:
        seed: of what they are drawn.
        late: whether some come hours late; else none comes later than the watermark waits for.
    """
    lots = random.Random(seed)
    found: list[Event] = []
    now_ms = -3 * HOUR_MS
    for number in range(ROUNDS * A_ROUND):
        now_ms += lots.choice((0, 0, 0, 1, MINUTE_MS, 5 * MINUTE_MS, 30 * MINUTE_MS))
        delay_ms = lots.choice((0, 0, 1, lots.randrange(BEHIND_MS)))
        if late and lots.random() < 0.2:
            delay_ms = lots.randrange(4 * HOUR_MS)
        key = min(lots.randrange(KEYS) for _ in range(3))
        found.append(Event(f"k{key}", now_ms - delay_ms, number))
    return found


class Trial:
    """A subject that is given events in rounds.

    Args:
        subject: which.
        deaths: when its workers die.
    """

    def __init__(self, subject: Subject, deaths: Sequence[Death] = ()) -> None:
        self.subject = subject
        self.processor = subject.make("x", CHECKPOINT)
        self.driver = Mortal(self.processor, deaths)
        self.events = irregular(subject.kind, late=subject.kind in LATE)
        self.rows: list[tuple[str, int | None]] = []
        """What was written to a table, in order."""
        self.met: dict[int, int | None] = {}
        """By an event's number, the row that its key has when it comes."""

    def run(self) -> None:
        """Write all rounds, each when the one before it is read."""
        for turn in range(ROUNDS):
            some = self.events[turn * A_ROUND : (turn + 1) * A_ROUND]
            if self.subject.kind == "table":
                self._write_rows(turn)
                self._note_rows(some)
            self._write(some)
            if self.subject.kind == "injected":
                self._promise(turn)
            self.driver.clock.advance(TICK_S)
            self.driver.run()
            if turn == ROUNDS // 3:
                self.driver.remember()
            self._compact()

    def _compact(self) -> None:
        """Let the bus clean the changelog, if there is one: of each key the last message stays; what says that it was deleted, for now."""
        changelog = changelog_of(self.processor)
        if changelog is None:
            return
        for number in range(changelog.buckets):
            log = self.driver.bus.cluster.log(Bucket(changelog.name, number))
            log.compact(self.driver.clock.now_ms(), 0)

    def _write(self, some: Sequence[Event]) -> None:
        if self.subject.kind == "table":
            self.driver.send(self.processor.inputs()[1], some)
            return
        inputs = self.processor.inputs()
        for number, category in enumerate(inputs):
            self.driver._write(
                category, [category.record(*msgspec.structs.astuple(event)) for event in some[number :: len(inputs)]]
            )
        self.driver.run()

    def _write_rows(self, turn: int) -> None:
        """Write rows of a table, and delete one."""
        table, gone = self.processor.inputs()[0], f"k{turn % 3}"
        rows = [Answer(f"k{key}", turn, 10 * turn + key) for key in range(0, KEYS, 1 + turn % 2)]
        self.driver._write(table, rows)
        self.driver.bus.writer().send(table.name, [Outgoing(gone.encode(), None)])
        self.rows += [(row.key, row.number) for row in rows]
        self.rows.append((gone, None))
        self.driver.run()

    def _note_rows(self, some: Sequence[Event]) -> None:
        latest = dict(self.rows)
        self.met |= {event.number: latest.get(event.key) for event in some}

    def _promise(self, turn: int) -> None:
        with ps.watermarks.WatermarkWriter(self.driver.bus, self.processor.inputs()[0].name) as injector:
            injector.advance(self._promised_ms(turn))

    def _promised_ms(self, turn: int) -> int:
        """Return what no event is earlier than that comes after a round."""
        return min(
            (event.at for event in self.events[(turn + 1) * A_ROUND :]), default=max(event.at for event in self.events)
        )

    @cached_property
    def outputs(self) -> Outputs:
        """What was written, but for late events."""
        return self._read(KINDS[self.subject.kind].writes)

    @cached_property
    def late(self) -> Outputs:
        """The late events that were written."""
        return self._read("late")

    def _read(self, name: str) -> Outputs:
        categories = {category.name: category for category in self.processor.outputs()}
        found = categories.get(f"x.{name}")
        return [] if found is None else [msgspec.to_builtins(one) for one in self.driver.read(found)]

    @cached_property
    def state(self) -> dict[bytes, Any]:
        """What is saved under keys; not what lies beside them: how far event time is, and timers."""
        return {
            key: msgspec.msgpack.decode(value)
            for shard in self.driver._states[self.processor]._shards.values()
            for key, value in shard.items()
            if not key.startswith(b"\xff")
        }

    def low_ms(self) -> dict[str, int]:
        """Return, by key, how far event time is in the end: of several inputs, the one that is not so far."""
        if self.subject.kind == "injected":
            return {event.key: self._promised_ms(ROUNDS - 1) for event in self.events}
        inputs = len(KINDS[self.subject.kind].reads)
        newest: list[list[int]] = [[-(2**62)] * inputs for _ in range(BUCKETS)]
        for place, event in enumerate(self.events):
            times = newest[_bucket(event.key)]
            times[place % inputs] = max(times[place % inputs], event.at)
        return {event.key: min(newest[_bucket(event.key)]) - BEHIND_MS for event in self.events}

    def expect_kept(self) -> None:
        """Hold what was written and what is saved against the events."""
        special = {"late": self._expect_late, "differences": self._expect_late, "table": self._expect_rows}
        if self.subject.kind in special:
            special[self.subject.kind]()
        elif self.subject.kind in BY_EVENT:
            BY_EVENT[self.subject.kind](self.subject, self.outputs, self.state, self.events)
        else:
            expect_kept_by_time(self.subject, self.events, self.outputs, self.state, self.low_ms())
        if self.subject.kind == "repartition":
            self._expect_other_buckets()

    def _expect_other_buckets(self) -> None:
        for bucket in range(BUCKETS):
            for message in self.driver.bus.slice(Bucket("x.out", bucket), 0, 10**6):
                event = msgspec.json.decode(message.value() or b"", type=Event)
                assert (message.key(), bucket) == (other_key(event).encode(), _bucket(other_key(event)))

    def _expect_late(self) -> None:
        """Hold windows and late events against those that came in time, and those that did not."""
        late = too_late(self.subject, self.events)
        assert late
        expect_late(self.subject, self.events, late, self.outputs, self.late, self.low_ms())

    def _expect_rows(self) -> None:
        """Hold what events were given against the rows that their keys had then; where state is read again, rows may be met that come later."""
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
    """Return the moments of a trial in which nothing dies."""
    trial = Trial(subject)
    trial.run()
    trial.expect_kept()
    return trial.driver.moments


def can_lose_disk(subject: Subject) -> bool:
    """Tell whether a subject has a state beside its worker."""
    made = subject.make("x")
    return made.state_shape() is not None and not is_remote(made)


def _bucket(key: str) -> int:
    return bucket_of(key.encode(), BUCKETS)
