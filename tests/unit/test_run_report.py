"""The last line of a run: the share of rejected events."""

from __future__ import annotations

import pytest
import typer

import penstock as ps
from penstock.ops.cli.run import nothing_read, report_rejections, reset_advice
from penstock.ops.worker.metrics import Metrics
from penstock.transport.messages import Bucket


class Reading(ps.Record, frozen=True):
    """A reading."""

    meter: str
    at: ps.EventTime


class Totals(ps.Stateless):
    """Copies readings."""

    reads = ps.Category("readings", Reading, key="meter", event_time="at")

    def process(self, event: Reading) -> list[Reading]:
        return [event]


def test_a_run_with_rejected_events_says_how_many_and_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    """The rest was processed, so the command succeeds."""
    report_rejections(Totals, Metrics(events_in=2_000, dead_letters=1_500))
    printed = " ".join(capsys.readouterr().err.split())

    assert "Totals rejected 1,500 of 2,000 events (75.0%)." in printed
    assert "`penstock dead-letters list totals`" in printed


def test_a_run_that_rejected_every_event_fails(capsys: pytest.CaptureFixture[str]) -> None:
    """A script must not take it for a success."""
    with pytest.raises(typer.Exit) as ended:
        report_rejections(Totals, Metrics(events_in=2, dead_letters=2))

    assert ended.value.exit_code == 1
    assert "read 2 events and rejected every one" in capsys.readouterr().err


def test_a_run_without_rejected_events_reports_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Also if it read nothing."""
    report_rejections(Totals, Metrics(events_in=2))
    report_rejections(Totals, Metrics())

    assert not capsys.readouterr().err


def test_a_run_that_reads_nothing_says_why() -> None:
    """People run the same command twice, and would look for a fault."""
    empty, read = {Bucket("readings", 0): 0}, {Bucket("readings", 0): 0, Bucket("readings", 1): 3}

    assert nothing_read(Totals, empty, "") == "Totals read nothing: readings contains no event yet."
    assert "it has already processed all events of readings" in nothing_read(Totals, read, reset_advice(Totals))
    assert "test_run_report.py:Totals --to earliest`" in nothing_read(Totals, read, reset_advice(Totals))
