"""An app in SQL on a real broker, with the commands of any app."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from support.cli import Cli
from support.meters import HOUR, readings
from support.plain import values

DAY = 24 * HOUR

APP = """
CREATE APPLICATION meters;

CREATE CATEGORY readings (meter text, at bigint, litres double precision)
WITH (category = '{prefix}.readings', key = 'meter', time = 'at', buckets = 2);

CREATE TABLE large WITH (category = '{prefix}.large') AS
SELECT meter, at, litres FROM readings WHERE litres >= 5;

CREATE TABLE per_litres WITH (category = '{prefix}.per_litres', buckets = 2, semantics = 'exactly once') AS
SELECT litres, count(*) AS readings FROM readings GROUP BY litres, tumble(at, interval '1 day');

CREATE TABLE phased WITH (category = '{prefix}.phased', buckets = 2, two_phase = true) AS
SELECT litres, count(*) AS readings FROM readings GROUP BY litres, tumble(at, interval '1 day');
"""


@pytest.fixture
def sql(cli: Cli, prefix: str) -> Path:
    """Return an app whose processors have names of their own on the shared broker."""
    file = cli.folder / "meters.sql"
    names = {"large": f"{prefix}_large", "per_litres": f"{prefix}_per_litres", "phased": f"{prefix}_phased"}
    text = APP.format(prefix=prefix)
    for name, unique in names.items():
        text = text.replace(f"TABLE {name} ", f'TABLE "{unique}" ')
    file.write_text(text)
    return file


def test_the_commands_run_an_app_in_sql(cli: Cli, sql: Path, prefix: str, kafka: str) -> None:
    """Categories are created, records sent, processors run and replayed; counts are exact."""
    sent = [json.loads(line) for line in readings(200).splitlines()]
    cli.ok("category", "create", "meters.sql")
    cli.ok("category", "send", f"{prefix}.readings", "--app", "meters.sql", stdin=readings(200))
    cli.ok("run", "meters.sql", "--until-end")
    cli.ok("category", "send", f"{prefix}.readings", "--app", "meters.sql", stdin=readings(100, start=200))
    cli.ok("run", "meters.sql", "--until-end")
    sent += [json.loads(line) for line in readings(100, start=200).splitlines()]

    def written(name: str) -> list[dict[str, Any]]:
        return values(kafka, f"{prefix}.{name}")

    large = [each for each in sent if each["litres"] >= 5]
    latest, phased = (
        {(each["litres"], each["window_start"]): each["readings"] for each in written(name)}
        for name in ("per_litres", "phased")
    )
    printed = cli.ok("replay", f"meters.sql:{prefix}_large", "--from", "1h ago", "--json")
    *replayed, summary = [json.loads(line) for line in printed.splitlines()]

    assert sorted(written("large"), key=repr) == sorted(large, key=repr)
    assert latest == phased == Counter((each["litres"], each["at"] - each["at"] % DAY) for each in sent)
    assert len(replayed) == len(large)
    assert summary["summary"]["outputs"] == len(large)


def test_an_invalid_statement_is_shown_with_its_place(cli: Cli) -> None:
    """The error names the file, the line and the column, and marks the place; there is no traceback."""
    (cli.folder / "wrong.sql").write_text(
        "CREATE CATEGORY c (a bigint) WITH (time = 'a');\nCREATE TABLE t AS\nSELECT b FROM c;\n"
    )
    done = cli("run", "wrong.sql")

    assert done.returncode == 1
    assert "wrong.sql, line 3, column 8: There is no column 'b'. The columns are: a." in done.stderr
    assert "3 | SELECT b FROM c\n" in done.stderr.replace(";", "")
    assert "Traceback" not in done.stderr


FIGURE_2 = """CREATE APPLICATION top_events;

CREATE INPUT TABLE events_score(
    event_time,
    event,
    category,
    score
)

FROM SCRIBE("{prefix}.events_stream")

TIME event_time;

CREATE TABLE "{prefix}_top" AS
    SELECT
        category,
        event,
        topk(score) AS score
    FROM
        events_score [5 minutes]
"""
"""Figure 2 of "Realtime Data Processing at Facebook" (SIGMOD 2016), with names for a shared broker."""
WINDOW = 5 * 60_000


def test_the_figure_of_the_paper_runs_on_an_existing_topic(cli: Cli, prefix: str, kafka: str) -> None:
    """`category infer` adds its types and the number of buckets. The ranks equal a recount."""
    topic, dice = f"{prefix}.events_stream", random.Random(5)
    cli.ok("category", "create", topic, "--buckets", "3")
    producer, sums = Producer({"bootstrap.servers": kafka}), defaultdict[tuple[int, str], Counter[str]](Counter)
    for number in range(3_000):
        at = number * WINDOW // 500  # six windows, the last of which stays open
        event, category, score = f"e{dice.randrange(40)}", f"c{dice.randrange(4)}", dice.randrange(100)
        value = {"event_time": at, "event": event, "category": category, "score": score}
        producer.produce(topic, json.dumps(value).encode(), partition=number % 3)
        sums[at // WINDOW * WINDOW, category][event] += score
    assert producer.flush(30) == 0
    (cli.folder / "top_events.sql").write_text(FIGURE_2.format(prefix=prefix))

    refused = cli("category", "create", "top_events.sql")
    (cli.folder / "typed.sql").write_text(cli.ok("category", "infer", "top_events.sql"))
    cli.ok("run", "typed.sql", "--until-end", "--create")

    assert "penstock category infer top_events.sql" in refused.stderr
    assert "WITH (buckets = 3)" in (cli.folder / "typed.sql").read_text()
    found = defaultdict[tuple[int, str], list[tuple[str, int]]](list)
    for each in values(kafka, f"{prefix}_top"):
        found[each["window_start"], each["category"]].append((each["event"], each["score"]))
    complete = {place for place in sums if place[0] < 4 * WINDOW}
    assert complete <= found.keys()
    for place, ranks in found.items():
        expected = sorted(sums[place].items(), key=lambda one: (-one[1], json.dumps([one[0]])))[:10]
        assert ranks == expected, place
