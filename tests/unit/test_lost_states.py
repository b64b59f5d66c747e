"""What has no event of its own (timers, windows, sessions, early results, what waits for a partner) is written once, whatever state is lost."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import msgspec
import pytest
from support.disks import Disk, copy_of, restart
from support.subjects import EXACT, MOST, Subject, complete_ms, events

import penstock as ps
from penstock.ops.testing import Crash, Driver
from penstock.processors.shard.checkpoints import Step, steps_of
from penstock.transport.messages import Outgoing

EVENTS = events(160)
REPEATABLE = ("timers", "closing", "sessions", "sliding", "windowed", "ordered")
"""Kinds that write something when no event comes, but always the same between the same two events."""
UNREPEATABLE = ("clock", "early", "joining", "injected")
"""Kinds for which that depends on the clock, on another input, or on promises: each is tried in every gap."""
ROWS = ((MOST, MOST), (EXACT, MOST), (EXACT, EXACT))
SUBJECTS = [Subject(kind, *pair) for kind in (*REPEATABLE, *UNREPEATABLE) for pair in ROWS]
IDLE_S = 61.0


class Trial:
    """A subject in memory, and where it is in its events.

    Args:
        subject: which.
    """

    def __init__(self, subject: Subject) -> None:
        self.processor = subject.make("x", ps.CheckpointInterval(events=20))
        self.driver = Driver(self.processor)
        self._injects = subject.kind == "injected"
        self._sent = 0

    def send(self, count: int) -> None:
        """Write further events, to several inputs in turn, each with the other one silent; and promise what a promised watermark needs."""
        some = EVENTS[self._sent : self._sent + count]
        self._sent += count
        inputs = self.processor.inputs()
        for number, category in enumerate(inputs):
            made = [category.record(event.key, event.at, event.number) for event in some[number :: len(inputs)]]
            self.driver.send(category, made)
        if self._injects:
            with ps.watermarks.WatermarkWriter(self.driver.bus, inputs[0].name) as injector:
                injector.advance(complete_ms(self._sent))

    def pass_time(self, crash: Crash | None = None) -> None:
        """Let an input become idle and an interval end, with a death in the checkpoint that follows."""
        self.driver.clock.advance(IDLE_S)
        self.driver.send(self.processor.inputs()[0], [] if crash is None else [crash])
        self.driver.run()

    def outputs(self) -> Counter[Any]:
        """Return what was written so far."""
        return Counter(self.driver.read(self.processor.outputs()[0]))


def outputs_of(subject: Subject, crash: Crash | None = None, disk: Disk | None = None) -> Counter[Any]:
    """Return what a subject writes; with a death in a checkpoint that no event has caused, and states lost there and later."""
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
def truth_of(subject: Subject) -> Counter[Any]:
    """Return what a subject writes where nothing dies."""
    return outputs_of(subject)


def lose(trial: Trial, disk: Disk | None, older: Any) -> None:
    """Kill the worker and let another go on with this disk; nothing without one."""
    if disk is not None:
        restart(trial.driver, trial.processor, disk, older)


def cases() -> list[Any]:
    """Give each subject with gaps of its checkpoints."""
    return [
        pytest.param(subject, before, id=f"{subject}-{before.value if before else 'end'}".replace(" ", "_"))
        for subject in SUBJECTS
        for before in (*steps_of(subject.make("x"))[-1 if subject.kind in REPEATABLE else 0 :], None)
    ]


@pytest.mark.parametrize("disk", Disk)
@pytest.mark.parametrize(("subject", "before"), cases())
def test_nothing_comes_twice_whatever_state_is_lost(subject: Subject, before: Step | None, disk: Disk) -> None:
    """Exactly once it is as without a death; at most once some may be missing."""
    truth, found = truth_of(subject), outputs_of(subject, Crash(before), disk)

    assert truth
    if subject.output is EXACT:
        assert found == truth
    assert found <= truth


@pytest.mark.parametrize("disk", Disk)
@pytest.mark.parametrize("subject", [Subject(kind, *pair) for kind in UNREPEATABLE for pair in ROWS], ids=str)
def test_a_changelog_tells_also_where_the_groups_positions_are_gone(subject: Subject, disk: Disk) -> None:
    """They expire when a group is idle for long; what was committed with them is in the changelog."""
    truth, found = (outputs_after(subject, *how) for how in ((Disk.SAME, False), (disk, True)))

    assert truth
    assert found == truth


def outputs_after(subject: Subject, disk: Disk, forgets: bool) -> Counter[Any]:
    """Return what a subject writes, with a restart on a disk, and a group that is forgotten before that or not."""
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


@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize("disk", Disk)
def test_nothing_comes_twice_where_what_was_read_ends_with_no_event(disk: Disk, goes_on: bool) -> None:
    """A bucket is read up to behind the marker of a transaction: no event brings a state there that is built again."""
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
    if goes_on:
        driver._write(processor.inputs()[0], EVENTS[8:12])
    restart(driver, processor, disk, older)
    _save(driver)
    written = Counter(driver.read(processor.outputs()[0]))

    assert written
    assert set(written.values()) == {1}


def _save(driver: Driver) -> None:
    """Let all be read, and saved."""
    driver.run()
    driver.clock.advance(IDLE_S)
    driver.run()
