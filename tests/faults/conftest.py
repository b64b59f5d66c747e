"""Fault tests in several processes: all share one broker; files that share another service run one after another, beside the rest.

Starting a service takes longer than a trial.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # the package has no types

from penstock.ops.dev_services import LocalServices
from penstock.ops.dev_services.lock import exclusive

SHARING = ("test_hdfs_outage.py", "test_end_of_transactions.py", "test_broker_outage.py", "test_three_brokers.py")
"""The files whose tests share an HDFS, a broker behind a proxy, or three brokers."""


class ByService(LoadScopeScheduling):  # type: ignore[misc]  # likewise
    """Assigns the tests of such a file to one process, and each other test to any free process."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if file.endswith(SHARING) else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByService:
    """Choose how tests are distributed."""
    return ByService(config, log)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[str]:
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


@pytest.fixture(scope="session")
def admin(broker: str) -> AdminClient:
    """What deletes categories."""
    return AdminClient({"bootstrap.servers": broker})


@pytest.fixture
def kafka(broker: str, admin: AdminClient, prefix: str) -> Iterator[str]:
    """The broker; what a test has made there goes with it, since every client asks for all categories that there are."""
    yield broker
    made = [name for name in admin.list_topics(timeout=30).topics if name.startswith(prefix)]
    for gone in admin.delete_topics(made).values() if made else ():
        gone.result()


@pytest.fixture
def unique(unique: str, worker_id: str) -> str:
    """A name that no test of another process uses either."""
    return f"{unique}.{worker_id}"
