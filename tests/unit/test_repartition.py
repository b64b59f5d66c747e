"""What repartitioning promises: the same records under another key, each once, those of one former key in order."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.ops.testing import Driver
from penstock.processors.errors import DeclarationError
from penstock.transport.messages import Bucket


class Click(ps.Record, frozen=True):
    """A user looks at a page."""

    user: str
    page: str
    at: ps.EventTime


class Tap(Click, frozen=True):
    """The same with a finger."""


clicks = ps.Category("clicks", Click, key="user", event_time="at", buckets=4)
by_page = ps.Category("clicks_by_page", Click, key="page", event_time="at", buckets=3)
wider = ps.Category("wider", Click, key="user", event_time="at", buckets=5)
taps = ps.Category("taps", Tap, key="page", event_time="at", buckets=3)


class ByPage(ps.Repartition):
    """Clicks by page."""

    reads, writes = clicks, by_page
    output_semantics = ps.Semantics.EXACTLY_ONCE


def test_records_lie_by_their_new_key() -> None:
    """All of one new key in one bucket; of one former key in order."""
    events = [Click(f"u{n % 7}", f"p{n % 5}", n) for n in range(200)]
    driver = Driver(ByPage)
    driver.send(clicks, events)
    buckets: dict[str, set[int]] = {}
    for number, end in driver.bus.describe(by_page.name).ends.items():
        for message in driver.bus.slice(Bucket(by_page.name, number), 0, end):
            buckets.setdefault((message.key() or b"").decode(), set()).add(number)
    given = driver.read(by_page)

    assert sorted(given, key=lambda one: one.at) == events
    assert buckets.keys() == {f"p{n}" for n in range(5)}
    assert all(len(numbers) == 1 for numbers in buckets.values())
    assert all(
        own == sorted(own)
        for user, page in {(one.user, one.page) for one in events}
        if (own := [one.at for one in given if (one.user, one.page) == (user, page)])
    )


@pytest.mark.parametrize(
    ("attributes", "told"),
    [
        ({"writes": ()}, r"one category of the input's record type \(Click\)"),
        ({"writes": taps}, r"one category of the input's record type \(Click\)"),
        (
            {"reads": by_page, "writes": ps.Category("again", Click, key="page", event_time="at", buckets=3)},
            "same key and number of buckets",
        ),
    ],
)
def test_what_changes_nothing_is_refused(attributes: dict[str, Any], told: str) -> None:
    """So is what would change more than where records lie."""
    wrong: type[ps.Repartition] = type("Wrong", (ByPage,), attributes)

    with pytest.raises(DeclarationError, match=told):
        wrong.check()


def test_another_number_of_buckets_is_enough() -> None:
    """Of the same key."""
    type("Wider", (ByPage,), {"writes": wider}).check()  # type: ignore[attr-defined]
