"""Default watermarks: an input that a processor of the app writes has the watermark of that processor, and other inputs an estimate."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import pytest

import penstock as ps
from penstock.ops.kernel import Crash, Driver
from penstock.ops.kernel.shards.preflight import warn_about_estimates
from penstock.processors.apps import App, AppName
from penstock.processors.apps.clones import cloned
from penstock.processors.declare import plan_of

MINUTE = 60_000
ESTIMATE, UPSTREAM = ps.watermarks.Confidence(), ps.watermarks.UpstreamWatermark()


class Order(ps.Record, frozen=True):
    """An order."""

    key: str
    at: ps.EventTime


class Checked(Order, frozen=True):
    """A checked order."""


class Shipped(Order, frozen=True):
    """A shipped order."""


class Minute(ps.Record, frozen=True):
    """The orders of a minute."""

    key: str
    at: ps.EventTime
    orders: int


orders = ps.Category("orders", Order, key="key", event_time="at", buckets=2)
checked = ps.Category("checked", Checked, key="key", event_time="at", buckets=2)
late = ps.Category("late", Checked, key="key", event_time="at", buckets=2)
shipped = ps.Category("shipped", Shipped, key="key", event_time="at", buckets=2)
minutes = ps.Category("minutes", Minute, key="key", event_time="at", buckets=2)


class Check(ps.Stateless):
    """Checks orders."""

    reads, writes = orders, checked

    def process(self, event: Order) -> Iterable[Checked]:
        yield Checked(event.key, event.at)


class Total(ps.Aggregator):
    """Counts the checked orders of each minute, once."""

    reads, writes = checked, minutes
    monoid = ps.monoids.Count()
    window = ps.windows.Tumbling(timedelta(minutes=1))
    emit, late = ps.AtWatermark(), ps.OnLate.DROP

    def result(self, key: str, window: ps.windows.Window, value: int) -> Minute:
        return Minute(key, window.start, value)


class Late(ps.Stateful):
    """Writes late orders elsewhere."""

    reads, writes, late, state, ordered = checked, (), late, int, True

    def process(self, event: Checked, state: int | None, context: ps.Context) -> tuple[int, Iterable[ps.Record]]:
        return 0, ()


class OfLate(ps.Stateless):
    """Reads late orders."""

    reads, writes = late, ()

    def process(self, event: Checked) -> Iterable[ps.Record]:
        return ()


class Ship(ps.Join):
    """Joins checked orders with those of another program."""

    left, right, writes = checked, shipped, ()

    def join(self, left: Checked, right: Shipped, context: ps.Context) -> Iterable[ps.Record]:
        return ()


class Estimated(Total):
    """Declares the estimate."""

    watermark = ps.watermarks.Confidence()


class ByInput(Ship):
    """Declares one input."""

    watermark = {shipped: ps.watermarks.BoundedOutOfOrderness()}  # noqa: RUF012 - as users write it


def watermarks_in(*app: type[ps.Processor]) -> dict[str, dict[str, ps.watermarks.Watermark]]:
    """Return the watermarks of the processors of an app."""
    return {each.__name__: dict(plan_of(each).input_watermarks) for each in App.of("shop", app).processors}


def test_inputs_that_the_app_writes_have_upstream_watermarks() -> None:
    """Other inputs have an estimate, even of the same processor. A declaration wins, also for one input."""
    found = watermarks_in(Check, Total, Ship, Estimated, ByInput, Late, OfLate)

    assert found["Check"] == {"orders": ESTIMATE}
    assert found["Total"] == {"checked": UPSTREAM}
    assert found["Ship"] == {"checked": UPSTREAM, "shipped": ESTIMATE}
    assert found["Estimated"] == {"checked": ESTIMATE}
    assert found["ByInput"] == {"checked": UPSTREAM, "shipped": ps.watermarks.BoundedOutOfOrderness()}


def test_late_events_have_an_estimate() -> None:
    """They are behind the watermark of the processor that writes them, so that each would be late."""
    assert watermarks_in(Check, Late, OfLate)["OfLate"] == {"late": ESTIMATE}


def test_a_processor_alone_has_an_estimate() -> None:
    """In a driver without the processor that writes its input, nothing publishes a watermark."""
    watermarks_in(Check, Total)

    assert watermarks_in(Total) == {"Total": {"checked": ESTIMATE}}


def test_a_clone_has_the_watermarks_of_its_own_processors() -> None:
    """Its categories have other names."""
    found = {each.__name__: dict(plan_of(each).input_watermarks) for each in cloned([Check, Total], "staging")}

    assert found == {"Check": {"orders": ESTIMATE}, "Total": {"staging.checked": UPSTREAM}}


def test_one_processor_of_a_file_has_the_same_watermark_as_in_its_app(tmp_path: Path) -> None:
    """`penstock run app.py:Total` starts it alone, but knows its app, and keeps its state in the same way."""
    path = tmp_path / "shop_of_minutes.py"
    source = Path(__file__).read_text()
    path.write_text(
        source[source.index("class Order") : source.index("class Late")].join(
            ["from collections.abc import Iterable\nfrom datetime import timedelta\nimport penstock as ps\n\n\n", ""]
        )
    )
    [total] = AppName.parse(f"{path}:Total").load().processors

    assert dict(plan_of(total).input_watermarks) == {"checked": UPSTREAM}
    assert not plan_of(total).is_repeatable


@pytest.mark.parametrize("crash", [False, True])
def test_windows_behind_another_processor_drop_nothing_of_a_first_catch_up(*, crash: bool) -> None:
    """The outputs of past events come bucket by bucket, in another order than usual. All are counted."""
    driver = Driver([Check, Total])
    keys, past = "abcdefgh", 600
    for number, key in enumerate(keys):
        driver._write(orders, [Order(key, (at * len(keys) + number) * 1_000) for at in range(past)])
    driver.send(orders, [Crash()] if crash else [])
    driver.send(orders, [Order(key, at * 600_000) for at in range(30, 34) for key in keys])
    driver.advance(70)

    counted = {(row.key, row.at): row.orders for row in driver.read(minutes)}
    expected: dict[tuple[str, int], int] = {}
    for number, key in enumerate(keys):
        for at in range(past):
            minute = (at * len(keys) + number) * 1_000 // MINUTE * MINUTE
            expected[key, minute] = expected.get((key, minute), 0) + 1
    assert {window: counted.get(window) for window in expected} == expected
    assert driver.metrics(Total).dropped == 0


def test_a_worker_warns_about_an_input_of_another_app(caplog: pytest.LogCaptureFixture) -> None:
    """If a processor of another app publishes watermarks of an input with an estimate by default, the log has the line to write."""
    driver = Driver([Check])
    driver.send(orders, [Order("a", 1)])
    watermarks_in(Total)
    watermarks_in(Estimated)
    with caplog.at_level(logging.WARNING, "penstock.worker"):
        warn_about_estimates(Total, driver.bus)
        warn_about_estimates(Estimated, driver.bus)

    [warning] = caplog.messages
    assert warning.startswith(
        "Total estimates the watermark of checked from its events, but the processor check of another app writes it."
    )
    assert "`watermark = {checked: penstock.watermarks.UpstreamWatermark()}`" in warning


class Seen(ps.Stateful):
    """Counts the checked orders of a key, whatever their times."""

    reads, writes, state = checked, (), int

    def process(self, event: Checked, state: int | None, context: ps.Context) -> tuple[int, Iterable[ps.Record]]:
        return (state or 0) + 1, ()


class DeclaredSeen(Seen):
    """Declares that it goes by the watermark."""

    watermark = ps.watermarks.UpstreamWatermark()


def test_a_state_that_does_not_wait_for_event_time_can_be_computed_from_the_archive() -> None:
    """The default watermark only passes through it. The archive does not record when upstream watermarks arrived."""
    watermarks_in(Check, Total, Seen, DeclaredSeen, Estimated)

    assert [plan_of(each).waits_for_upstream for each in (Check, Total, Seen, DeclaredSeen, Estimated)] == [
        False,
        True,
        False,
        True,
        False,
    ]
