"""Repartitioning: each record once under another key, in the order of its former key."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.ops.kernel import Driver
from penstock.processors import DeclarationError
from penstock.processors.declare import plan_of
from penstock.transport import Bucket


class Click(ps.Record, frozen=True):
    """A view of a page."""

    user: str
    page: str
    at: ps.EventTime


class Tap(Click, frozen=True):
    """A view by touch."""


clicks = ps.Category("clicks", Click, key="user", event_time="at", buckets=4)
by_page = ps.Category("clicks_by_page", Click, key="page", event_time="at", buckets=3)
wider = ps.Category("wider", Click, key="user", event_time="at", buckets=5)
taps = ps.Category("taps", Tap, key="page", event_time="at", buckets=3)


class ByPage(ps.Repartition):
    """Writes clicks by page."""

    reads, writes = clicks, by_page
    output_semantics = ps.Semantics.EXACTLY_ONCE


def test_records_are_written_to_the_bucket_of_their_new_key() -> None:
    """All records of a new key are in one bucket; the records of a former key keep their order."""
    events = [Click(f"u{n % 7}", f"p{n % 5}", n) for n in range(200)]
    driver = Driver(ByPage)
    driver.send(clicks, events)
    buckets: dict[str, set[int]] = {}
    for number, end in driver.bus.describe(by_page.name).ends.items():
        for message in driver.bus.slice(Bucket(by_page.name, number), 0, end):
            buckets.setdefault((message.key() or b"").decode(), set()).add(number)
    outputs = driver.read(by_page)

    assert sorted(outputs, key=lambda click: click.at) == events
    assert buckets.keys() == {f"p{n}" for n in range(5)}
    assert all(len(numbers) == 1 for numbers in buckets.values())
    assert all(
        times == sorted(times)
        for user, page in {(click.user, click.page) for click in events}
        if (times := [click.at for click in outputs if (click.user, click.page) == (user, page)])
    )


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"writes": ()}, r"one category of the input's record type \(Click\)"),
        ({"writes": taps}, r"one category of the input's record type \(Click\)"),
        (
            {"reads": by_page, "writes": ps.Category("again", Click, key="page", event_time="at", buckets=3)},
            "same key, number of buckets and partitioner",
        ),
    ],
)
def test_a_repartition_must_change_only_the_key_or_the_buckets(attributes: dict[str, Any], message: str) -> None:
    """A declaration that changes neither, or the record type, is refused."""
    wrong: type[ps.Repartition] = type("Wrong", (ByPage,), attributes)

    with pytest.raises(DeclarationError, match=message):
        plan_of(wrong).check()


def test_a_repartition_may_change_only_the_number_of_buckets() -> None:
    """It may keep the key."""
    plan_of(type("Wider", (ByPage,), {"writes": wider})).check()
