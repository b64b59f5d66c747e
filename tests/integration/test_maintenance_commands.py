"""`penstock reset`, `category resize` and `state migrate` on a real broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.cli import Cli
from support.meters import readings
from support.plain import values
from typer.testing import CliRunner

from penstock.ops.shell.command_line.main import app as commands
from penstock.processors import PenstockError


def totals(kafka: str, prefix: str) -> list[tuple[str, int, int]]:
    """Return the meters' totals in order of event time."""
    return sorted((one["at"], one["meter"], one["litres"]) for one in values(kafka, f"{prefix}.totals"))


def expected(counted: range, written: range) -> list[tuple[str, int, int]]:
    """Return the expected totals of the readings."""
    sums: dict[str, int] = {}
    found = []
    for line in readings(counted.stop).splitlines()[counted.start :]:
        one = json.loads(line)
        sums[one["meter"]] = sums.get(one["meter"], 0) + one["litres"]
        found.append((one["at"], one["meter"], sums[one["meter"]]))
    return found[written.start : written.stop]


def test_a_reset_and_a_resize_keep_state_and_outputs_exact(cli: Cli, app: Path, prefix: str, kafka: str) -> None:
    """Both print a plan first and refuse while a worker runs; afterwards each key keeps its state, with outputs exactly once."""
    app.write_text(app.read_text().replace("reads, writes, state = large, totals, int", EXACTLY))
    target, large = f"{app}:Totals", f"{prefix}.large"
    cli.ok("category", "create", str(app))
    cli.ok("category", "send", large, "--app", str(app), stdin=readings(60))
    cli.ok("run", target, "--until-end", "--backup", "place")
    reset = ["reset", target, "--to", "earliest", "--backup", "place"]
    shown = json.loads(cli.ok(*reset, "--dry-run", "--json"))
    misnamed = cli("reset", target, "--to", "beginning")
    declined = cli(*reset, stdin="n\n")
    done = cli(*reset, "--yes")
    cli.ok("run", target, "--until-end", "--backup", "place")

    assert (shown["repeated"] >= 60, shown["outputs"], shown["done"]) == (True, [f"{prefix}.totals"], False)
    assert "`earliest` and `latest` are the ends of the inputs." in " ".join(misnamed.stderr.replace("│", "").split())
    assert declined.returncode == 1
    assert done.returncode == 0, done.stderr
    assert f"with all outputs to {prefix}.totals" in done.stderr
    assert totals(kafka, prefix) == sorted(expected(range(60), range(60)) * 2)

    cli.ok("run", f"{app}:Hours", "--until-end")
    resize = ["category", "resize", large, "8", "--app", str(app), "--backup", "place"]
    refused = cli("category", "resize", large, "2", "--app", str(app))
    resized = cli(*resize)
    stale = cli("run", target, "--until-end")
    app.write_text(app.read_text().replace(OLD_LARGE, NEW_LARGE))
    cli.ok("category", "send", large, "--app", str(app), stdin="".join(readings(100).splitlines(keepends=True)[60:]))
    cli.ok("run", target, "--until-end", "--backup", "place")

    assert "Repartition" in refused.stderr
    assert resized.returncode == 0, resized.stderr
    assert "Declare buckets=8" in resized.stderr
    assert "has 8 buckets on the bus" in stale.stderr
    assert totals(kafka, prefix) == sorted(expected(range(60), range(60)) * 2 + expected(range(100), range(60, 100)))


EXACTLY = "reads, writes, state = large, totals, int\n    output_semantics = ps.Semantics.EXACTLY_ONCE"
OLD_LARGE = 'key="meter", event_time="at", buckets=4, codec="avro"'
NEW_LARGE = 'key="meter", event_time="at", buckets=8, codec="avro"'


UPGRADE = """
def upgraded(key, state):
    return {"litres": state, "readings": 0}

def broken(key, state):
    return {"litres": state}
"""
MORE = """
class Sum(ps.Record, frozen=True):
    litres: int
    readings: int

class Totals(ps.Stateful):
    name = "{prefix}.totals"
    reads, writes, state = large, totals, Sum
    output_semantics = ps.Semantics.EXACTLY_ONCE
    def process(self, event, state, context):
        state = Sum((state.litres if state else 0) + event.litres, (state.readings if state else 0) + 1)
        return state, [Total(context.key, context.event_time, state.litres)]
"""


def test_a_migration_of_changed_state_keeps_outputs_exact(
    kafka: str, cli: Cli, app: Path, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs dry first and needs a confirmation; each key continues, with outputs exactly once. A second run changes nothing."""
    app.write_text(app.read_text().replace("reads, writes, state = large, totals, int", EXACTLY))
    later = app.with_name("later.py")
    later.write_text(app.read_text().partition("class Totals")[0] + MORE.replace("{prefix}", prefix))
    app.with_name("upgrade.py").write_text(UPGRADE)
    cli.ok("category", "create", str(app))
    cli.ok("category", "send", f"{prefix}.large", "--app", str(app), stdin=readings(60))
    cli.ok("run", f"{app}:Totals", "--until-end", "--backup", "place")
    command = ["state", "migrate", f"{later}:Totals", "--by", "upgrade.py:upgraded", "--backup", "place"]
    monkeypatch.chdir(cli.folder)
    monkeypatch.setenv("PENSTOCK_KAFKA", kafka)
    tried = CliRunner().invoke(commands, [*command, "--dry-run"])
    broken = CliRunner().invoke(commands, [*command[:4], "upgrade.py:broken", "--yes"])
    declined = CliRunner().invoke(commands, command, input="n\n")
    done = json.loads(cli.ok(*command, "--yes", "--json"))
    again = CliRunner().invoke(commands, [*command, "--yes"])
    cli.ok("category", "send", f"{prefix}.large", "--app", str(app), stdin="".join(readings(100).splitlines(True)[60:]))
    old = cli("run", f"{app}:Totals", "--until-end", "--backup", "place")
    cli.ok("run", f"{later}:Totals", "--until-end", "--backup", "place")

    assert "The function fits 7 keys. Nothing was changed." in tried.stderr
    assert "missing required field `readings`" in str(broken.exception)
    assert declined.exit_code == 1
    assert (done["done"], done["keys"], done["dropped"]) == (True, 7, 0)
    assert (again.exit_code, "Nothing was changed" in again.stderr) == (0, True)
    assert "belongs to another shard or type" in old.stderr
    assert "penstock state migrate" in old.stderr
    assert totals(kafka, prefix) == expected(range(100), range(100))


def test_invalid_requests_are_refused_in_one_paragraph(kafka: str, cli: Cli, app: Path, prefix: str) -> None:
    """The error comes before any change."""
    large = f"{prefix}.large"
    cli.ok("category", "create", str(app))
    cli.ok("category", "send", large, "--app", str(app), stdin=readings(1))
    upgrade = app.with_name("upgrade.py")
    upgrade.write_text(UPGRADE)
    for arguments, message in (
        (["reset", str(app), "--to", "latest"], "has several processors"),
        (["reset", f"{app}:Totals", "--to", "yesterday-ish"], "neither an offset"),
        (["reset", f"{app}:Totals", "--to", "9=1"], "has no bucket 9"),
        (["reset", f"{app}:Large", "--to", "latest", "--state", "empty"], "has no state"),
        (["state", "migrate", str(app), "--by", "a.py:f"], "has several processors"),
        (["state", "migrate", f"{app}:Totals", "--by", "f"], "name a function as FILE:FUNCTION"),
        (["state", "migrate", f"{app}:Hours", "--by", f"{upgrade}:upgraded"], "keeps partials of Sum"),
        (["category", "resize", "nothing", "8", "--app", str(app)], "There is no category nothing"),
        (["category", "resize", large, "8"], "or confirm that no reader has state (`--stateless`)"),
        (["category", "resize", large, "8", "--app", str(app), "--stateless"], "Use one of them"),
    ):
        failed = CliRunner().invoke(commands, arguments, env={"PENSTOCK_KAFKA": kafka, "COLUMNS": "200"})
        printed = f"{failed.output} {failed.exception}"

        assert failed.exit_code in {1, 2}, arguments
        assert isinstance(failed.exception, (PenstockError, SystemExit)), arguments
        assert message in " ".join(printed.replace("│", " ").split())
