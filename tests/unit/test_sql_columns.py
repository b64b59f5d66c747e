"""The types of an SQL file's columns come from the messages of its topics."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.ops.start import with_types
from penstock.ops.start.inference.topic_sample import TopicSample
from penstock.processors.sql import SqlText, compile_app
from penstock.processors.sql.errors import SqlRefused
from penstock.testing import Driver
from penstock.transport import CategorySpec, MessageCopy

FIGURE_2 = """CREATE APPLICATION top_events;

CREATE INPUT TABLE events_score(
    event_time,
    event,
    category,
    score
)

FROM SCRIBE("events_stream")

TIME event_time;

CREATE TABLE top_events_5min AS
    SELECT
        category,
        event,
        topk(score) AS score
    FROM
        events_score [5 minutes]
"""
"""Figure 2 of "Realtime Data Processing at Facebook" (SIGMOD 2016)."""


def sampled(*contents: dict[str, Any], buckets: int = 8) -> Any:
    """Return a reader of a topic with these JSON messages."""
    messages = [MessageCopy(json.dumps(content).encode(), timestamp=(2, 1_780_000_000_000)) for content in contents]
    return lambda topic: TopicSample(CategorySpec(topic, buckets), messages)


def test_the_figure_of_the_paper_runs_after_its_types_are_inferred() -> None:
    """Only the types are added."""
    events = [
        {"event_time": at, "event": event, "category": category, "score": score}
        for at, (event, category, score) in enumerate(
            [("a", "x", 5), ("b", "x", 7), ("a", "x", 4), ("c", "y", 1)] + [(f"e{n}", "y", 2) for n in range(12)]
        )
    ]
    typed = with_types(SqlText("top_events.sql", FIGURE_2), sampled(*events))

    assert typed.splitlines()[3:7] == [
        "    event_time bigint,",
        "    event text,",
        "    category text,",
        "    score bigint",
    ]
    assert typed.replace(" bigint", "").replace(" text", "") == FIGURE_2
    app = compile_app(SqlText("typed.sql", typed), __name__)
    stream = app.relations["events_score"].category
    driver = Driver(app.processors, start_ms=2_000_000)
    driver.send(stream, [stream.record(**event) for event in events])
    for at in (400_000, 800_000, 1_200_000):
        later = [stream.record(event_time=at + n, event=f"later{n}", category=f"z{n}", score=1) for n in range(60)]
        driver.send(stream, later)
    driver.advance(600)
    top = [row for row in driver.read(app.relations["top_events_5min"].category) if row.window_start == 0]

    assert [(row.event, row.score) for row in top if row.category == "x"] == [("a", 9), ("b", 7)]
    ranks = [(row.event, row.score) for row in top if row.category == "y"]
    assert ranks == [(f"e{n}", 2) for n in (0, 1, 10, 11, 2, 3, 4, 5, 6, 7)]


def test_each_kind_of_value_has_a_type() -> None:
    """Quoted names keep their case; columns with types stay as they are."""
    text = """CREATE CATEGORY c (at, "userId", share, flag, uid, moment, price numeric, note) WITH (time = 'at', category = 'topic');
CREATE CATEGORY typed (at bigint) WITH (time = 'at');"""
    content = {
        "at": 5,
        "userId": "ann",
        "share": 1.5,
        "flag": True,
        "uid": "00000000-0000-0000-0000-000000000005",
        "moment": "2026-05-28T20:26:40Z",
        "note": None,
    }
    typed = with_types(SqlText("a.sql", text), sampled(content, {**content, "share": 2, "note": "x"}))

    assert typed.splitlines()[0].startswith(
        'CREATE CATEGORY c (at bigint, "userId" text, share double precision, flag boolean, uid uuid, moment timestamp with time zone, price numeric, note text)'
    )
    assert typed.splitlines()[1] == text.splitlines()[1]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"at": 1}, "The messages of c have no field name. .*They have: at"),
        ({"at": 1, "name": [1]}, "The field name of c has no type of SQL .list."),
        ({"at": 1, "name": None}, "The field name of c has no type of SQL .only null."),
    ],
)
def test_a_column_without_a_type_in_the_messages_is_refused(content: dict[str, Any], reason: str) -> None:
    """The error has its place in the file."""
    with pytest.raises(SqlRefused, match=f"a.sql, line 1, column 24: {reason}"):
        with_types(SqlText("a.sql", "CREATE CATEGORY c (at, name) WITH (time = 'at');"), sampled(content))


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        (
            'CREATE INPUT TABLE c (at) FROM SCRIBE("c") TIME at;',
            'CREATE INPUT TABLE c (at bigint) FROM SCRIBE("c") TIME at WITH (buckets = 3);',
        ),
        ("CREATE CATEGORY c (at) WITH (time = 'at')", "CREATE CATEGORY c (at bigint) WITH (time = 'at', buckets = 3)"),
        (
            "CREATE CATEGORY c (at) WITH (time = 'at', buckets = 4)",
            "CREATE CATEGORY c (at bigint) WITH (time = 'at', buckets = 4)",
        ),
    ],
)
def test_the_number_of_buckets_is_that_of_the_topic(text: str, typed: str) -> None:
    """The file may declare another number."""
    found = with_types(SqlText("a.sql", text), sampled({"at": 1}, buckets=3))

    assert found == typed
    assert compile_app(SqlText("typed.sql", found), __name__).relations["c"].category.buckets in (3, 4)
