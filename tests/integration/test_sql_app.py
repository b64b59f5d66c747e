"""An app in SQL on a real broker, with the commands of any app."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
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
"""


@pytest.fixture
def sql(cli: Cli, prefix: str) -> Path:
    """Return an app whose processors have names of their own on the shared broker."""
    file = cli.folder / "meters.sql"
    names = {"large": f"{prefix}_large", "per_litres": f"{prefix}_per_litres"}
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
    latest = {(each["litres"], each["window_start"]): each["readings"] for each in written("per_litres")}
    printed = cli.ok("replay", f"meters.sql:{prefix}_large", "--from", "1h ago", "--json")
    *replayed, summary = [json.loads(line) for line in printed.splitlines()]

    assert sorted(written("large"), key=repr) == sorted(large, key=repr)
    assert latest == Counter((each["litres"], each["at"] - each["at"] % DAY) for each in sent)
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
