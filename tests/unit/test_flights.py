"""The flights example: each node by itself, as a user would test it, and all four on all flights of 2013."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, TypeVar

import polars as pl
import pytest
from msgspec.structs import asdict, astuple, replace
from truth.flights import Answer, answer

import penstock as ps
from penstock.ops.kernel import Driver

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "flights"))

import source
from app import Filterer, Joiner, Ranker, Scorer
from records import (
    Departure,
    DestinationScore,
    Enriched,
    Flight,
    Ranking,
    Scored,
    departures,
    enriched,
    flights,
    rankings,
    scored,
)

R = TypeVar("R", bound=ps.Record)

JANUARY_1 = 1_356_998_400_000
MINUTE = 60_000
DAY = 24 * 60 * MINUTE

ON_TIME = Departure("UA", 1545, "N14228", "EWR", "IAH", "EWR-IAH", JANUARY_1, 1400, 0.0)
KNOWN = Enriched(**asdict(ON_TIME), manufacturer="BOEING", seats=149, dest_name="George Bush Intercontinental")


# Each node by itself


def test_filterer_drops_cancelled_flights() -> None:
    """A flight without delay never departed; one that left early did."""
    early = Flight("AA", 1141, "N619AA", "JFK", "MIA", "JFK-MIA", JANUARY_1, 1089, -3.0)
    cancelled = replace(early, flight=7, dep_delay=None)
    driver = Driver(Filterer)

    driver.send(flights, [early, cancelled])

    assert driver.read(departures) == [Departure(**asdict(early))]


def test_joiner_adds_plane_and_destination() -> None:
    """The tables' columns for a plane and an airport are added."""
    driver = Driver(Joiner)

    driver.send(departures, [ON_TIME])

    assert driver.read(enriched) == [KNOWN]


def test_joiner_leaves_unknown_fields_null() -> None:
    """A plane without registration or an unlisted airport leaves only these fields null."""
    driver = Driver(Joiner)

    driver.send(departures, [replace(ON_TIME, tailnum=None), replace(ON_TIME, dest="SJU")])
    nameless, unlisted = driver.read(enriched)

    assert (nameless.manufacturer, nameless.seats, nameless.dest_name) == (None, None, KNOWN.dest_name)
    assert (unlisted.manufacturer, unlisted.seats, unlisted.dest_name) == ("BOEING", 149, None)


def scores_of(events: Iterable[Enriched]) -> list[int]:
    """Return the scores of departures of one carrier, in order."""
    driver = Driver(Scorer)
    driver.send(enriched, events)
    return [event.score for event in driver.read(scored)]


def late(delay: float, route: str = "EWR-IAH") -> Enriched:
    """Return a departure that was so many minutes late."""
    return replace(KNOWN, dep_delay=delay, route=route)


def test_scorer_measures_against_the_mean_before_the_update() -> None:
    """The first departure sets the mean; each later one moves it by a tenth of its distance, after it was scored."""
    assert scores_of([late(10), late(20), late(11)]) == [0, 10_000, 0]


def test_scorer_keeps_a_mean_for_each_route() -> None:
    """The first departure of a route scores 0, whatever the others were."""
    assert scores_of([late(10), late(60, "LGA-MIA"), late(20)]) == [0, 0, 10_000]


def test_scorer_truncates_towards_zero() -> None:
    """A ten-thousandth of a minute too early or too late does not count."""
    assert scores_of([late(0), late(0.0009), late(-0.0009)]) == [0, 0, 0]


def late_at(dest: str, score: int, time: int = JANUARY_1, carrier: str = "UA") -> Scored:
    """Return a departure with a score."""
    at = replace(KNOWN, carrier=carrier, dest=dest, route=f"EWR-{dest}", scheduled=time)
    return Scored(**asdict(at), score=score)


def test_ranker_sums_positive_scores() -> None:
    """A departure earlier than usual does not make up for a late one."""
    driver = Driver(Ranker)

    driver.send(scored, [late_at("IAH", 500), late_at("IAH", -400), late_at("IAH", 200), late_at("MIA", -1)])

    assert driver.read(rankings) == [Ranking("UA", JANUARY_1, [DestinationScore("IAH", 700)])]


def test_ranker_shows_the_five_largest_ties_by_code() -> None:
    """The last of six destinations is omitted; ties are sorted by code."""
    driver = Driver(Ranker)

    driver.send(
        scored, [late_at(dest, 1 if dest == "ATL" else 9) for dest in ("SFO", "BOS", "ATL", "LAX", "MIA", "IAH")]
    )
    [ranking] = driver.read(rankings)

    assert [line.dest for line in ranking.top] == ["BOS", "IAH", "LAX", "MIA", "SFO"]


def test_ranker_ranks_each_carrier_and_day() -> None:
    """Each carrier and UTC day of the scheduled time has a ranking of its own, however late the flight arrives."""
    driver = Driver(Ranker)

    driver.send(scored, [late_at("IAH", 1, JANUARY_1 + DAY), late_at("IAH", 2, JANUARY_1 + DAY - 1)])
    driver.send(scored, [late_at("IAH", 4, carrier="AA"), late_at("IAH", 8)])

    assert {at: top for at, top in last_rankings(driver).items() if at[0] == "UA"} == {
        ("UA", JANUARY_1): [("IAH", 10)],
        ("UA", JANUARY_1 + DAY): [("IAH", 1)],
    }
    assert last_rankings(driver)["AA", JANUARY_1] == [("IAH", 4)]


def last_rankings(driver: Driver) -> dict[tuple[str, int], list[tuple[str, int]]]:
    """Return the ranking of each carrier and day: the last update counts."""
    return {
        (ranking.carrier, ranking.day): [(line.dest, line.score) for line in ranking.top]
        for ranking in driver.read(rankings)
    }


# All four on all flights


class Whole(NamedTuple):
    """The run over all flights, the number of produced flights, and the expected results."""

    driver: Driver
    produced: int
    truth: Answer


@pytest.fixture(scope="module")
def whole() -> Iterator[Whole]:
    """Run the four nodes over all flights, once."""
    gc.disable()  # otherwise a third of the time is spent on scanning a million stored messages
    try:
        driver = Driver([Filterer, Joiner, Scorer, Ranker])
        produced = source.produce(driver.bus)
        driver.run()
        yield Whole(driver, produced, answer())
    finally:
        gc.enable()


def expect_same(found: Iterable[R], true: pl.DataFrame, by: list[str]) -> None:
    """Compare all events, those of each group in their order."""
    expect_same_rows(sorted(found, key=attrgetter(*by)), true.sort(by, maintain_order=True))


def expect_same_rows(found: Sequence[ps.Record], true: pl.DataFrame) -> None:
    """Compare all fields of all events in order; show the first that differs, for all would be gigabytes of text."""
    assert list(found[0].__struct_fields__) == true.columns
    pairs = zip(found, true.iter_rows(), strict=False)
    assert next(((event, row) for event, row in pairs if astuple(event) != row), None) is None
    assert len(found) == true.height


def test_flights_are_produced_by_actual_departure(whole: Whole) -> None:
    """All 336,776 flights are produced in the order in which they left. Ties are in the order of the rows."""
    found = source.flights()

    assert whole.produced == len(found) == 336_776
    expect_same_rows(found, whole.truth.produced)


def test_each_route_is_on_the_bus_in_the_order_of_production(whole: Whole) -> None:
    """Batches and buckets do not disturb the order of a route."""
    expect_same(whole.driver.read(flights), whole.truth.produced, ["route"])


def test_all_but_cancelled_flights_depart(whole: Whole) -> None:
    """Every flight but the 8,255 cancelled ones is forwarded unchanged."""
    assert whole.truth.departures.height == 336_776 - 8_255
    expect_same(whole.driver.read(departures), whole.truth.departures, ["route"])


def test_every_enriched_departure_matches_polars(whole: Whole) -> None:
    """Every field of every departure agrees with the joins in Polars."""
    expect_same(whole.driver.read(enriched), whole.truth.enriched, ["route"])


def test_every_score_matches_an_independent_loop(whole: Whole) -> None:
    """Every departure has the score that an independent loop over its route computes."""
    # Keyed by carrier from here on: of two carriers that share a route, either may come first.
    expect_same(whole.driver.read(scored), whole.truth.scored, ["carrier", "route"])


def test_every_ranking_matches_polars(whole: Whole) -> None:
    """The last update of every carrier and day is the five largest sums in Polars."""
    found = last_rankings(whole.driver)

    assert found.keys() == whole.truth.rankings.keys()
    assert [at for at, top in found.items() if top != whole.truth.rankings[at]] == []


def test_no_event_is_a_dead_letter(whole: Whole) -> None:
    """Nothing in the real data is a dead letter."""
    assert [whole.driver.dead_letters(node) for node in (Filterer, Joiner, Scorer, Ranker)] == [[]] * 4


def test_missing_dimension_tables_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the data, the error names the package to install."""
    monkeypatch.setattr("tables.find_spec", lambda _: None)

    with pytest.raises(ps.PenstockError, match=r"pip install 'penstock\[examples\]'"):
        Driver(Joiner)
