"""Services and small helpers that several suites share."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from support.browser import Browser, chromium
from support.cli import Cli
from support.databases import postgres, redis_cluster, redis_server
from support.meters import APP
from support.spark_classes import CLASSES, QUICK_JAVA, with_classes

from penstock.ops.start.dev_services.services import running_kafka
from penstock.transport.kafka import KafkaBus, KafkaSettings

__all__ = ["postgres", "redis_cluster", "redis_server"]  # fixtures of all suites

WAIT_LIMIT_S = 240.0
# An example that takes long on a busy machine breaks no promise.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture(scope="session", autouse=True)
def quick_java() -> Iterator[None]:
    """Services and Spark run for minutes here, in which the optimising compiler took a third of a broker's processor time."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in {**QUICK_JAVA, **with_classes(CLASSES)}.items():
            environment.setenv(name, value)
        yield


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """A shell ignores SIGINT in the background processes of a script, and child processes would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def same_path() -> Iterator[None]:
    """Commands put the folders of apps on the import path, where other tests would find their modules."""
    before = list(sys.path)
    yield
    sys.path[:] = before


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real broker for the whole run; its address."""
    with running_kafka(tmp_path_factory.mktemp("kafka")) as bootstrap:
        yield bootstrap


@pytest.fixture
def kafka_bus(kafka: str) -> KafkaBus:
    """A real bus."""
    return KafkaBus(KafkaSettings(kafka))


@pytest.fixture
def wait_until() -> Callable[[Callable[[], bool]], None]:
    """Wait for a condition, with a limit."""

    def wait(condition: Callable[[], bool], limit_s: float = WAIT_LIMIT_S) -> None:
        deadline = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < deadline, f"the condition did not come true within {limit_s:.0f} s"
            time.sleep(0.02)

    return wait


@pytest.fixture
def unique(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A name that no other test uses on the shared bus."""
    return f"{request.node.originalname}.{tmp_path.name}".replace("[", "_").replace("]", "_")[-200:]


@pytest.fixture
def cli(kafka: str, tmp_path: Path) -> Iterator[Cli]:
    """The command line on the shared broker."""
    cli = Cli(kafka, tmp_path)
    yield cli
    cli.end_all()


@pytest.fixture(scope="module")
def opened_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A headless Chromium for the tests of a module."""
    with chromium(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


@pytest.fixture
def browser(opened_browser: Browser) -> Browser:
    """A browser with an empty page, without the complaints of pages whose server ended with their test."""
    opened_browser.show("about:blank")
    opened_browser.complaints()
    return opened_browser


@pytest.fixture
def app(tmp_path: Path, unique: str) -> Path:
    """An app of three processors, on categories of this test alone."""
    path = tmp_path / "app.py"
    path.write_text(APP.replace("{prefix}", unique[-60:]))
    return path


@pytest.fixture
def prefix(unique: str) -> str:
    """The prefix of the names of this test's categories."""
    return unique[-60:]
