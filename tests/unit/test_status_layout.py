"""`penstock status` on terminals of several widths."""

from __future__ import annotations

from io import StringIO

import pytest
from msgspec.structs import replace
from rich.console import Console
from support.statuses import NODE, NOW_MS, cluster_status, processor_status, shard_status, worker_status

from penstock.ops.status.commands.status import layout_of
from penstock.processors import Counts

WORKERS = tuple(
    worker_status(
        f"0123456789ab-numbered-{number}",
        deployment="scorer@12",
        started_ms=NOW_MS - 7_200_000,
        per_s=Counts(events_in=12_345.0, bytes_in=1.5e6, events_out=12_345.0),
        busy_share=0.1,
        blocked_share=0.7,
        memory_bytes=850_000_000,
        restarts=2,
        buckets=tuple(range(number, 32, 2)),
    )
    for number in range(2)
)
COLUMNS = [
    *["worker", "process", "runs for", "version", "buckets", "in/s", "MB/s", "out/s"],
    *["restarts", "checkpoint", "memory", "CPU", "busy", "blocked"],
]


def lines_of(width: int) -> list[str]:
    """Return the lines about workers on a terminal of some width, from the headers on."""
    console = Console(file=StringIO(), width=width, highlight=False)
    cluster = cluster_status(processor_status(shard_status(), workers=WORKERS))
    console.print(layout_of(cluster, console, buckets=False, workers=True, everything=True))
    assert isinstance(console.file, StringIO)
    lines = console.file.getvalue().splitlines()
    return lines[next(number for number, line in enumerate(lines) if line.startswith("worker ")) :]


def columns_in(header: str) -> list[str]:
    """Return the columns that a line of headers contains, in order."""
    words = f" {header} "
    return [column for column in COLUMNS if f" {column} " in words]


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_the_columns_of_workers_fit_the_terminal(width: int) -> None:
    """No header and no name is wrapped. A narrow terminal has fewer columns, and says which it lacks."""
    header, first, *rest = lines_of(width)
    shown = columns_in(header)

    assert header.split() == " ".join(shown).split()
    assert first.startswith("scorer/0123456789ab-numbered-0  ")
    assert max(map(len, (header, first, *rest))) <= width
    assert {"worker", "buckets", "in/s", "busy", "blocked", "memory", "restarts"} <= set(shown)
    omitted = [line for line in rest if line.startswith("A wider terminal")]
    assert all(column in " ".join(rest) for column in set(COLUMNS) - set(shown))
    assert bool(omitted) == (shown != COLUMNS) == (width < 160)


@pytest.mark.parametrize("width", [80, 200])
def test_processors_and_buckets_fit_the_terminal(width: int) -> None:
    """They are not wrapped, because users look for them."""
    console = Console(file=StringIO(), width=width, highlight=False)
    shards = [shard_status(number, backlog_events=12_345_678, lag_s=7_200.0, held_by="orders") for number in range(2)]
    lagging = processor_status(*shards, workers=WORKERS)
    looping = processor_status(
        *shards, workers=(worker_status(restarts=9, crash_loop_since_ms=NOW_MS),), node=replace(NODE, name="other")
    )
    console.print(layout_of(cluster_status(lagging, looping), console, buckets=True, workers=False, everything=True))
    assert isinstance(console.file, StringIO)
    lines = console.file.getvalue().splitlines()

    assert max(map(len, lines)) <= width
    assert [line.split()[:2] for line in lines if line.startswith(("scorer ", "other "))] == [
        ["scorer", "running"],
        ["other", "crash-looping"],
    ]
    assert len([line for line in lines if line.startswith(("scorer/", "other/"))]) == 4


@pytest.mark.parametrize("everything", [False, True])
def test_processors_that_users_have_ended_are_counted_and_not_shown(everything: bool) -> None:
    """Their rows and findings appear with `--all`. A processor that failed is always shown."""
    done, failed = (
        processor_status(shard_status(backlog_events=5), workers=(worker_status(end_reason=reason),), node=node)
        for reason, node in (("stopped", replace(NODE, name="once")), ("No space left.", NODE))
    )
    written = StringIO()
    console = Console(file=written, width=200)
    console.print(layout_of(cluster_status(done, failed), console, buckets=True, workers=True, everything=everything))
    text = written.getvalue()

    assert ("once" in text, "scorer" in text) == (everything, True)
    assert ("Not shown: 1 processor that was stopped" in text) is not everything
