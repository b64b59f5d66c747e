"""`penstock dead-letters` on a real broker."""

from __future__ import annotations

import json
from pathlib import Path

from support.cli import Cli
from support.rejected_clicks import correct, counts, rejected_clicks, totals


def test_letters_are_shown_dropped_exported_and_retried_once(cli: Cli, app: Path, prefix: str) -> None:
    """After the correction, each retried message is in the state and in the outputs once. The status counts the pending ones."""

    def reported() -> int | None:
        processors = json.loads(cli.ok("status", str(app), "--json"))["processors"]
        pending: int | None = next(each["dead_letters"] for each in processors if each["processor"] == sums)
        return pending

    rejected_clicks(cli, app, prefix)
    sums, letters = f"{prefix}.sums", cli.folder / "letters.jsonl"

    pending = [reported()]
    shown = cli.ok("dead-letters", "show", sums, "--last", "3")
    cli.ok("dead-letters", "drop", sums, "--reason", "eve", "--because", "a test user", "--yes")
    pending.append(reported())
    cli.ok("dead-letters", "export", sums, "--to", str(letters))
    correct(app)
    declined = cli("dead-letters", "retry", str(app), "--all", stdin="n\n")
    cli.ok("dead-letters", "retry", str(app), "--all", "--yes")
    cli.ok("dead-letters", "retry", str(app), "--all", "--yes")
    cli.ok("run", str(app), "--until-end")

    assert ("\x1b" in shown, "\\x1b[31mbelow zero" in shown, "in process" in shown) == (False, True, True)
    assert len(letters.read_text().splitlines()) == 2
    assert declined.returncode == 1
    assert [*pending, reported()] == [3, 2, 0]
    assert counts(cli, sums) == (0, 2, 1)
    assert totals(cli, prefix) == {"ann": [1, -2], "bob": [4, 2]}
