"""Progress of a batch run."""

from __future__ import annotations

import pytest

from penstock.backfill.spark import StageProgress
from penstock.backfill.spark.progress import ProgressRate, Stage, stage_of
from penstock.ops.shell import LINE_EVERY_S
from penstock.ops.shell.terminal.progress import ProgressLines


def test_a_stage_is_named_by_its_position_in_its_job() -> None:
    """The first reads, the last writes, and the others shuffle."""
    assert [stage_of(number, [4, 5, 6]) for number in (4, 5, 6)] == [
        Stage.READING,
        Stage.SHUFFLING,
        Stage.WRITING,
    ]
    assert stage_of(3, [3]) is Stage.WRITING


def test_the_remaining_time_follows_the_rate_of_the_stage() -> None:
    """It is unknown before the first task has ended."""
    rate = ProgressRate()
    remaining = [rate.remaining_s(0, 2, 10, 100.0), rate.remaining_s(0, 4, 10, 110.0), rate.remaining_s(1, 0, 8, 120.0)]

    assert remaining == [None, pytest.approx(30.0), None]
    assert rate.remaining_s(1, 4, 8, 121.0) == pytest.approx(1.0)


def test_without_a_terminal_progress_is_printed_periodically() -> None:
    """It is printed at most once per interval."""
    printed: list[str] = []
    now_s = [0.0]
    lines = ProgressLines(printed.append, lambda: now_s[0])
    for tenth in range(int(25 * LINE_EVERY_S)):
        now_s[0] = tenth / 10
        lines.show(StageProgress("Hours", Stage.READING, tenth, 500, 1_000 * tenth, 150.0))
    now_s[0] += LINE_EVERY_S
    lines.show(StageProgress("Hours", Stage.PLANNING, 0, 0, 0, None))

    assert printed == [
        "Hours: reading, 100,000 events, about 2 min left in this stage, 100 of 500 tasks",
        "Hours: reading, 200,000 events, about 2 min left in this stage, 200 of 500 tasks",
        "Hours: planning, 0 of 0 tasks",
    ]
