"""The stores of the benchmark of remote writes: real PostgreSQL and real Redis, from the same wheels as in the tests."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from support.databases import Postgres, Redis


class Store(NamedTuple):
    """A running store.

    Args:
        url: its address.
        clear: makes it as empty as it was.
    """

    url: str
    clear: Callable[[], None]


@contextmanager
def stores() -> Iterator[dict[str, Store]]:
    """Keep one of each kind running in the block, by name; their data goes with them."""
    with tempfile.TemporaryDirectory() as postgres, tempfile.TemporaryDirectory() as redis:
        relational, cache = Postgres(Path(postgres)), Redis(Path(redis))
        try:
            relational.create()
            cache.start()
            yield {
                "PostgreSQL": Store(relational.url, lambda: _drop_tables(relational)),
                "Redis": Store(cache.url, lambda: _flush(cache)),
            }
        finally:
            cache.stop()
            relational.stop()


def _drop_tables(server: Postgres) -> None:
    with server.session() as session:
        session.execute("DROP TABLE IF EXISTS penstock_shards, penstock_parts")
        # What one way left to be written must not slow the next one down.
        session.execute("CHECKPOINT")


def _flush(server: Redis) -> None:
    with server.session() as session:
        session.flushall()
