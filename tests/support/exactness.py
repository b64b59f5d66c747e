"""What the app of meters has to come to, computed from the numbers alone; and whether its categories hold just that."""

from __future__ import annotations

from collections import Counter

from .meters import HOUR
from .plain import values


def large_readings(count: int) -> list[int]:
    """Return which of the first `count` readings the app keeps: those of 10 litres or more."""
    return [n for n in range(count) if n % 25 >= 10]


def expect_totals_count_each_reading_once(kafka: str, prefix: str, count: int) -> None:
    """Hold the totals against the first `count` readings: one for each that is large, and the last of a meter is its sum."""
    litres: Counter[str] = Counter()
    for n in large_readings(count):
        litres[f"m{n % 7}"] += n % 25
    totals = values(kafka, f"{prefix}.totals")

    assert {total["meter"]: total["litres"] for total in totals} == litres
    assert len(totals) == len(large_readings(count))


def expect_hours_count_each_reading_once(kafka: str, prefix: str, count: int) -> None:
    """Hold the last result of each meter and hour against the first `count` readings."""
    litres: Counter[tuple[str, int]] = Counter()
    for n in large_readings(count):
        litres[f"m{n % 7}", n // 6 * HOUR] += n % 25
    hours = values(kafka, f"{prefix}.hours")

    assert {(hour["meter"], hour["hour"]): hour["litres"] for hour in hours} == litres
