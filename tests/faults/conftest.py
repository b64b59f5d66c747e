"""One broker for all fault tests, in however many processes they run: starting one takes longer than a trial."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.ops.local import LocalServices
from penstock.ops.local.lock import exclusive


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[str]:
    """The broker's address; who comes first starts it, who goes last stops it."""
    own = tmp_path_factory.getbasetemp()
    folder = (own if worker_id == "master" else own.parent) / "shared"
    users = folder / "users"
    users.mkdir(parents=True, exist_ok=True)
    services = LocalServices(folder / "services")
    with exclusive(folder / "lock", on_wait=lambda: None):
        (users / worker_id).touch()
        bootstrap = services.up(["kafka"], lambda _: None)["kafka"].endpoints["bootstrap"]
    yield bootstrap
    with exclusive(folder / "lock", on_wait=lambda: None):
        (users / worker_id).unlink()
        if not any(users.iterdir()):
            services.down(["kafka"], lambda _: None)


@pytest.fixture
def unique(unique: str, worker_id: str) -> str:
    """A name that no test of another process uses either."""
    return f"{unique}.{worker_id}"
