"""The services of one folder: started, stopped, and in contexts of tests."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from ...shell import ReportStep, exclusive
from .errors import (
    UnknownServiceError,
)
from .service import ServiceStatus


class LocalService(Protocol):
    """A service of one folder. `up` and `down` block and are idempotent; `status` is always allowed."""

    name: str

    def up(self, progress: ReportStep) -> ServiceStatus:
        """Start the service, and return its status when it answers."""
        ...

    def status(self) -> ServiceStatus:
        """Return its status."""
        ...

    def down(self) -> None:
        """Stop the service."""
        ...


def _kafka(folder: Path) -> LocalService:
    from .kafka import KafkaService  # noqa: PLC0415 - few commands start services

    return KafkaService(folder)


def _hdfs(folder: Path) -> LocalService:
    from .hdfs import HdfsService  # noqa: PLC0415 - as above

    return HdfsService(folder)


SERVICES: dict[str, Callable[[Path], LocalService]] = {"kafka": _kafka, "hdfs": _hdfs}


class LocalServices:
    """The services of one folder. A lock ensures that only one process at a time starts or stops them."""

    def __init__(self, folder: Path) -> None:
        # Absolute, because the services store the paths, and the working folder of this process may change.
        self._folder = folder.absolute()

    def up(self, names: Sequence[str], progress: ReportStep) -> dict[str, ServiceStatus]:
        """Start services, and return their status when all of them answer. Running services continue.

        After an error or an interrupt, completed services keep running, and no service remains partially started.

        Args:
            names: keys of `SERVICES`, in the order of their start.
            progress: receives a line per step.

        Raises:
            LocalServiceError: a service could not be started.
        """
        services = self._named(names)
        with self._exclusive(progress):
            return {service.name: service.up(progress) for service in services}

    def status(self) -> list[ServiceStatus]:
        """Return the status of all services, also of stopped ones."""
        return [service.status() for service in self._named(SERVICES)]

    def down(self, names: Sequence[str], progress: ReportStep) -> None:
        """Stop services in the reverse order. They keep their data and ports.

        Raises:
            LocalServiceError: a service could not be stopped.
        """
        services = self._named(names)
        with self._exclusive(progress):
            for service in reversed(services):
                service.down()

    def _named(self, names: Iterable[str]) -> list[LocalService]:
        unknown = [name for name in names if name not in SERVICES]
        if unknown:
            raise UnknownServiceError(
                f"Unknown local service: {', '.join(unknown)}. Nothing was changed. Choose from {', '.join(SERVICES)}."
            )
        return [SERVICES[name](self._folder) for name in names]

    def _exclusive(self, progress: ReportStep) -> AbstractContextManager[None]:
        return exclusive(
            self._folder / "lock",
            partial(progress, f"waiting for another process that starts or stops services of {self._folder}"),
        )


def kafka_address(folder: Path) -> str | None:
    """Return the address of a folder's Kafka if its process runs, also while it does not answer; else None."""
    from .kafka import KafkaService  # noqa: PLC0415 - as above

    return KafkaService(folder).running_address()


@contextmanager
def running_kafka(folder: Path, progress: ReportStep = lambda _: None) -> Iterator[str]:
    """Run Kafka within the context, and yield its bootstrap address (`host:port`).

    Raises:
        LocalServiceError: Kafka could not be started.
    """
    with _running("kafka", folder, progress) as endpoints:
        yield endpoints["bootstrap"]


@contextmanager
def running_hdfs(folder: Path, progress: ReportStep = lambda _: None) -> Iterator[dict[str, str]]:
    """Run HDFS within the context, and yield its endpoints: the URLs `rpc` and `webhdfs`.

    Raises:
        LocalServiceError: HDFS could not be started.
    """
    with _running("hdfs", folder, progress) as endpoints:
        yield endpoints


@contextmanager
def _running(name: str, folder: Path, progress: ReportStep) -> Iterator[dict[str, str]]:
    services = LocalServices(folder)
    # Outside the `try`, because a failed `up` already stops what it started.
    status = services.up([name], progress)[name]
    try:
        yield status.endpoints
    finally:
        services.down([name], progress)
