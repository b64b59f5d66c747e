"""The last line of a run: the share of rejected events, and why nothing was read or written."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import pytest
import typer
from support.machines import write

import penstock as ps
from penstock.ops.kernel import Driver, Worker
from penstock.ops.kernel.loop import WorkerConfig
from penstock.ops.kernel.process.command import nothing_read, nothing_written, report_rejections, reset_advice
from penstock.ops.kernel.telemetry.metrics import Metrics
from penstock.ops.kernel.testing import InlineExecutor
from penstock.state import MemoryStateFolder
from penstock.transport import Bucket


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
    assert "`penstock dead-letters show totals`" in printed


def test_a_run_that_rejected_every_event_fails(capsys: pytest.CaptureFixture[str]) -> None:
    """A script must not take it for a success."""
    with pytest.raises(typer.Exit) as ended:
        report_rejections(Totals, Metrics(events_in=2, dead_letters=2))

    assert ended.value.exit_code == 1
    assert "read 2 events and rejected every one" in capsys.readouterr().err


def test_a_run_without_rejected_events_reports_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """It may have read nothing at all."""
    report_rejections(Totals, Metrics(events_in=2))
    report_rejections(Totals, Metrics())

    assert not capsys.readouterr().err


def test_a_run_that_reads_nothing_says_why() -> None:
    """People run the same command twice, and would look for a fault."""
    empty, read = {Bucket("readings", 0): 0}, {Bucket("readings", 0): 0, Bucket("readings", 1): 3}

    assert nothing_read(Totals, empty, "") == "Totals read nothing: readings contains no event yet."
    assert "it has already processed all events of readings" in nothing_read(Totals, read, reset_advice(Totals))
    assert "test_run_report.py:Totals --to earliest`" in nothing_read(Totals, read, reset_advice(Totals))


class Minutes(ps.Aggregator):
    """Counts the readings of each minute, once."""

    reads = ps.Category("readings", Reading, key="meter", event_time="at", buckets=1)
    writes = ps.Category("minutes", Reading, key="meter", event_time="at")
    monoid = ps.monoids.Count()
    window = ps.windows.Tumbling(timedelta(minutes=1))
    emit = ps.AtWatermark()

    def result(self, key: str, window: ps.windows.Window, value: int) -> Reading:
        return Reading(key, window.start)


class Pairs(ps.Join):
    """Joins readings with readings."""

    left, right, writes = Minutes.reads, Minutes.writes, ()

    def join(self, left: Reading, right: Reading, context: ps.Context) -> Iterable[Reading]:
        return ()


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        (
            [1, 2, 3],
            "Bucket 0 has no watermark yet: readings/0, which has had 3 of the 8 events after which its watermark begins.",
        ),
        ([*range(60_000, 60_009)], "Bucket 0 has the watermark 1970-01-01 00:01:00"),
        ([*range(60_000, 60_008), 10**7], None),
        ([], None),
    ],
)
def test_a_run_that_writes_nothing_says_what_the_watermark_waits_for(times: list[int], reason: str | None) -> None:
    """A newcomer asks this first. A run without events has another reason, and a run with results reports nothing."""
    driver = Driver(Minutes)
    worker = Worker(
        Minutes(),
        WorkerConfig(driver.bus, MemoryStateFolder(), "one"),
        InlineExecutor(),
        InlineExecutor(),
        clock=driver.clock,
    )
    write(driver.bus, Minutes.reads, [Reading("a", at) for at in times])
    worker.run(lambda running: running.has_reached({Bucket("readings", 0): len(times)}))
    printed = None if worker.metrics.events_out else nothing_written(Minutes, worker.waits)

    assert (printed is None) == (reason is None)
    assert (reason or "") in (printed or "")
    assert nothing_written(Pairs, worker.waits) is None
    assert nothing_written(Totals, worker.waits) is None
