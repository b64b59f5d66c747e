"""Three weeks of February 2013 at Newark, with the blizzard: what left, what was expected, and what stood out.

    python examples/zeitgeist/plot.py

Writes docs/figures/zeitgeist.svg; matplotlib is among the dependencies for development.
"""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from pathlib import Path

from matplotlib.axes import Axes
from zeitgeist import HOUR_MS, Counter, Detector
from zeitgeist_model import NEW_YORK, Week
from zeitgeist_records import Detection, counts, departures, detections
from zeitgeist_source import reported

from penstock.ops.kernel import Driver

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
from figures import COLORS, drawing

ORIGIN = "EWR"
FIRST, DAYS = datetime(2013, 2, 4, tzinfo=NEW_YORK), 21
LAST = FIRST + timedelta(DAYS)


def main() -> None:
    """Run the pipeline in memory, on the departures up to two days after the last that is shown; draw."""
    driver = Driver([Counter, Detector])
    end_ms = _ms(LAST) + 48 * HOUR_MS
    driver.send(departures, (departure for departure in reported() if departure.departed < end_ms))
    counted = {count.hour: count.count for count in driver.read(counts) if count.origin == ORIGIN}
    found = [one for one in driver.read(detections) if one.origin == ORIGIN and _ms(FIRST) <= one.hour < _ms(LAST)]
    with drawing("zeitgeist.svg", 1, width=11, height=3.2) as [panel]:
        draw(panel, counted, found)


def draw(panel: Axes, counted: dict[int, int], found: list[Detection]) -> None:
    """Draw what was expected as an area, what departed as a line, and spikes and dips as marks, over days."""
    expected = expectations(counted)
    shown = range(_ms(FIRST), _ms(LAST), HOUR_MS)
    days = [_days(hour) for hour in shown]
    panel.fill_between(days, [expected[hour] for hour in shown], step="post", color="#dddddd", label="expected")
    panel.step(days, [counted.get(hour, 0) for hour in shown], where="post", color=COLORS[0], lw=0.9, label="departed")
    for kind, mark, color in (("dip", "v", COLORS[1]), ("spike", "^", COLORS[2])):
        own = [one for one in found if one.kind == kind]
        middles = [_days(one.hour + HOUR_MS // 2) for one in own]
        panel.plot(middles, [one.count for one in own], mark, color=color, markersize=5, label=kind)
    labels = [FIRST + timedelta(day) for day in range(DAYS)]
    panel.set_xticks(range(DAYS), [f"{label:%a}\n{label.day}" for label in labels], ha="left")
    panel.set_xlim(0, DAYS)
    panel.set_ylim(bottom=-1.5)
    panel.set_title(f"Departures from {ORIGIN} in each hour, February 2013")
    panel.legend(ncols=4, loc="lower right", bbox_to_anchor=(1, 0.98))


def expectations(counted: dict[int, int]) -> dict[int, float]:
    """Return what was expected of each hour (milliseconds since 1970, UTC) before it was counted."""
    expected, week = {}, Week()
    for hour in range(min(counted), max(counted) + HOUR_MS, HOUR_MS):
        expected[hour] = week.at(hour).mean
        week = week.learn(hour, counted.get(hour, 0))
    return expected


def _ms(time: datetime) -> int:
    return int(time.timestamp() * 1000)


def _days(time_ms: int) -> float:
    return (time_ms - _ms(FIRST)) / (24 * HOUR_MS)


if __name__ == "__main__":
    main()
