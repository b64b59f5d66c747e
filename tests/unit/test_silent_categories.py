"""Each read up to an end fails, instead of waiting for ever, while a category sends nothing and the bus answers otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.machines import Machine, write
from support.outages import SilentBus
from support.resizes import PaidExactly, generate_events, read_part, resize
from support.shop import Numbered, Purchase

from penstock.backfill.compare import live_from_bus
from penstock.ops.categories.commands.category import tail
from penstock.ops.change.snapshots.restoring import Appended
from penstock.ops.serve.dashboard.dead_letters import newest_dead_letters
from penstock.processors.declare import plan_of
from penstock.processors.lookups import LookupUnreachable
from penstock.transport import (
    Bucket,
    BusUnreachable,
    CategorySpec,
    OffsetOutOfRange,
    OffsetRange,
    Outgoing,
    changelog_batches,
    changelog_position,
)
from penstock.transport.category_rows import CategoryRows
from penstock.transport.tables import MaintenanceStep
from penstock.transport.tables.maintenance_protocol import MaintenanceGap

[orders] = plan_of(Numbered).inputs
FIRST = Bucket("orders", 0)


READS: dict[str, Callable[[SilentBus], object]] = {
    "hybrid results": lambda bus: live_from_bus(lambda: bus, orders)(0),
    "changelog": lambda bus: changelog_position(bus, FIRST),
    "restore": lambda bus: Appended([OffsetRange(FIRST, 0, 1)], bus).apply(),
    "dead letters": lambda bus: newest_dead_letters(bus, "orders", 10),
    "table of a lookup": lambda bus: CategoryRows(orders, bus, lambda: 0.0).fetch(["a"]),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_read_of_a_silent_category_fails(read: Callable[[SilentBus], object]) -> None:
    """The error names the category."""
    bus = SilentBus(["orders"])
    bus.create(CategorySpec("orders", 1))
    bus.writer().send("orders", [Outgoing(b"a", b"1", 0)])

    with pytest.raises(
        (BusUnreachable, LookupUnreachable), match="orders/0 is not read completely: the bus has sent nothing"
    ):
        read(bus)


def test_records_of_a_silent_category_are_not_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`penstock category tail --no-follow` fails instead of showing a part of them."""
    bus = SilentBus(["orders"])
    bus.create(CategorySpec("orders", 1))
    bus.writer().send("orders", [Outgoing(b"a", b"1", 0)])
    monkeypatch.setattr("penstock.ops.categories.commands.category.connect_to", lambda *_: bus)

    with pytest.raises(BusUnreachable, match="orders/0 is not read completely"):
        tail("orders", start="0", follow=False, folder=tmp_path)


def test_a_resize_whose_category_is_silent_fails_and_can_be_repeated(machine: Machine) -> None:
    """It looks for misplaced events after it has added the buckets. No reader starts in between."""
    read_part(machine, Numbered)
    bus = SilentBus(cluster=machine.bus.cluster)

    def write_meanwhile(gap: MaintenanceGap) -> None:
        if gap.before is MaintenanceStep.CHANGE_TOPICS:
            bus.silent.add("orders")
            write(machine.bus, orders, generate_events(Purchase, 120, 140))

    with pytest.raises(BusUnreachable, match=r"orders/0 and \d other buckets are not read completely"):
        resize(replace(machine, bus=bus), Numbered, 6, write_meanwhile)
    resize(machine, Numbered, 6, accept_misplaced=True)


def test_a_state_beyond_the_end_of_its_changelog_is_refused() -> None:
    """The changelog was deleted or has lost messages, so the state cannot be compared with it."""
    bus = SilentBus()
    bus.create(CategorySpec("orders", 1))

    with pytest.raises(
        OffsetOutOfRange, match="the changelog ends at offset 0, and the state on this disk contains it up to 5"
    ):
        list(changelog_batches(bus, FIRST, 5))


def test_a_worker_reports_the_bucket_whose_changelog_is_silent(machine: Machine) -> None:
    """It waits, and continues when the changelog is back."""
    read_part(machine, PaidExactly)
    machine.lose(PaidExactly)
    changelog = f"{PaidExactly.name}.changelog"
    bus = SilentBus([changelog], cluster=machine.bus.cluster)
    with replace(machine, bus=bus).working(PaidExactly) as worker:
        waits = []
        for _ in range(10):
            worker.run_once()
            waits.append(worker.wait)
            machine.clock.advance(2.0)
        bus.silent.clear()
        while not worker.is_settled:
            worker.run_once()
            machine.clock.advance(2.0)
        assert {wait.name for wait in waits if wait} == {"Kafka to open bucket 0"}
        assert worker.wait is None
