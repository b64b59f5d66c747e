"""Routes of outputs: by the record's type, or to a named category."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

import penstock as ps
from penstock.backfill.steps import OutputRows
from penstock.processors.declare import Routes
from penstock.testing import Driver


class Click(ps.Record, frozen=True):
    """A click."""

    user: str
    at: ps.EventTime
    page: str = ""


class Count(ps.Record, frozen=True):
    """A number of clicks."""

    user: str
    at: ps.EventTime
    count: int


clicks, shop, blog = (
    ps.Category(name, Click, key="user", event_time="at", buckets=2) for name in ("clicks", "shop", "blog")
)
counts = ps.Category("counts", Count, key="user", event_time="at", buckets=2)
foreign = ps.Category("foreign", Click, key="user", event_time="at")


class Sort(ps.Stateless):
    """Writes each click to the category of its page."""

    reads, writes = clicks, (shop, blog, counts)

    def process(self, event: Click) -> Iterable[ps.Record]:
        yield ps.To(shop if event.page == "shop" else blog, event)
        yield Count(event.user, event.at, 1)


class SortStateful(ps.Stateful):
    """Writes the first click of a user to one category, and later clicks to another."""

    reads, writes, state = clicks, (shop, blog), bool

    def process(self, event: Click, state: bool | None, context: ps.Context) -> tuple[bool, list[ps.Record]]:
        return True, [ps.To(blog if state else shop, event)]


CLICKS = [Click("ann", 1, "shop"), Click("bob", 2, "blog"), Click("ann", 3, "blog"), Click("bob", 4, "shop")]


def test_named_and_typed_outputs_reach_their_categories() -> None:
    """They keep the order of their events."""
    driver = Driver(Sort)
    driver.send(clicks, CLICKS)

    assert sorted(click.at for click in driver.read(shop)) == [1, 4]
    assert sorted(click.at for click in driver.read(blog)) == [2, 3]
    assert len(driver.read(counts)) == 4


def test_outputs_of_a_stateful_processor_are_routed() -> None:
    """The state of the key decides."""
    driver = Driver(SortStateful)
    driver.send(clicks, CLICKS)

    assert sorted(click.at for click in driver.read(shop)) == [1, 2]
    assert sorted(click.at for click in driver.read(blog)) == [3, 4]


def test_a_batch_routes_the_same_outputs() -> None:
    """Each row has the columns of its category."""
    outputs = [output for click in CLICKS for output in Sort().process(click)]

    rows = [row for batch in OutputRows(Sort).batches(outputs) for row in batch.to_pylist()]

    assert len(rows) == 8
    by_slot = [{name: value for name, value in row.items() if isinstance(value, dict)} for row in rows]
    assert [sum(name in filled for filled in by_slot) for name in sorted({n for f in by_slot for n in f})] == [2, 2, 4]


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (CLICKS[0], "shop, blog have this type. Return penstock.To"),
        (ps.To(foreign, CLICKS[0]), "returned a Click for foreign, but writes only"),
        (ps.To(shop, Count("ann", 1, 1)), "returned a Count for shop, but writes only"),
        (ps.To("shop", Count("ann", 1, 1)), "returned a Count for shop"),
        (
            5,
            "returned an int, but writes only .* Return a list of records: a dict, a tuple or a str counts as a list of its parts",
        ),
    ],
)
def test_an_output_without_a_category_is_refused(output: Any, words: str) -> None:
    """The error lists the categories."""
    with pytest.raises(TypeError, match=words):
        Routes(Sort).split([output])
