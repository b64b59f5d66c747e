"""Arguments of the test driver: a wrong one is refused with the line to write, and nothing happens."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import penstock as ps
from penstock.processors import DeclarationError
from penstock.testing import Driver


class Item(ps.Record, frozen=True):
    """An input and an output."""

    user: str
    at: ps.EventTime


items = ps.Category("items", Item, key="user", event_time="at", buckets=1)
copies = ps.Category("copies", Item, key="user", event_time="at", buckets=1)


class Copies(ps.Stateless):
    """Copies each event."""

    reads, writes = items, copies

    def process(self, event: Item) -> list[Item]:
        return [event]


ITEM = Item("ann", 5)


@pytest.mark.parametrize(
    ("call", "advice"),
    [
        (lambda driver: driver.send(items, ITEM), r"`send` got an Item for items in place of a list.*send\(items, \["),
        (lambda driver: driver.send(items, {"user": "ann"}), r"got a dict for items in place of a list"),
        (lambda driver: driver.send(items, b"{}"), r"got a bytes for items in place of a list"),
        (lambda driver: driver.send(items, None), r"got a NoneType for items in place of a list"),
        (lambda driver: driver.send(items, [ITEM, {"user": "ann"}]), r"got a dict for items, .*Send Item records"),
        (lambda driver: driver.send(items, [("ann", 5)]), r"got a tuple for items, .*Send Item records"),
        (lambda driver: driver.send(items, [Item]), r"got a StructMeta for items, .*Send Item records"),
        (lambda driver: driver.send("items", [ITEM]), r"'items', which is no category.*driver.send\(my_category, \["),
        (lambda driver: driver.read("copies"), r"'copies', which is no category.*driver.read\(my_category\)"),
        (lambda driver: driver.advance(timedelta(minutes=1)), r"no number of seconds.*driver.advance\(60\)"),
        (lambda driver: driver.advance("1m"), r"'1m', which is no number of seconds"),
        (lambda driver: driver.metrics("copies"), r"`metrics` got 'copies'.*driver.metrics\(MyProcessor\)"),
        (lambda driver: driver.dead_letters(Copies()), r"an object of Copies.*driver.dead_letters\(Copies\)"),
        (lambda _: Driver(Copies()), r"an object of Copies.*`Driver\(Copies\)`"),  # type: ignore[arg-type]  # the fault under test
        (lambda _: Driver([Copies()]), r"an object of Copies.*`Driver\(Copies\)`"),  # type: ignore[list-item]  # as above
        (lambda _: Driver("copies"), r"`Driver` got 'copies'"),  # type: ignore[arg-type]  # as above
        (lambda _: Driver(Item), r"`Driver` got <class .*Item"),  # type: ignore[arg-type]  # as above
    ],
)
def test_a_wrong_argument_is_refused_with_the_line_to_write(call: Callable[[Any], Any], advice: str) -> None:
    """The error has no traceback of the library, and no event is sent."""
    driver = Driver(Copies)
    with pytest.raises(DeclarationError, match=advice):
        call(driver)

    assert driver.read(copies) == []


def test_the_driver_accepts_any_iterable_of_records() -> None:
    """A generator is as good as a list."""
    driver = Driver(Copies)
    driver.send(items, (Item("ann", at) for at in range(3)))

    assert [item.at for item in driver.read(copies)] == [0, 1, 2]
