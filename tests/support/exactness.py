"""The expected outputs of the app of meters, computed from the numbers alone."""

from __future__ import annotations

from collections import Counter

from .meters import HOUR
from .plain import values


def large_readings(count: int) -> list[int]:
    """Return the numbers of the large readings among the first `count`: those of at least 10 litres."""
    return [n for n in range(count) if n % 25 >= 10]


def expect_totals_count_each_reading_once(kafka: str, prefix: str, count: int) -> None:
    """Expect one total for each large reading among the first `count`; a meter's last total is its sum."""
    litres: Counter[str] = Counter()
    for n in large_readings(count):
        litres[f"m{n % 7}"] += n % 25
    totals = values(kafka, f"{prefix}.totals")

    assert {total["meter"]: total["litres"] for total in totals} == litres
    assert len(totals) == len(large_readings(count))


def expect_hours_count_each_reading_once(kafka: str, prefix: str, count: int) -> None:
    """Compare the last result of each meter and hour with the first `count` readings."""
    litres: Counter[tuple[str, int]] = Counter()
    for n in large_readings(count):
        litres[f"m{n % 7}", n // 6 * HOUR] += n % 25
    hours = values(kafka, f"{prefix}.hours")

    assert {(hour["meter"], hour["hour"]): hour["litres"] for hour in hours} == litres
