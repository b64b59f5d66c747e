"""The stores for remote state, each in turn, and what stands between us and them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from support.databases import Postgres, Redis
from support.proxy import Proxy
from support.stores import Opened, Place


@pytest.fixture(scope="session", params=["postgres", "redis"])
def place(request: pytest.FixtureRequest) -> Place:
    """Each kind of store in turn."""
    if request.param == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        return Place(server.url, server.target, server, b"COMMIT\0")
    redis_server: Redis = request.getfixturevalue("redis_server")
    return Place(redis_server.url, redis_server.target, redis_server, b"*3\r\n$32")


@pytest.fixture(scope="session", params=["postgres", "redis_server", "redis_cluster"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of each kind of store in turn."""
    address: str = request.getfixturevalue(request.param).url
    return address


@pytest.fixture
def proxy(place: Place) -> Iterator[Proxy]:
    """What stands between us and the store."""
    with closing(Proxy(place.target)) as proxy:
        yield proxy


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Opens states until the test ends."""
    with closing(Opened()) as opened:
        yield opened
