"""How the categories of a run are kept: in how many buckets, as what, and by whose clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from support.kinds import Hourly, other_key
from support.subjects import BUCKETS

import penstock as ps


@dataclass(frozen=True)
class Manner:
    """Settings of categories. By default: two buckets of JSON with the brokers' times, keyed by the field.

    Args:
        buckets: how many buckets some of them have.
        avro: those whose messages are Avro.
        stamped: those whose messages carry their writers' own times.
        other_keyed: categories with another key, by a `Repartition`.
    """

    buckets: tuple[tuple[str, int], ...] = ()
    avro: frozenset[str] = frozenset()
    stamped: frozenset[str] = frozenset()
    other_keyed: frozenset[str] = frozenset()

    def buckets_of(self, name: str) -> int:
        """Return how many buckets a category has."""
        return dict(self.buckets).get(name, BUCKETS)

    def category(self, name: str, record: type[ps.Record]) -> ps.Category[ps.Record]:
        """Return a category as processors declare it."""
        key: str | Callable[[Any], str] = other_key if name in self.other_keyed else "key"
        time = "hour" if record is Hourly else "at"
        codec = "avro" if name in self.avro else "json"
        return ps.Category(name, record, key=key, event_time=time, buckets=self.buckets_of(name), codec=codec)  # type: ignore[arg-type]

    def __str__(self) -> str:
        told = [f"{name} has {buckets} buckets" for name, buckets in self.buckets]
        told += [f"{name} is Avro" for name in sorted(self.avro)]
        told += [f"{name} has its writers' times" for name in sorted(self.stamped)]
        return "; ".join(told)


USUAL = Manner()
"""Two buckets of JSON each."""
