"""The itineraries example: the guarantees of its nodes on generated flights, and the whole app on real flights."""

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

from penstock.ops.kernel import Crash, Driver
from penstock.processors.monoids import check_laws
from penstock.processors.shard import Step

SOURCE = Path(__file__).parents[2] / "examples" / "itineraries" / "itineraries_source.py"
NODES = (Splitter, Matcher, Tracker)
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
HELD_UP_MINUTES = HELD_UP // timedelta(minutes=1)
LONGEST_MINUTES = LONGEST_FLIGHT // timedelta(minutes=1)
JANUARY_1 = 1_356_998_400_000
MARCH_7, MARCH_14 = JANUARY_1 + 65 * DAY, JANUARY_1 + 72 * DAY
CARRIERS = ("AA", "B6", "DL", "UA")
"""Some of each bucket."""


def reports_of(flown: Iterable[Flight]) -> list[Report]:
    """Return the airlines' reports of flights: a departure, and an arrival if there is one; numbered in their order."""
    flight_reports = []
    for number, flight in enumerate(flown):
        carrier = CARRIERS[number % len(CARRIERS)]
        left = Report(carrier, number, flight.tailnum, flight.origin, flight.dest, flight.departed)
        flight_reports.append(left)
        if flight.arrived is not None:
            flight_reports.append(
                Report(carrier, number, flight.tailnum, flight.origin, flight.dest, flight.arrived, flight.in_air)
            )
    return flight_reports


def delayed(flight_reports: Sequence[Report], minutes: Sequence[int]) -> list[Report]:
    """Return reports in their order of arrival after the given delays."""
    comes = [(report.at + held * MINUTE, report) for report, held in zip(flight_reports, minutes, strict=True)]
    return [report for _, report in sorted(comes, key=itemgetter(0))]


def last_ones(at: int) -> list[Report]:
    """Return one departure per bucket that advances its watermark, of a plane without other reports."""
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


# Generated flights.


def flight(tailnum: str, departed: int, flying: int | None, dest: str = "IAH") -> Flight:
    """Return a flight that left so many minutes after the first of January, with its minutes to the gate if it arrived."""
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
def test_itineraries_do_not_depend_on_the_order_of_reports(
    flown: list[Flight], data: st.DataObject, cuts: list[int]
) -> None:
    """Reports have any declared delay and are split over several runs."""
    flown = sorted(flown)
    flight_reports = reports_of(flown)
    minutes = data.draw(
        st.lists(st.integers(0, HELD_UP_MINUTES), min_size=len(flight_reports), max_size=len(flight_reports))
    )
    came = [*delayed(flight_reports, minutes), *last_ones(JANUARY_1 + 30 * DAY)]
    driver = Driver(NODES)
    for begin, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(came)], strict=True):
        driver.send(reports, came[begin:end])
    driver.run()

    assert found_legs(driver) == expected_legs(flown)
    assert found_trips(driver) == trips(flown)
    assert driver.read(late) == []


def test_a_diverted_flight_does_not_get_the_arrival_of_a_later_flight() -> None:
    """The plane's later arrival there would also be in time for the diverted flight."""
    flown = [flight("N1", 0, None, "BOS"), flight("N1", 300, 90)]
    driver = Driver(NODES)
    driver.send(reports, reports_of(flown) + last_ones(JANUARY_1 + 3 * DAY))

    assert found_legs(driver) == expected_legs(flown)
    assert [(one.legs, one.airports) for one in driver.read(itineraries)] == [(2, ["EWR", "IAH"])]


def test_a_leg_of_a_written_itinerary_is_a_late_event() -> None:
    """The late leg is a late event, and the written itinerary is unchanged; an open itinerary accepts late legs."""
    driver = Driver(NODES)
    driver.send(reports, reports_of([flight("N1", 0, 90)]) + last_ones(JANUARY_1 + 3 * DAY))
    written = driver.read(itineraries)
    complete_until = JANUARY_1 + 3 * DAY - (HELD_UP_MINUTES + LONGEST_MINUTES) * MINUTE
    driver.send(reports, reports_of([flight("N2", (complete_until - JANUARY_1) // MINUTE, 90)]))
    driver.send(reports, [Report("UA", 8, "N2", "LGA", "BOS", complete_until - 5 * HOUR)])
    driver.send(reports, [Report("UA", 9, "N1", "LGA", "ORD", JANUARY_1 + 5 * HOUR)])
    driver.send(reports, last_ones(JANUARY_1 + 6 * DAY))

    assert driver.read(late) == [Leg("N1", JANUARY_1 + 5 * HOUR, "LGA", "ORD", None, None)]
    assert [one for one in driver.read(itineraries) if one.tailnum == "N1"] == written
    assert [one.legs for one in driver.read(itineraries) if one.tailnum == "N2"] == [2]


@pytest.mark.parametrize("step", [Step.COMMIT_TRANSACTION, Step.PREPARE_STATE, Step.APPLY_STATE, None])
def test_each_itinerary_is_written_once_although_workers_die(step: Step | None) -> None:
    """Workers of all three nodes die several times."""
    flown = sorted(flight(f"N{n % 3}", n * 150 + n % 5 * 40, None if n % 7 == 0 else 60 + n * 9) for n in range(40))
    flight_reports = delayed(reports_of(flown), [0] * len(reports_of(flown)))
    driver = Driver(NODES)
    for begin in range(0, len(flight_reports), 27):
        driver.send(
            reports, [*flight_reports[begin : begin + 20], Crash(before=step), *flight_reports[begin + 20 : begin + 27]]
        )
    driver.send(reports, last_ones(JANUARY_1 + 30 * DAY))

    assert found_trips(driver) == trips(flown)


def test_routes_obey_the_laws() -> None:
    """A plane's legs may be combined in any order."""
    check_laws(Route(), [(5, ["EWR", "IAH"]), (7, ["JFK"]), (1, ["JFK", "BOS"]), (9, ["BOS", "EWR"])])


# Real flights.


def test_every_leg_and_itinerary_matches_the_data() -> None:
    """The week in March contains the start of daylight saving time; reports have any declared delay.

    Flights in the air at its end have no arrival, and flights in the air at its beginning have no departure.
    """
    flight_reports, random = reported(MARCH_7, MARCH_14), Random(2013)
    driver = Driver(NODES)
    came = delayed(flight_reports, [random.randint(0, HELD_UP_MINUTES) for _ in flight_reports])
    driver.send(reports, [*came, *last_ones(MARCH_14 + 7 * DAY)])
    flown = flights(MARCH_7, MARCH_14)

    assert found_legs(driver) == expected_legs(flown)
    assert found_trips(driver) == trips(flown)
    assert [driver.metrics(node).late for node in NODES] == [0, 0, 0]
    assert [driver.dead_letters(node) for node in NODES] == [[]] * 3


@pytest.mark.parametrize("day", ["yesterday", "2013-02-30"])
def test_an_invalid_day_is_refused(day: str) -> None:
    """The error names the argument and its format."""
    done = subprocess.run(
        [sys.executable, SOURCE, "--before", day], capture_output=True, text=True, timeout=240, check=False
    )

    assert done.returncode != 0
    assert f"invalid day value: '{day}'" in done.stderr
    assert "YYYY-MM-DD" in done.stderr
