"""The trending example: its ranking, as its page shows it, against a recount; and its topics."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from trending import topic_of
from trending_source import actions
from truth.trending import answer

EXAMPLE = Path(__file__).parents[2] / "examples" / "trending"


def shown() -> list[tuple[str, str, str, int]]:
    """Return the rows of the table on the page; another test runs the commands that print it."""
    page = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    rows = []
    for time, topic, ranked in re.findall(r"^(\d\d:\d\d) (\w+) +(#.*)$", page, flags=re.MULTILINE):
        for place in ranked.split(", "):
            event, score = place.split(" ")
            rows.append((time, topic, event, int(score.replace(",", ""))))
    return rows


def test_the_ranking_on_the_page_is_that_of_a_recount() -> None:
    """Every window, topic, event and score is equal."""
    found = [
        (f"{datetime.fromtimestamp(window / 1000, UTC):%H:%M}", topic, event, score)
        for window, topic, event, score in answer(actions(), EXAMPLE / "pages.csv")
    ]

    assert sorted(shown()) == sorted(found)
    assert len(found) == 45


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("what a goal again", "sports"),
        ("never seen such a film", "movies"),
        ("today soup", None),
        ("team baby baby pram", "babies"),
    ],
)
def test_the_topic_of_a_text_is_the_one_with_the_most_words(text: str, topic: str | None) -> None:
    """A text without a topic's words has no topic."""
    assert topic_of(text) == topic
