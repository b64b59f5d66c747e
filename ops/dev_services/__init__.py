"""Real services on this machine, for development and tests: Kafka and HDFS, from their own jars, on 127.0.0.1 only.

A folder owns its services: their data, ports and logs are in it, and it outlives the processes that start and stop them.
What has to be fetched is kept in the user's cache folder, for all folders.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from .errors import (
    JarsUnavailableError,
    JavaMissingError,
    JavaTooOldError,
    LocalServiceError,
    ServiceFailedError,
    StateUnreadableError,
    UnknownServiceError,
)
from .hdfs import Hdfs
from .jars import Progress
from .kafka import Kafka
from .lock import exclusive
from .service import ServiceStatus, State

__all__ = [
    "SERVICES",
    "JarsUnavailableError",
    "JavaMissingError",
    "JavaTooOldError",
    "LocalServiceError",
    "LocalServices",
    "Progress",
    "ServiceFailedError",
    "ServiceStatus",
    "State",
    "StateUnreadableError",
    "UnknownServiceError",
    "running_hdfs",
    "running_kafka",
]


class LocalService(Protocol):
    """A service of one folder: `up` and `down` may be repeated and block; `status` may be asked at any time."""

    name: str

    def up(self, progress: Progress) -> ServiceStatus: ...
    def status(self) -> ServiceStatus: ...
    def down(self) -> None: ...


SERVICES: dict[str, Callable[[Path], LocalService]] = {"kafka": Kafka, "hdfs": Hdfs}


class LocalServices:
    """The services of one folder, for any number of processes: only one at a time starts or stops them."""

    def __init__(self, folder: Path) -> None:
        # Absolute, because the services get paths and keep them longer than we keep our working folder.
        self._folder = folder.absolute()

    def up(self, names: Sequence[str], progress: Progress) -> dict[str, ServiceStatus]:
        """Return when all of these answer; those that run already stay.

        After an error or an interrupt, what this call completed stays, and nothing is half started.

        Args:
            names: of `SERVICES`, started in this order.
            progress: gets a line at each step worth telling.

        Raises:
            LocalServiceError: one of them could not be had.
        """
        services = self._named(names)
        with self._exclusive(progress):
            return {service.name: service.up(progress) for service in services}

    def status(self) -> list[ServiceStatus]:
        """Return the status of every service there is, started or not."""
        return [service.status() for service in self._named(SERVICES)]

    def down(self, names: Sequence[str], progress: Progress) -> None:
        """Stop these, in the reverse of this order, keeping their data and ports; those that do not run stay so.

        Raises:
            LocalServiceError: one of them could not be stopped.
        """
        services = self._named(names)
        with self._exclusive(progress):
            for service in reversed(services):
                service.down()

    def _named(self, names: Iterable[str]) -> list[LocalService]:
        unknown = [name for name in names if name not in SERVICES]
        if unknown:
            raise UnknownServiceError(
                f"There is no local service called {' or '.join(unknown)}. Choose among: {', '.join(SERVICES)}."
            )
        return [SERVICES[name](self._folder) for name in names]

    def _exclusive(self, progress: Progress) -> AbstractContextManager[None]:
        return exclusive(
            self._folder / "lock",
            partial(progress, f"another process is starting or stopping services of {self._folder}, waiting for it"),
        )


@contextmanager
def running_kafka(folder: Path, progress: Progress = lambda _: None) -> Iterator[str]:
    """Keep a Kafka running in the block, and give its bootstrap address (`host:port`).

    Raises:
        LocalServiceError: it could not be had.
    """
    with _running("kafka", folder, progress) as endpoints:
        yield endpoints["bootstrap"]


@contextmanager
def running_hdfs(folder: Path, progress: Progress = lambda _: None) -> Iterator[dict[str, str]]:
    """Keep an HDFS running in the block, and give its endpoints: URLs by `rpc` and `webhdfs`.

    Raises:
        LocalServiceError: it could not be had.
    """
    with _running("hdfs", folder, progress) as endpoints:
        yield endpoints


@contextmanager
def _running(name: str, folder: Path, progress: Progress) -> Iterator[dict[str, str]]:
    services = LocalServices(folder)
    # Outside the `try`: a service that this call did not start is not left half started by it either.
    status = services.up([name], progress)[name]
    try:
        yield status.endpoints
    finally:
        services.down([name], progress)
