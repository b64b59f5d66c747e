"""The detection of abandoned transactions, and the workers whose transactions are aborted."""

from __future__ import annotations

from contextlib import closing

import msgspec
import pytest
from support.outages import FailingBus
from support.statuses import NODE, report
from support.subjects import EXACT, Subject

from penstock.ops.kernel import REPORTS, SILENT_AFTER_S
from penstock.ops.kernel.checkpoint.transaction_sweeper import MARGIN_S, StalledOffsets, TransactionSweeper
from penstock.ops.kernel.telemetry.reports import report_message
from penstock.ops.shell import SteeredClock
from penstock.processors.declare import plan_of
from penstock.transport import Bucket, BusUnreachable, CategorySpec, Outgoing, Position, create_missing_categories

OUT = Bucket("out", 0)
LIMIT_S = 11.0


def test_only_an_unchanged_offset_before_the_end_counts_as_stalled() -> None:
    """An offset that advances, or that has reached the end, starts a new measurement."""
    stalled = StalledOffsets()
    seen = [
        stalled.longest_s({OUT: stable}, {OUT: end}, now_s)
        for stable, end, now_s in [
            (5, 9, 0.0),
            (5, 12, 40.0),
            (7, 12, 50.0),
            (7, 12, 60.0),
            (12, 12, 70.0),
            (12, 13, 80.0),
        ]
    ]

    assert seen == [0.0, 40.0, 0.0, 10.0, 0.0, 0.0]


class Blocked:
    """A bus with an open transaction on an output, and workers whose last reports are some seconds old."""

    def __init__(self, report_ages_s: dict[str, float]) -> None:
        self.clock = SteeredClock(1_700_000_000_000)
        self.bus = FailingBus(self.clock.now_ms)
        self.bus.create(CategorySpec("out", 1))
        create_missing_categories(self.bus, REPORTS)
        self.kind = kind = Subject("stateful", EXACT, EXACT).make("p")
        self._node = msgspec.structs.replace(NODE, name=kind.name)
        for worker, ago_s in report_ages_s.items():
            self.report(worker, ago_s)
        self.open = self.bus.transactional_writer("left", None, 1e6, ["out"])
        self.open.send("out", [Outgoing(b"k", b"v")])
        self.open.flush()
        self.aborted: list[str] = []
        self.is_settled = True
        self.sweeper = TransactionSweeper(
            kind,
            self.bus,
            "own",
            ["out"],
            limit_s=LIMIT_S,
            is_settled=lambda: self.is_settled,
            abort_open_transaction=self.aborted.append,
            clock=self.clock,
        )

    def report(self, worker: str, ago_s: float = 0.0) -> None:
        """Send a report of a worker that is some seconds old."""
        self.clock.advance(-ago_s)
        with closing(self.bus.writer()) as writer:
            writer.send(REPORTS.name, [report_message(report(0, node=self._node, worker=worker))])
        self.clock.advance(ago_s)


def test_open_transactions_of_silent_workers_are_aborted_after_the_limit() -> None:
    """The sweeping worker and workers with a recent report are not affected; each stall leads to one abort."""
    silent = SILENT_AFTER_S + LIMIT_S + MARGIN_S
    blocked = Blocked({"own": silent, "dead": silent, "alive": -LIMIT_S - MARGIN_S})
    blocked.sweeper.sweep()
    early = list(blocked.aborted)
    blocked.clock.advance(LIMIT_S + MARGIN_S)
    blocked.sweeper.sweep()
    blocked.sweeper.sweep()

    assert (early, blocked.aborted) == ([], ["dead"])


def test_an_outage_is_no_silence_of_workers() -> None:
    """A live worker would be fenced and start again. After the outage, each has time to report."""
    blocked = Blocked({"dead": 0.0, "alive": 0.0})
    blocked.sweeper.sweep()
    blocked.bus.error = BusUnreachable("It is away.")
    for _ in range(5):
        blocked.clock.advance(LIMIT_S + MARGIN_S)
        with pytest.raises(BusUnreachable):
            blocked.sweeper.sweep()
    blocked.bus.error = None
    blocked.sweeper.sweep()
    at_once = list(blocked.aborted)
    blocked.report("alive")
    blocked.clock.advance(SILENT_AFTER_S)
    blocked.report("alive")
    blocked.clock.advance(1.0)
    blocked.sweeper.sweep()

    assert (at_once, blocked.aborted) == ([], ["dead"])


def test_a_late_answer_ends_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are repeated for a while without an error."""
    blocked = Blocked({"alive": 0.0})
    blocked.sweeper.sweep()
    answer = blocked.bus.ends

    def answer_late(name: str) -> dict[int, int]:
        blocked.clock.advance(LIMIT_S + MARGIN_S + SILENT_AFTER_S)
        return answer(name)

    monkeypatch.setattr(blocked.bus, "ends", answer_late)
    blocked.sweeper.sweep()

    assert blocked.aborted == []


def test_no_transaction_is_aborted_while_transactions_commit() -> None:
    """The age of the last report does not matter."""
    blocked = Blocked({"dead": 1e5})
    for _ in range(5):
        blocked.open.commit([])
        blocked.open.send("out", [Outgoing(b"k", b"v")])
        blocked.open.flush()
        blocked.clock.advance(LIMIT_S + MARGIN_S)
        blocked.sweeper.sweep()

    assert blocked.aborted == []


@pytest.mark.parametrize(("is_settled", "aborted"), [(False, ["dead"]), (True, [])])
def test_positions_that_stay_undecided_are_aborted_if_the_worker_waits_for_them(
    is_settled: bool, aborted: list[str]
) -> None:
    """A transaction without outputs blocks no reader of them, but the next owner of its buckets."""
    blocked = Blocked({"dead": 1e5, "alive": 0.0})
    blocked.open.commit([])
    for category in plan_of(blocked.kind).inputs:
        blocked.bus.create(CategorySpec(category.name, 2))
        position = Position(Bucket(category.name, 0), 1)
        blocked.bus.cluster.group(blocked.kind.name).add_undecided("p.dead", [position])
    blocked.is_settled = is_settled
    blocked.sweeper.sweep()

    assert blocked.aborted == aborted
