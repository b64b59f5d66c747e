"""The Zeitgeist example: its model and its timer alone, and the whole example on all departures of 2013."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import NamedTuple

import pytest
from truth.zeitgeist import HOUR, Answer, Hour, answer, bad_weather
from zeitgeist import Counter, Detector
from zeitgeist_model import THRESHOLD, Expected
from zeitgeist_records import Detection, HourCount, counts, departures, detections
from zeitgeist_source import reported

from penstock.ops.kernel import Crash, Driver
from penstock.processors.shard import Step

JANUARY_1 = 1_356_998_400_000
FEBRUARY_8, FEBRUARY_10 = JANUARY_1 + (38 * 24 + 5) * HOUR, JANUARY_1 + (40 * 24 + 5) * HOUR
"""Midnight in New York."""


# The model and the timer alone


def learned(departures_of_hours: Iterable[int]) -> Expected:
    """Return the model after hours with these numbers of departures."""
    expected = Expected()
    for count in departures_of_hours:
        expected = expected.learn(count)
    return expected


def test_mean_and_variance_match_the_counts() -> None:
    """There are still few counts."""
    expected = learned([2, 4, 4, 10])

    assert (expected.mean, expected.variance) == pytest.approx((5.0, 9.0))


def test_no_hour_has_a_score_without_a_history() -> None:
    """Three equal hours are too few, even before an hour without departures."""
    assert learned([20] * 3).score(0) is None
    assert learned([20] * 4).score(0) == pytest.approx(-(20**0.5))


def test_an_outlier_does_not_make_normal_hours_stand_out() -> None:
    """The model learns little from a closed airport."""
    expected = learned([20] * 20 + [0])

    assert expected.score(20) == pytest.approx(0.33, abs=0.01)


def test_a_new_timetable_is_learned() -> None:
    """If a third of the departures remains, two weeks are dips."""
    scores = [learned([60] * 20 + [20] * weeks).score(20) for weeks in range(6)]

    assert [score is not None and score < -THRESHOLD for score in scores] == [True] * 2 + [False] * 4


def hours(origin: str, begin: int, end: int, silent: Iterable[int] = ()) -> list[HourCount]:
    """Return twenty departures in each of these hours, and no count for silent hours."""
    return [HourCount(origin, JANUARY_1 + n * HOUR, 20) for n in range(begin, end) if n not in set(silent)]


SILENT = (700, 701, 703)
TWO_AIRPORTS = sorted(hours("EWR", 0, 705, SILENT) + hours("JFK", 0, 705), key=attrgetter("hour"))


def test_an_hour_without_a_count_is_a_dip() -> None:
    """It is detected once any airport has a later count."""
    driver = Driver(Detector)
    silent_before_704 = [event for event in TWO_AIRPORTS if event.hour < JANUARY_1 + 704 * HOUR]
    driver.send(counts, silent_before_704)
    detected_at_703 = [found.hour for found in driver.read(detections)]
    driver.send(counts, TWO_AIRPORTS[len(silent_before_704) :])

    assert detected_at_703 == [JANUARY_1 + n * HOUR for n in (700, 701)]
    assert driver.read(detections) == [
        Detection("EWR", JANUARY_1 + n * HOUR, "dip", 0, 20.0, -(20**0.5)) for n in SILENT
    ]


@pytest.mark.parametrize("step", [Step.FLUSH_OUTPUTS, Step.COMMIT_TRANSACTION, Step.APPLY_STATE, None])
def test_a_crash_detects_nothing_twice_and_misses_nothing(step: Step | None) -> None:
    """The crash may be in the middle of the silent hours."""
    driver = Driver(Detector)
    in_silence = len(TWO_AIRPORTS) - 6
    driver.send(counts, [*TWO_AIRPORTS[:in_silence], Crash(before=step), *TWO_AIRPORTS[in_silence:]])

    assert [found.hour for found in driver.read(detections)] == [JANUARY_1 + n * HOUR for n in SILENT]


# The whole example on all departures


class Whole(NamedTuple):
    """The run over all departures, and the expected answer."""

    driver: Driver
    truth: Answer


@pytest.fixture(scope="module")
def whole() -> Iterator[Whole]:
    """Run both nodes over all departures, once."""
    gc.disable()  # the collector would traverse all stored messages, again and again
    try:
        driver = Driver([Counter, Detector])
        driver.send(departures, reported())
        yield Whole(driver, answer())
    finally:
        gc.enable()


def test_every_count_is_correct(whole: Whole) -> None:
    """Each airport and complete hour has one count, in order of time, of the departures reported in time."""
    found = whole.driver.read(counts)

    assert {(count.origin, count.hour): count.count for count in found} == whole.truth.counts
    assert len(found) == len(whole.truth.counts)
    assert found == sorted(found, key=attrgetter("hour"))


def test_departures_reported_too_late_are_counted(whole: Whole) -> None:
    """They are one in 284. For most late reports, the hour is not over."""
    assert whole.driver.metrics(Counter).dropped == whole.truth.dropped == 1_157


def test_every_detection_is_correct(whole: Whole) -> None:
    """Spikes, dips and figures equal a separate computation week by week."""
    found = sorted(whole.driver.read(detections), key=attrgetter("origin", "hour"))

    assert [(one.origin, one.hour, one.kind, one.count) for one in found] == [
        (hour.origin, hour.start, "spike" if hour.score > 0 else "dip", hour.count) for hour in whole.truth.detections
    ]
    assert [(one.expected, one.score) for one in found] == [
        pytest.approx((hour.expected, hour.score), rel=1e-9) for hour in whole.truth.detections
    ]


def test_dips_occur_in_bad_weather(whole: Whole) -> None:
    """Seven of ten dips occur in bad weather, but only one of ten possible hours has it. The blizzard of February caused most dips."""
    dips = [hour for hour in whole.truth.detections if hour.score < 0]
    possible = [hour for hour in whole.truth.hours if hour.could_dip]

    assert (after_bad_weather(dips), len(dips)) == (35, 50)
    assert (after_bad_weather(possible), len(possible)) == (1_292, 13_064)
    assert sum(FEBRUARY_8 <= hour.start < FEBRUARY_10 for hour in dips) == 30


def after_bad_weather(found: Iterable[Hour]) -> int:
    """Return the number of hours with bad weather at their airport, then or in the three hours before."""
    bad = bad_weather()
    return sum(any((hour.origin, hour.start - ago * HOUR) in bad for ago in range(4)) for hour in found)


def test_no_event_is_refused(whole: Whole) -> None:
    """Nothing in the real data is a dead letter."""
    assert [whole.driver.dead_letters(node) for node in (Counter, Detector)] == [[]] * 2
