"""The stores of the remote-writes benchmark: PostgreSQL and Redis, from the same wheels as in the tests."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from delaying_proxy import delaying_proxy
from support.databases import Postgres, Redis


class Store(NamedTuple):
    """A running store.

    Args:
        url: its address.
        port: its port.
        clear: deletes all data.
    """

    url: str
    port: int
    clear: Callable[[], None]

    @contextmanager
    def reached_after(self, delay_s: float) -> Iterator[str]:
        """Yield the address of the store, or of a proxy with a delay in each direction, which runs in the block."""
        if not delay_s:
            yield self.url
            return
        with delaying_proxy(self.port, delay_s) as port:
            yield self.url.replace(f":{self.port}", f":{port}")


@contextmanager
def stores() -> Iterator[dict[str, Store]]:
    """Run one store of each kind with temporary data in the block, and yield them by name."""
    with tempfile.TemporaryDirectory() as postgres, tempfile.TemporaryDirectory() as redis:
        relational, cache = Postgres(Path(postgres)), Redis(Path(redis))
        try:
            relational.create()
            cache.start()
            yield {
                "PostgreSQL": Store(relational.url, relational.target[1], lambda: _drop_tables(relational)),
                "Redis": Store(cache.url, cache.target[1], lambda: _flush(cache)),
            }
        finally:
            cache.stop()
            relational.stop()


@contextmanager
def redis_store(folder: Path) -> Iterator[int]:
    """Run a Redis in the block that keeps its data in memory only, and yield its port."""
    server = Redis(folder, "--appendonly", "no")
    server.start()
    try:
        yield server.target[1]
    finally:
        server.stop()


def _drop_tables(server: Postgres) -> None:
    with server.session() as session:
        session.execute("DROP TABLE IF EXISTS penstock_shards, penstock_parts")
        # Pending writes of one case must not slow the next one down.
        session.execute("CHECKPOINT")


def _flush(server: Redis) -> None:
    with server.session() as session:
        session.flushall()
