"""Stores for remote state and file stores; each test runs once per store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.backups import ME, WatchedFileStore, save_checkpoint
from support.databases import Postgres, Redis
from support.proxy import Proxy
from support.stores import Place, StateOpener

from penstock.ops.start.dev_services.services import running_hdfs
from penstock.state.files import FileStore, LocalFileStore, open_file_store
from penstock.state.local import RocksShardState, RocksStateFolder

ON_EACH_FILE_STORE = {"test_backups", "test_file_stores", "test_last_backup"}
"""Modules whose tests `make test` runs on HDFS, too. The others test what is built on the same protocol."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the other tests on HDFS to `make test-exhaustive`."""
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            on_hdfs = item.callspec.params.get("store") == "hdfs"
            if on_hdfs and item.module.__name__ not in ON_EACH_FILE_STORE:
                item.add_marker(pytest.mark.exhaustive)


@pytest.fixture(scope="session", params=["postgres", "redis"])
def place(request: pytest.FixtureRequest) -> Place:
    """Each kind of store."""
    if request.param == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        return Place(server.url, server.target, server, b"COMMIT\0")
    redis_server: Redis = request.getfixturevalue("redis_server")
    return Place(redis_server.url, redis_server.target, redis_server, b"*3\r\n$32")


@pytest.fixture(scope="session", params=["postgres", "redis_server", "redis_cluster"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of each kind of store."""
    address: str = request.getfixturevalue(request.param).url
    return address


@pytest.fixture
def proxy(place: Place) -> Iterator[Proxy]:
    """A proxy between the client and the store."""
    with closing(Proxy(place.target)) as proxy:
        yield proxy


@pytest.fixture
def opened() -> Iterator[StateOpener]:
    """Opens states until the test ends."""
    with closing(StateOpener()) as opened:
        yield opened


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The addresses of a NameNode and a DataNode."""
    with running_hdfs(tmp_path_factory.mktemp("hdfs")) as endpoints:
        yield endpoints


@pytest.fixture(params=["folder", "hdfs"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> FileStore:
    """An empty file store of each persistent kind."""
    if request.param == "folder":
        return LocalFileStore(tmp_path / "store")
    endpoints = request.getfixturevalue("hdfs")
    return open_file_store(f"{endpoints['rpc']}/{tmp_path.name}", endpoints["webhdfs"])


@pytest.fixture
def watched(tmp_path: Path) -> WatchedFileStore:
    """A watched folder."""
    return WatchedFileStore(LocalFileStore(tmp_path / "store"))


@pytest.fixture
def state(tmp_path: Path) -> Iterator[RocksShardState]:
    """An open state with one checkpoint."""
    state = RocksStateFolder(tmp_path / "state").open(ME)
    save_checkpoint(state, 0)
    yield state
    state.close()
