"""What the itineraries example must answer, worked out from the same CSV files in another way.

A row of the table is a whole flight, so nothing is split and nothing joined: Polars computes whole columns, and cuts each plane's flights
where the next one is far. Nothing here is shared with the example or with Penstock, so that they cannot be wrong together.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import polars as pl

from .tables import departed_ms, table

CUT = 10 * 3_600_000


class Flight(NamedTuple):
    """A flight that left.

    Args:
        tailnum: the registration of the plane.
        departed: when (milliseconds since 1970, UTC).
        origin: code of the airport.
        dest: code of the one it was to fly to.
        arrived: when it was there; None where that was not told.
        in_air: minutes in the air, of one that arrived.
    """

    tailnum: str
    departed: int
    origin: str
    dest: str
    arrived: int | None
    in_air: int | None


class Trip(NamedTuple):
    """Flights of one plane, each less than ten hours after the one before.

    Args:
        tailnum: the registration of the plane.
        begun: the first departure (milliseconds since 1970, UTC).
        over: ten hours after the last one.
        legs: how many flights.
        airports: where it was, in order.
        hours: in the air.
    """

    tailnum: str
    begun: int
    over: int
    legs: int
    airports: tuple[str, ...]
    hours: float


def flights(begin_ms: int = 0, end_ms: int = 2**62) -> list[Flight]:
    """Return what was told, before a time, of all flights that left after another, by plane and departure."""
    zones = table("airports").select(pl.col("faa").alias("dest"), "tzone")
    left = (
        table("flights")
        .with_columns(departed_ms().alias("departed"))
        .filter(pl.col("departed").is_between(begin_ms, end_ms, closed="left"))
    )
    placed = left.join(zones, on="dest", how="left")
    by_zone = placed.with_columns(pl.col("tzone").fill_null("America/Puerto_Rico")).partition_by("tzone", as_dict=True)
    arrived = pl.concat([_with_arrivals(rows, str(zone)) for (zone,), rows in by_zone.items()])
    told = pl.col("air_time").is_not_null() & (pl.col("arrived") < end_ms)
    columns = arrived.select(
        "tailnum",
        "departed",
        "origin",
        "dest",
        pl.when(told).then("arrived"),
        pl.when(told).then(pl.col("air_time").cast(pl.Int64)).alias("in_air"),
    )
    return [Flight(*row) for row in columns.sort("tailnum", "departed", "origin", "dest").iter_rows()]


def _with_arrivals(rows: pl.DataFrame, zone: str) -> pl.DataFrame:
    """Add when flights to airports of one time zone arrived: the first time since the departure at which its clock shows that."""
    clock = pl.col("arr_time").cast(pl.Int64)
    left = pl.from_epoch("departed", "ms").dt.convert_time_zone(zone).dt.replace_time_zone(None)
    same_day = left.dt.truncate("1d") + pl.duration(hours=clock // 100 % 24, minutes=clock % 100)
    shown = pl.when(same_day > left).then(same_day).otherwise(same_day + pl.duration(days=1))
    # In one row, a clock was not put forward in the night to March 10: it shows what is skipped.
    arrived = pl.coalesce(_utc_ms(shown, zone), _utc_ms(shown + pl.duration(hours=1), zone))
    return rows.with_columns(arrived.alias("arrived"))


def _utc_ms(local: pl.Expr, zone: str) -> pl.Expr:
    return local.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null").dt.epoch("ms")


def trips(flown: list[Flight]) -> list[Trip]:
    """Return the trips of flights that are sorted by plane and departure."""
    return [_trip(part) for part in _cut(flown)]


def _cut(flown: list[Flight]) -> Iterator[list[Flight]]:
    starts = [at for at in range(len(flown)) if at == 0 or _is_far(flown[at - 1], flown[at])]
    for begin, end in pairwise([*starts, len(flown)]):
        yield flown[begin:end]


def _is_far(one: Flight, other: Flight) -> bool:
    return one.tailnum != other.tailnum or other.departed - one.departed >= CUT


def _trip(part: list[Flight]) -> Trip:
    airports: list[str] = []
    for flight in part:
        for airport in (flight.origin, flight.dest if flight.arrived else flight.origin):
            airports += [airport] if airports[-1:] != [airport] else []
    minutes = sum(flight.in_air or 0 for flight in part)
    first, last = part[0], part[-1]
    return Trip(first.tailnum, first.departed, last.departed + CUT, len(part), tuple(airports), minutes / 60)
