"""Settings of a run's categories: buckets, codec, times and key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from support.kinds import other_key
from support.subjects import BUCKETS

import penstock as ps

SECOND_CLUSTER = "second"


@dataclass(frozen=True)
class CategorySettings:
    """Settings of categories. By default: two buckets of JSON with the brokers' times, keyed by the field.

    Args:
        buckets: the number of buckets of some categories.
        avro: categories with Avro messages.
        stamped: categories whose messages have their writers' times.
        other_keyed: categories with another key, by a `Repartition`.
        elsewhere: categories on the second cluster.
    """

    buckets: tuple[tuple[str, int], ...] = ()
    avro: frozenset[str] = frozenset()
    stamped: frozenset[str] = frozenset()
    other_keyed: frozenset[str] = frozenset()
    elsewhere: frozenset[str] = frozenset()

    def buckets_of(self, name: str) -> int:
        """Return the number of buckets of a category."""
        return dict(self.buckets).get(name, BUCKETS)

    def category(self, name: str, record: type[ps.Record]) -> ps.Category[ps.Record]:
        """Return the declaration of a category."""
        key: str | Callable[[Any], str] = other_key if name in self.other_keyed else "key"
        time = "hour" if "hour" in record.__struct_fields__ else "at"
        codec = "avro" if name in self.avro else "json"
        cluster = SECOND_CLUSTER if name in self.elsewhere else None
        buckets = self.buckets_of(name)
        return ps.Category(name, record, key=key, event_time=time, buckets=buckets, codec=codec, cluster=cluster)  # type: ignore[arg-type]

    def __str__(self) -> str:
        lines = [f"{name} has {buckets} buckets" for name, buckets in self.buckets]
        lines += [f"{name} is Avro" for name in sorted(self.avro)]
        lines += [f"{name} has its writers' times" for name in sorted(self.stamped)]
        lines += [f"{name} is on the second cluster" for name in sorted(self.elsewhere)]
        return "; ".join(lines)


DEFAULT_SETTINGS = CategorySettings()
"""Two buckets of JSON per category."""
