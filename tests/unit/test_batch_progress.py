"""What is said of a batch run that is under way."""

from __future__ import annotations

import pytest

from penstock.backfill.spark.progress import ProgressRate, Reached, Stage, stage_of
from penstock.ops.cli.batch_progress import LINE_EVERY_S, Lines


def test_a_stage_is_named_by_its_place_in_its_job() -> None:
    """The first reads, the last gives the result, and between them events are brought together."""
    assert [stage_of(number, [4, 5, 6]) for number in (4, 5, 6)] == [
        Stage.READING,
        Stage.BRINGING_TOGETHER,
        Stage.WRITING,
    ]
    assert stage_of(3, [3]) is Stage.WRITING


def test_what_is_left_follows_from_the_pace_of_the_stage_at_hand() -> None:
    """Counted from when it was first seen; nothing is said before a task of it has ended."""
    pace = ProgressRate()
    told = [pace.left_s(0, 2, 10, 100.0), pace.left_s(0, 4, 10, 110.0), pace.left_s(1, 0, 8, 120.0)]

    assert told == [None, pytest.approx(30.0), None]
    assert pace.left_s(1, 4, 8, 121.0) == pytest.approx(1.0)


def test_where_no_bar_can_be_a_line_is_said_now_and_then() -> None:
    """Not more often, however often it changes."""
    said: list[str] = []
    now_s = [0.0]
    lines = Lines(said.append, lambda: now_s[0])
    for tenth in range(int(25 * LINE_EVERY_S)):
        now_s[0] = tenth / 10
        lines.show(Reached("Hours", Stage.READING, tenth, 500, 1_000 * tenth, 150.0))
    now_s[0] += LINE_EVERY_S
    lines.show(Reached("Hours", Stage.PLANNING, 0, 0, 0, None))

    assert said == [
        "Hours: reading, 100,000 events, about 2 min left of this, 100 of 500 tasks",
        "Hours: reading, 200,000 events, about 2 min left of this, 200 of 500 tasks",
        "Hours: planning, 0 of 0 tasks",
    ]
