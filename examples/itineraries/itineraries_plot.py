"""How long it is from one departure of a plane to its next, and where an itinerary therefore ends.

    python examples/itineraries/itineraries_plot.py

Writes docs/figures/itineraries.svg; matplotlib is among the dependencies for development.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

from itineraries import TURNAROUND
from itineraries_source import reported

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
from figures import COLORS, drawing

HOUR_MS = 3_600_000
SHOWN_HOURS = 30


def gaps() -> list[float]:
    """Return the hours between two departures, one after the other, of each plane."""
    departures = defaultdict(list)
    for report in reported():
        if report.in_air is None:
            departures[report.tailnum].append(report.at)
    return [(later - earlier) / HOUR_MS for times in departures.values() for earlier, later in pairwise(times)]


def main() -> None:
    """Draw how often each length occurs."""
    quarters = [quarter / 4 for quarter in range(4 * SHOWN_HOURS + 1)]
    with drawing("itineraries.svg", 1, height=3.0) as [panel]:
        panel.hist(gaps(), bins=quarters, color=COLORS[0])
        panel.axvline(TURNAROUND / timedelta(hours=1), color=COLORS[1], lw=1.5)
        panel.set_xlim(0, SHOWN_HOURS)
        panel.set_xticks(range(0, SHOWN_HOURS + 1, 2))
        panel.set_title("Hours from a departure of a plane to its next, 2013, by quarters of an hour")
        panel.grid(axis="y")


if __name__ == "__main__":
    main()
