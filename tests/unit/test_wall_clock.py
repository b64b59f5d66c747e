"""The wall clock of a process: a jump of the machine's clock counts only after it has lasted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.ops.shell.process.clock import CONFIRMED_AFTER_S, JUMP_MS, WallClock
from penstock.processors.keyed_state import EmptyState
from penstock.processors.operators.early_results import EarlyResults
from penstock.processors.time import Cron, Interval, Schedule, ScheduledFirings
from penstock.processors.time.schedules import CLOCK_DIFFERENCE_MS

START_MS = 1_795_000_000_000
DAY_MS, YEAR_MS = 86_400_000, 365 * 86_400_000


class Machine:
    """A machine whose wall clock a test sets.

    Args:
        start_s: the seconds of its monotonic clock.
    """

    def __init__(self, start_s: float = 1_000.0) -> None:
        self.elapsed_s = start_s
        self.ahead_ms = 0
        self._base_ms = START_MS - int(start_s * 1000)
        self.clock = WallClock(self.read_ms, lambda: self.elapsed_s)

    @property
    def right_ms(self) -> int:
        """The right time."""
        return self._base_ms + int(self.elapsed_s * 1000)

    def read_ms(self) -> int:
        """Return the time that the machine shows."""
        return self.right_ms + self.ahead_ms


JUMPS = st.lists(
    st.tuples(st.sampled_from([-10, -1, 1, 10, 400]), st.floats(0, CONFIRMED_AFTER_S - 1), st.floats(0, 5_000)),
    max_size=8,
)


@given(jumps=JUMPS, asked_every_s=st.floats(0.5, 30))
def test_jumps_that_do_not_last_have_no_effect(jumps: Sequence[tuple[int, float, float]], asked_every_s: float) -> None:
    """The clock advances by the time that has passed, for any number and size of jumps."""
    machine = Machine()
    assert machine.clock.now_ms() == START_MS
    for days, lasts_s, pause_s in jumps:
        for ahead_ms, until_s in ((days * DAY_MS, lasts_s), (0, pause_s + asked_every_s)):
            machine.ahead_ms, end_s = ahead_ms, machine.elapsed_s + until_s
            while machine.elapsed_s < end_s:
                assert abs(machine.clock.now_ms() - machine.right_ms) <= 1
                machine.elapsed_s = min(machine.elapsed_s + asked_every_s, end_s)


@pytest.mark.parametrize("by_ms", [-YEAR_MS, -2 * JUMP_MS, 2 * JUMP_MS, YEAR_MS])
def test_a_jump_that_lasts_is_followed(by_ms: int, caplog: pytest.LogCaptureFixture) -> None:
    """The clock may be asked rarely. The jump is reported once."""
    machine = Machine()
    machine.clock.now_ms()
    machine.ahead_ms = by_ms
    before = machine.clock.now_ms()
    machine.elapsed_s += CONFIRMED_AFTER_S
    after = machine.clock.now_ms()

    assert (before, after) == (START_MS, START_MS + by_ms + int(CONFIRMED_AFTER_S * 1000))
    assert [record.message.startswith("The clock of this machine has jumped") for record in caplog.records] == [True]


def test_small_corrections_are_followed_at_once() -> None:
    """Time synchronization makes such corrections."""
    machine = Machine()
    machine.clock.now_ms()
    machine.ahead_ms = JUMP_MS // 2

    assert machine.clock.now_ms() == START_MS + JUMP_MS // 2


@pytest.mark.parametrize(
    "schedule", [Interval(timedelta(minutes=1)), Cron("* * * * *"), Cron("* * * * *", catch_up=True)]
)
@pytest.mark.parametrize("ahead_ms", [2 * CLOCK_DIFFERENCE_MS, 30 * DAY_MS])
def test_a_schedule_continues_after_a_clock_was_ahead(schedule: Schedule, ahead_ms: int) -> None:
    """A machine that starts with a wrong clock saves a firing in the future, which the next owner of the shard reads."""
    minute_ms = 60_000
    firings = ScheduledFirings({"beat": schedule}, 0, EmptyState())
    assert not list(firings.due(START_MS))
    list(firings.due(START_MS + ahead_ms))
    found = [one.at for number in range(1, 61) for one in firings.due(START_MS + number * minute_ms)]

    assert found[-50:] == [(START_MS // minute_ms + number) * minute_ms for number in range(11, 61)]


def test_a_schedule_keeps_its_times_between_machines_whose_clocks_differ_a_little() -> None:
    """No time fires twice."""
    firings = ScheduledFirings({"beat": Interval(timedelta(seconds=1))}, 0, EmptyState())
    assert not list(firings.due(0))
    found = [one.at for now_ms in (5_000, 3_000, 4_500, 6_000) for one in firings.due(now_ms)]

    assert found == [5_000, 6_000]


def test_early_results_continue_after_a_clock_was_ahead() -> None:
    """One appears at once, and then one per interval."""
    early = EarlyResults(timedelta(seconds=10), EmptyState())
    early.is_due(START_MS)
    assert early.is_due(START_MS + 10 * YEAR_MS)

    assert [early.is_due(START_MS + second * 1_000) for second in (11, 12, 20, 21)] == [True, False, False, True]
