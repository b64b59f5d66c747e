"""The itineraries example: what its nodes promise on flights that were made up, and all of it on real ones."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import timedelta
from operator import itemgetter
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from itineraries import HELD_UP, LONGEST_FLIGHT, Matcher, Route, Splitter, Tracker
from itineraries_records import Itinerary, Leg, Report, itineraries, late, legs, reports
from itineraries_source import reported
from truth.itineraries import Flight, Trip, flights, trips

from penstock.ops.testing import Crash, Driver
from penstock.processors.monoids.laws import check_laws
from penstock.processors.shard.checkpoints import Step

SOURCE = Path(__file__).parents[2] / "examples" / "itineraries" / "itineraries_source.py"
NODES = (Splitter, Matcher, Tracker)
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
HELD_UP_MINUTES = HELD_UP // timedelta(minutes=1)
LONGEST_MINUTES = LONGEST_FLIGHT // timedelta(minutes=1)
JANUARY_1 = 1_356_998_400_000
MARCH_7, MARCH_14 = JANUARY_1 + 65 * DAY, JANUARY_1 + 72 * DAY
CARRIERS = ("AA", "B6", "DL", "UA")
"""Some of each bucket."""


def told_of(flown: Iterable[Flight]) -> list[Report]:
    """Return what airlines tell of flights, each by its departure and its arrival, if it has one; numbered as they come."""
    told = []
    for number, flight in enumerate(flown):
        carrier = CARRIERS[number % len(CARRIERS)]
        left = Report(carrier, number, flight.tailnum, flight.origin, flight.dest, flight.departed)
        told.append(left)
        if flight.arrived is not None:
            told.append(
                Report(carrier, number, flight.tailnum, flight.origin, flight.dest, flight.arrived, flight.in_air)
            )
    return told


def held_up(told: Sequence[Report], minutes: Sequence[int]) -> list[Report]:
    """Return reports in the order in which they come when each is held up for so long."""
    comes = [(report.at + held * MINUTE, report) for report, held in zip(told, minutes, strict=True)]
    return [report for _, report in sorted(comes, key=itemgetter(0))]


def last_ones(at: int) -> list[Report]:
    """Return departures that tell, in each bucket, that all before them has come; of a plane that nothing else is told of."""
    return [Report(carrier, 0, "last", "EWR", "IAH", at) for carrier in CARRIERS]


def expected_legs(flown: Iterable[Flight]) -> list[Leg]:
    """Return the legs of flights, sorted."""
    return sorted(
        (Leg(one.tailnum, one.departed, one.origin, one.dest, one.arrived, one.in_air) for one in flown), key=_by_plane
    )


def found_legs(driver: Driver) -> list[Leg]:
    """Return the legs that were written, sorted."""
    return sorted((leg for leg in driver.read(legs) if leg.tailnum != "last"), key=_by_plane)


def found_trips(driver: Driver) -> list[Trip]:
    """Return the itineraries that were written, sorted."""
    return sorted(map(_trip, driver.read(itineraries)))


def _by_plane(leg: Leg) -> tuple[str, int]:
    return leg.tailnum, leg.departed


def _trip(one: Itinerary) -> Trip:
    return Trip(one.tailnum, one.begun, one.over, one.legs, tuple(one.airports), one.hours)


# On flights that were made up


def flight(tailnum: str, departed: int, flying: int | None, dest: str = "IAH") -> Flight:
    """Return a flight that left so many minutes after the first of January, with its minutes to the gate if it came there."""
    start = JANUARY_1 + departed * MINUTE
    arrival = (None, None) if flying is None else (start + flying * MINUTE, flying - 10)
    return Flight(tailnum, start, "EWR", dest, *arrival)


FLIGHTS = st.lists(
    st.builds(
        flight,
        st.sampled_from(["N1", "N2"]),
        st.integers(0, 4 * 24 * 60),
        st.none() | st.integers(30, LONGEST_MINUTES),
        st.sampled_from(["IAH", "EWR", "BOS"]),
    ),
    unique_by=lambda one: (one.tailnum, one.departed),
    max_size=12,
)


@given(flown=FLIGHTS, data=st.data(), cuts=st.lists(st.integers(0, 24), max_size=3))
@settings(max_examples=40, deadline=None)
def test_itineraries_are_the_same_in_whatever_order_the_reports_come(
    flown: list[Flight], data: st.DataObject, cuts: list[int]
) -> None:
    """Held up for as long as is declared, and cut into several runs."""
    flown = sorted(flown)
    told = told_of(flown)
    minutes = data.draw(st.lists(st.integers(0, HELD_UP_MINUTES), min_size=len(told), max_size=len(told)))
    came = [*held_up(told, minutes), *last_ones(JANUARY_1 + 30 * DAY)]
    driver = Driver(NODES)
    for begin, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(came)], strict=True):
        driver.send(reports, came[begin:end])
    driver.run()

    assert found_legs(driver) == expected_legs(flown)
    assert found_trips(driver) == trips(flown)
    assert driver.read(late) == []


def test_an_arrival_of_another_flight_is_not_that_of_one_that_was_diverted() -> None:
    """Though the plane came there in time to have been it."""
    flown = [flight("N1", 0, None, "BOS"), flight("N1", 300, 90)]
    driver = Driver(NODES)
    driver.send(reports, told_of(flown) + last_ones(JANUARY_1 + 3 * DAY))

    assert found_legs(driver) == expected_legs(flown)
    assert [(one.legs, one.airports) for one in driver.read(itineraries)] == [(2, ["EWR", "IAH"])]


def test_what_comes_when_its_itinerary_is_written_is_put_aside() -> None:
    """It is not lost, and the itinerary stays as it is; one that is still open takes what comes late."""
    driver = Driver(NODES)
    driver.send(reports, told_of([flight("N1", 0, 90)]) + last_ones(JANUARY_1 + 3 * DAY))
    written = driver.read(itineraries)
    complete_until = JANUARY_1 + 3 * DAY - (HELD_UP_MINUTES + LONGEST_MINUTES) * MINUTE
    driver.send(reports, told_of([flight("N2", (complete_until - JANUARY_1) // MINUTE, 90)]))
    driver.send(reports, [Report("UA", 8, "N2", "LGA", "BOS", complete_until - 5 * HOUR)])
    driver.send(reports, [Report("UA", 9, "N1", "LGA", "ORD", JANUARY_1 + 5 * HOUR)])
    driver.send(reports, last_ones(JANUARY_1 + 6 * DAY))

    assert driver.read(late) == [Leg("N1", JANUARY_1 + 5 * HOUR, "LGA", "ORD", None, None)]
    assert [one for one in driver.read(itineraries) if one.tailnum == "N1"] == written
    assert [one.legs for one in driver.read(itineraries) if one.tailnum == "N2"] == [2]


@pytest.mark.parametrize("step", [Step.COMMIT_TRANSACTION, Step.PREPARE_STATE, Step.APPLY_STATE, None])
def test_each_itinerary_is_written_once_whatever_dies(step: Step | None) -> None:
    """All three nodes do, three times."""
    flown = sorted(flight(f"N{n % 3}", n * 150 + n % 5 * 40, None if n % 7 == 0 else 60 + n * 9) for n in range(40))
    told = held_up(told_of(flown), [0] * len(told_of(flown)))
    driver = Driver(NODES)
    for begin in range(0, len(told), 27):
        driver.send(reports, [*told[begin : begin + 20], Crash(before=step), *told[begin + 20 : begin + 27]])
    driver.send(reports, last_ones(JANUARY_1 + 30 * DAY))

    assert found_trips(driver) == trips(flown)


def test_routes_obey_the_laws() -> None:
    """In whatever order a plane's legs are combined."""
    check_laws(Route(), [(5, ["EWR", "IAH"]), (7, ["JFK"]), (1, ["JFK", "BOS"]), (9, ["BOS", "EWR"])])


# On real flights


def test_every_leg_and_itinerary_is_true() -> None:
    """Of a week in March in which clocks are put forward, its reports held up by any time that is declared.

    Of what was in the air at its end, no arrival is told, and of what was in the air at its beginning, no departure.
    """
    told, random = reported(MARCH_7, MARCH_14), Random(2013)
    driver = Driver(NODES)
    came = held_up(told, [random.randint(0, HELD_UP_MINUTES) for _ in told])
    driver.send(reports, [*came, *last_ones(MARCH_14 + 7 * DAY)])
    flown = flights(MARCH_7, MARCH_14)

    assert found_legs(driver) == expected_legs(flown)
    assert found_trips(driver) == trips(flown)
    assert [driver.metrics(node).late for node in NODES] == [0, 0, 0]
    assert [driver.dead_letters(node) for node in NODES] == [[]] * 3


@pytest.mark.parametrize("day", ["yesterday", "2013-02-30"])
def test_a_day_that_is_none_is_refused(day: str) -> None:
    """With the argument and what it may be."""
    done = subprocess.run(
        [sys.executable, SOURCE, "--before", day], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode != 0
    assert f"invalid day value: '{day}'" in done.stderr
    assert "YYYY-MM-DD" in done.stderr
