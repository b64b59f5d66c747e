"""The pairs of a table, as servers read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ....processors import PenstockError
from .table import Pair


class NotServed(PenstockError):
    """A process does not serve a bucket yet, or no longer: ask again, or ask another server of the table."""


class Pairs(Protocol):
    """Reads the pairs of a table. For the server's thread; idempotent."""

    @property
    def is_complete(self) -> bool:
        """Whether every key can be answered."""
        ...

    @property
    def day(self) -> str | None:
        """The day that the answers are of, YYYY-MM-DD; None if they follow a category."""
        ...

    @property
    def problem(self) -> str:
        """Why no newer day is served; empty without a reason, and for a category."""
        ...

    @property
    def is_text(self) -> bool:
        """Whether values are texts; otherwise they are JSON."""
        ...

    def fetch(self, keys: Sequence[bytes]) -> list[Pair | None]:
        """Return the pair of each key; None for keys without one, or with an expired one.

        Raises:
            NotServed: one of the keys cannot be answered here.
        """
        ...

    def scan(self, number: int, start: bytes, limit: int) -> tuple[list[bytes], tuple[int, bytes] | None]:
        """Return keys of a bucket from `start` on, and where to go on: a bucket and a key; None after the last bucket.

        Raises:
            NotServed: the bucket is not served here.
        """
        ...

    def remaining_ms(self, pair: Pair) -> int | None:
        """Return the rest of a pair's lifetime; None forever."""
        ...

    def events_behind(self) -> int:
        """Return how many offsets the answers lag behind the end of the category. May wait for Kafka.

        Raises:
            NotServed: a bucket is not served here.
            BusError: Kafka does not answer.
        """
        ...
