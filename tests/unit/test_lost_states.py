"""Outputs that no event causes directly (of timers, windows, sessions, early results, joins) are written once, whatever state is lost."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import msgspec
import pytest
from support.disks import Disk, copy_of, restart
from support.subjects import EXACT, MOST, Subject, complete_ms, events

import penstock as ps
from penstock.ops.kernel import Crash, Driver
from penstock.processors.declare import plan_of
from penstock.processors.shard import Step, steps_of
from penstock.transport import Outgoing

EVENTS = events(160)
REPEATABLE = ("timers", "closing", "sessions", "sliding", "windowed", "ordered")
"""Kinds that write outputs without an event, but always the same outputs between the same two events."""
UNREPEATABLE = ("clock", "early", "joining", "injected")
"""Kinds whose outputs depend on the clock, on another input, or on upstream watermarks; each crashes at every step."""
ROWS = ((MOST, MOST), (EXACT, MOST), (EXACT, EXACT))
SUBJECTS = [Subject(kind, *pair) for kind in (*REPEATABLE, *UNREPEATABLE) for pair in ROWS]
IDLE_S = 61.0


class Trial:
    """A subject on a memory bus, and its progress through the events.

    Args:
        subject: the processor under test.
    """

    def __init__(self, subject: Subject) -> None:
        self.processor = subject.make("x", ps.CheckpointInterval(events=20))
        self.driver = Driver(self.processor)
        self._injects = subject.kind == "injected"
        self._sent = 0

    def send(self, count: int) -> None:
        """Write further events to one input after another, and the watermarks that an upstream watermark needs."""
        some = EVENTS[self._sent : self._sent + count]
        self._sent += count
        inputs = plan_of(self.processor).inputs
        for number, category in enumerate(inputs):
            made = [category.record(event.key, event.at, event.number) for event in some[number :: len(inputs)]]
            self.driver.send(category, made)
        if self._injects:
            with ps.watermarks.WatermarkWriter(self.driver.bus, inputs[0].name) as injector:
                injector.advance(complete_ms(self._sent))

    def pass_time(self, crash: Crash | None = None) -> None:
        """Let an input become idle and an interval end, with an optional crash in the next checkpoint."""
        self.driver.clock.advance(IDLE_S)
        self.driver.send(plan_of(self.processor).inputs[0], [] if crash is None else [crash])
        self.driver.run()

    def outputs(self) -> Counter[Any]:
        """Return the outputs so far."""
        return Counter(self.driver.read(plan_of(self.processor).outputs[0]))


def outputs_of(subject: Subject, crash: Crash | None = None, disk: Disk | None = None) -> Counter[Any]:
    """Return a subject's outputs; optionally crash in a checkpoint without events, and lose state then and later."""
    trial = Trial(subject)
    trial.send(60)
    older = copy_of(trial.driver, trial.processor)
    trial.pass_time()
    trial.send(40)
    trial.pass_time(crash)
    lose(trial, disk, older)
    trial.pass_time()
    trial.send(40)
    lose(trial, disk, older)
    trial.pass_time()
    trial.send(20)
    return trial.outputs()


@cache
def expected_outputs(subject: Subject) -> Counter[Any]:
    """Return a subject's outputs without a crash."""
    return outputs_of(subject)


def lose(trial: Trial, disk: Disk | None, older: Any) -> None:
    """Replace the worker by one with this disk; without a disk, do nothing."""
    if disk is not None:
        restart(trial.driver, trial.processor, disk, older)


def cases() -> list[Any]:
    """Return each subject with crashes at steps of its checkpoints."""
    return [
        pytest.param(subject, before, id=f"{subject}-{before.value if before else 'end'}".replace(" ", "_"))
        for subject in SUBJECTS
        for before in (*steps_of(subject.make("x"))[-1 if subject.kind in REPEATABLE else 0 :], None)
    ]


@pytest.mark.parametrize("disk", Disk)
@pytest.mark.parametrize(("subject", "before"), cases())
def test_no_output_repeats_whatever_state_is_lost(subject: Subject, before: Step | None, disk: Disk) -> None:
    """With exactly-once outputs, every output appears. With at-most-once outputs, some may be missing."""
    expected, outputs = expected_outputs(subject), outputs_of(subject, Crash(before), disk)

    assert expected
    if subject.output is EXACT:
        assert outputs == expected
    assert outputs <= expected


@pytest.mark.parametrize("disk", Disk)
@pytest.mark.parametrize("subject", [Subject(kind, *pair) for kind in UNREPEATABLE for pair in ROWS], ids=str)
def test_a_changelog_replaces_expired_positions_of_the_group(subject: Subject, disk: Disk) -> None:
    """Kafka expires the positions of an idle group; the changelog contains the committed positions, too."""
    expected, outputs = (outputs_after(subject, *how) for how in ((Disk.SAME, False), (disk, True)))

    assert expected
    assert outputs == expected


def outputs_after(subject: Subject, disk: Disk, forgets: bool) -> Counter[Any]:
    """Return a subject's outputs with a restart on a disk; `forgets` deletes its group before the restart."""
    trial = Trial(subject)
    trial.send(60)
    older = copy_of(trial.driver, trial.processor)
    trial.pass_time()
    trial.send(40)
    trial.pass_time()
    if forgets:
        trial.driver.bus.kill_members(trial.processor.name)
        trial.driver.bus.forget_group(trial.processor.name)
    restart(trial.driver, trial.processor, disk, older)
    trial.send(60)
    trial.pass_time()
    return trial.outputs()


@pytest.mark.parametrize("has_more_events", [False, True])
@pytest.mark.parametrize("disk", Disk)
def test_no_output_repeats_if_the_last_offset_read_is_a_marker(disk: Disk, has_more_events: bool) -> None:
    """The position is after an abort marker, so no event advances a rebuilt state to that position."""
    processor = Subject("aggregator", EXACT, EXACT).make("x", ps.CheckpointInterval(events=1_000))
    driver = Driver(processor)
    older = copy_of(driver, processor)
    source = driver.bus.transactional_writer("source", None, 60.0, [])
    for some, count in ((EVENTS[:8], True), (EVENTS[:8], False)):
        source.send("x.events", [Outgoing(event.key.encode(), msgspec.json.encode(event)) for event in some])
        source.flush()
        if count:
            source.commit([])
        else:
            source.abort()
    _save(driver)
    if has_more_events:
        driver._write(plan_of(processor).inputs[0], EVENTS[8:12])
    restart(driver, processor, disk, older)
    _save(driver)
    written = Counter(driver.read(plan_of(processor).outputs[0]))

    assert written
    assert set(written.values()) == {1}


def _save(driver: Driver) -> None:
    """Read and save all events."""
    driver.run()
    driver.clock.advance(IDLE_S)
    driver.run()
