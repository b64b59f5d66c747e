"""The detection of abandoned transactions, and the workers whose transactions are aborted."""

from __future__ import annotations

from contextlib import closing

import msgspec
from support.statuses import NODE, report
from support.subjects import EXACT, Subject

from penstock.ops.clock import SteeredClock
from penstock.ops.monitoring.outages import SILENT_AFTER_S
from penstock.ops.monitoring.reports import REPORTS, report_message
from penstock.ops.worker.transaction_sweeper import MARGIN_S, StalledOffsets, TransactionSweeper
from penstock.transport.category_spec import CategorySpec
from penstock.transport.internal_topics import create_missing_categories
from penstock.transport.memory import MemoryBus
from penstock.transport.messages import Bucket, Outgoing

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
        self.bus = MemoryBus(self.clock.now_ms)
        self.bus.create(CategorySpec("out", 1))
        create_missing_categories(self.bus, REPORTS)
        kind = Subject("stateful", EXACT, EXACT).make("p")
        node = msgspec.structs.replace(NODE, name=kind.name)
        with closing(self.bus.writer()) as writer:
            for worker, ago_s in report_ages_s.items():
                at_ms = self.clock.now_ms() - int(ago_s * 1000)
                writer.send(REPORTS.name, [report_message(report(at_ms, node=node, worker=worker))])
        self.open = self.bus.transactional_writer("left", None, 1e6, ["out"])
        self.open.send("out", [Outgoing(b"k", b"v")])
        self.open.flush()
        self.aborted: list[str] = []
        self.sweeper = TransactionSweeper(
            kind,
            self.bus,
            "own",
            ["out"],
            limit_s=LIMIT_S,
            abort_open_transaction=self.aborted.append,
            clock=self.clock,
        )


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
