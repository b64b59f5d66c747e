"""`[laser-tables.NAME]` in the configuration: a table that `penstock serve laser NAME` serves.

[laser-tables.rankings]
key = "carrier"
value = ["top", "flights"]
keep = "7d"
replicas = 2
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...shell import Section

MAX_REPLICAS = 16


class DeclaredTable(Section, frozen=True):
    """The options of the same names, for one table.

    Args:
        key: the columns of the key.
        value: the columns of the value.
        keep: how long after its event time a pair is served, such as 7d.
        category: the category that the pairs come from.
        app: the app that declares the category.
        parquet: the location of a warehouse table.
        replicas: the number of servers.
    """

    key: str | list[str]
    value: str | list[str]
    keep: str | None = None
    category: str | None = None
    app: str | None = None
    parquet: str | None = None
    replicas: Annotated[int, msgspec.Meta(ge=1, le=MAX_REPLICAS)] = 1
