"""Fault tests run in several processes that share one broker; files that share another service run one after another.

Starting a service takes longer than a test.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from support.kafka_proxy import KafkaProxy, proxied_kafka
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # the package has no types

from penstock.ops.shell import exclusive
from penstock.ops.start.dev_services.services import LocalServices

SHARING = (
    "test_hdfs_outage.py",
    "test_end_of_transactions.py",
    "test_broker_outage.py",
    "test_large_transactions.py",
    "test_replaced_clients.py",
    "test_resting_workers.py",
    "test_three_brokers.py",
)
"""Files whose tests share an HDFS, a broker behind a proxy, or three brokers."""


class ByService(LoadScopeScheduling):  # type: ignore[misc]  # likewise
    """Assigns all tests of such a file to one process, and each other test to any free process."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if file.endswith(SHARING) else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByService:
    """Select the test scheduler."""
    return ByService(config, log)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[str]:
    """The broker's address; the first process to use it starts it, the last one stops it."""
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


@pytest.fixture(scope="module")
def through_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, KafkaProxy]]:
    """A broker behind a proxy, for all tests of a file: its address and the proxy."""
    with pytest.MonkeyPatch.context() as patch, proxied_kafka(tmp_path_factory.mktemp("proxied"), patch) as running:
        yield running


@pytest.fixture
def proxy(through_proxy: tuple[str, KafkaProxy]) -> Iterator[KafkaProxy]:
    """The proxy, which passes everything on again after the test."""
    yield through_proxy[1]
    through_proxy[1].let_through()


@pytest.fixture(scope="session")
def admin(broker: str) -> AdminClient:
    """A client that deletes categories."""
    return AdminClient({"bootstrap.servers": broker})


@pytest.fixture
def kafka(broker: str, admin: AdminClient, prefix: str) -> Iterator[str]:
    """The broker; categories of a test are deleted after it, since every client requests the metadata of all categories."""
    yield broker
    made = [name for name in admin.list_topics(timeout=30).topics if name.startswith(prefix)]
    for gone in admin.delete_topics(made).values() if made else ():
        gone.result()


@pytest.fixture
def unique(unique: str, worker_id: str) -> str:
    """A name that no test in any process uses."""
    return f"{unique}.{worker_id}"
