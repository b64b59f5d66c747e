"""An app that rejects clicks until it is corrected, and its dead letters, read with the command line."""

from __future__ import annotations

import json
from pathlib import Path

from . import plain
from .cli import Cli

APP = """
import penstock as ps

class Click(ps.Record, frozen=True):
    user: str
    at: ps.EventTime
    n: int

class Total(ps.Record, frozen=True):
    user: str
    at: ps.EventTime
    n: int

clicks = ps.Category("{prefix}.clicks", Click, key="user", event_time="at", buckets=2)
totals = ps.Category("{prefix}.totals", Total, key="user", event_time="at", buckets=2)

class Totals(ps.Stateful):
    name = "{prefix}.sums"
    reads, writes, state = clicks, totals, int
    state_semantics = output_semantics = ps.Semantics.EXACTLY_ONCE
    on_error = ps.ErrorPolicy.DEAD_LETTER

    def process(self, event, state, context):
        if event.n < 0:
            raise ValueError(f"{event.user}: \\x1b[31mbelow zero")
        return (state or 0) + event.n, [Total(event.user, event.at, (state or 0) + event.n)]
"""


def totals(cli: Cli, prefix: str) -> dict[str, list[int]]:
    """Return the totals of each user, in order."""
    found: dict[str, list[int]] = {}
    plain.read(cli.environment["PENSTOCK_KAFKA"], f"{prefix}.totals")  # waits for the markers of the last transaction
    for line in cli.ok("category", "tail", f"{prefix}.totals", "--from", "0", "--no-follow", "--json").splitlines():
        total = json.loads(line)["value"]
        found.setdefault(total["user"], []).append(total["n"])
    return found


def counts(cli: Cli, processor: str) -> tuple[int, int, int]:
    """Return the numbers of pending, retried and dropped letters."""
    groups = json.loads(cli.ok("dead-letters", "show", processor, "--json"))
    return (
        sum(group["pending"] for group in groups),
        sum(group["retried"] for group in groups),
        sum(group["dropped"] for group in groups),
    )


def rejected_clicks(cli: Cli, app: Path, prefix: str) -> None:
    """Process five clicks, of which three become dead letters."""
    app.write_text(APP.replace("{prefix}", prefix))
    clicks = [("ann", 1), ("bob", -2), ("ann", -3), ("eve", -5), ("bob", 4)]
    lines = "\n".join(json.dumps({"user": user, "at": at, "n": n}) for at, (user, n) in enumerate(clicks))
    cli.ok("category", "create", str(app))
    cli.ok("category", "send", f"{prefix}.clicks", "--app", str(app), stdin=lines)
    cli.ok("run", str(app), "--until-end")
    # Commands about dead letters read them up to the first transaction without markers.
    plain.read(cli.environment["PENSTOCK_KAFKA"], f"{prefix}.sums.dead_letters")


def correct(app: Path) -> None:
    """Correct the app."""
    app.write_text(app.read_text().replace("if event.n < 0:", "if False:"))
