"""Replays of a key that no event has."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.ops.change.clones.bisecting import KeyNotRead, Search, find_cause
from penstock.ops.look_back import KeySearch
from penstock.processors.shard import SourceEvents
from penstock.testing import Driver


class Reading(ps.Record, frozen=True):
    """A reading."""

    meter: str
    at: ps.EventTime


readings = ps.Category("readings", Reading, key="meter", event_time="at", buckets=1)


class Counts(ps.Stateful[Reading, int, Reading]):
    """Counts the readings of each meter."""

    reads, state = readings, int

    def process(self, event: Reading, state: int | None, context: ps.Context) -> tuple[int, list[Reading]]:
        """Count a reading."""
        return (state or 0) + 1, []


def searched(key: str, number: int) -> int | None:
    """Return the state after the first event of a key with which its count is above a number."""
    driver = Driver(Counts)
    driver.send(readings, [Reading("kitchen", 1), Reading("garden", 2), Reading("kitchen", 3)])
    cause = find_cause(Search(Counts, key, lambda state: bool(state > number), driver.bus, None), [])
    return None if cause is None else int(cause.after)


def test_a_bisection_of_a_misspelled_key_names_the_range_and_the_near_key() -> None:
    """The condition did not merely fail to hold."""
    with pytest.raises(KeyNotRead) as refused:
        searched("kitchn", 1)

    assert "No event of key kitchn was read, among 3 events of readings/0 from offset 0 to 2." in str(refused.value)
    assert "Did you mean `kitchen`? `penstock category tail readings --from 0" in str(refused.value)
    assert searched("kitchen", 1) == 2
    assert searched("kitchen", 5) is None


def test_without_a_near_key_some_are_listed() -> None:
    """The listed keys show a user how keys look."""
    driver = Driver(Counts)
    driver.send(readings, [Reading("kitchen", 1), Reading("garden", 2)])
    search = KeySearch("zzz")
    search.note(SourceEvents(readings, 0, [Reading("kitchen", 1)], [0], [1]))

    assert not search.is_found
    assert "among 1 event of readings/0 from offset 0 to 0. The latest events have keys such as kitchen, garden." in (
        search.missing(driver.bus, readings)
    )
    assert "was read: its bucket of readings has no events there." in KeySearch("a").missing(driver.bus, readings)
