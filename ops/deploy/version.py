"""A version of a deployment: its code, its settings, and the shape of its state. Immutable."""

from __future__ import annotations

from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from ...processors.apps import AppName
from ...processors.declare import Processor, plan_of

_SCHEMES = {"rediss": "redis", "https": "http"}
"""Schemes without TLS by scheme with TLS."""

DAY_TABLE_OPTION = "--parquet"
"""The option with the location of a warehouse table whose days a server serves."""


class Target(StrEnum):
    """The supervisor that keeps workers running. Only a plan has SYSTEMD: its units are written, and no deployment is stored."""

    LOCAL = "local"
    """supervisord, one per `--dir`."""
    SYSTEMD = "systemd"
    """Units of the system."""
    KUBERNETES = "kubernetes"
    """A StatefulSet."""


class PodSettings(msgspec.Struct, frozen=True):
    """Settings of the pods on Kubernetes. Quantities are in Kubernetes' notation.

    Args:
        image: the container image, with Penstock and the app's dependencies.
        namespace: the namespace; None for the namespace of kubectl's context.
        cpu: the CPU request of a worker.
        memory: the memory request and limit of a worker.
        disk: the size of the volume with a worker's state.
        storage_class: the class of that volume; None for the cluster's default.
    """

    image: str
    namespace: str | None = None
    cpu: str = "500m"
    memory: str = "1Gi"
    disk: str = "10Gi"
    storage_class: str | None = None


class DeploymentSettings(msgspec.Struct, frozen=True):
    """Settings of a deployment's workers. They contain names of environment variables instead of secrets.

    Args:
        kafka: the address of the Kafka cluster.
        folder: the absolute path of `--dir`.
        working_folder: the base of relative paths in the app.
        config: the absolute path of the configuration file; None without one.
        secured: whether the configuration contains Kafka settings, such as credentials.
        backup: the location of the backup store; None without backups.
        webhdfs: the address of WebHDFS; None for the default.
        backup_every_s: the interval between backups of a shard, in seconds.
        backup_history: how far back the first backups of hours and days are kept, such as 30d; None for the newest ones only.
        standby: whether the workers keep copies of the states of other machines.
        variables: the names of the workers' environment variables.
        target: the supervisor of the workers.
        pods: the settings of the pods; None except on Kubernetes.
        traces: whether the workers export spans.
        state_cache_mib: a worker's memory for decoded states, in MiB; None for a share of its memory.
    """

    kafka: str
    folder: str
    working_folder: str
    config: str | None = None
    secured: bool = False
    backup: str | None = None
    webhdfs: str | None = None
    backup_every_s: float = 60.0
    backup_history: str | None = None
    variables: tuple[str, ...] = ()
    target: Target = Target.LOCAL
    pods: PodSettings | None = None
    traces: bool = False
    state_cache_mib: int | None = None
    standby: bool = False


class VersionShape(msgspec.Struct, frozen=True):
    """The shape of a processor's state, and its inputs. A version continues from state of the same shape and inputs only.

    Args:
        state: the type and layout of the saved state; None without state.
        inputs: the number of buckets by category.
        query: the SQL query that the processor works for; empty for a processor in Python. A changed query may keep the state.
    """

    state: str | None
    inputs: dict[str, int]
    query: str = ""

    @staticmethod
    def of(processor: type[Processor]) -> VersionShape:
        """Return the shape of a declared processor."""
        plan = plan_of(processor)
        inputs = {category.name: category.buckets for category in plan.sources}
        return VersionShape(plan.state_shape, inputs, " ".join(processor.sql_query.split()))

    @property
    def buckets(self) -> int:
        """The number of buckets of each input; 0 without inputs."""
        return next(iter(self.inputs.values()), 0)


class DeployedServer(msgspec.Struct, frozen=True):
    """A server that a deployment runs in place of `penstock run`, in one process.

    Args:
        command: the words of `penstock` before the app file, such as serve laser rankings --app.
        options: the words after the app file.
        urls: its addresses.
        has_worker: whether it contains a worker, with a group, state and reports.
        reads_app: whether it reads an app file.
        replica_of: the name that it shares with servers of the same content, such as laser.rankings; empty without others.
        certificate: the absolute paths of its certificate and of the private key; None without TLS.
    """

    command: tuple[str, ...]
    options: tuple[str, ...]
    urls: tuple[str, ...]
    has_worker: bool
    reads_app: bool = True
    replica_of: str = ""
    certificate: tuple[str, str] | None = None

    @property
    def day_table(self) -> str | None:
        """The location of the warehouse table whose days it serves; None without one."""
        return dict(pairwise(self.options)).get(DAY_TABLE_OPTION)

    @property
    def ports(self) -> dict[str, int]:
        """Its ports by the scheme of their URLs without TLS."""
        return {_SCHEMES.get(url.scheme, url.scheme): url.port or 0 for url in map(urlsplit, self.urls)}


class Version(msgspec.Struct, frozen=True):
    """One version of a deployment.

    Args:
        number: its number, from 1.
        name: the processor's name.
        app: the absolute path of the app file.
        app_file: the path of the app file in the folder of the code.
        processor: the name of the processor's class.
        digest: the hash of its code.
        settings: the settings of its workers.
        shape: the shape of its state, and its inputs.
        time_ms: the time of the deployment, in milliseconds since 1970, UTC.
        by: the user who deployed it.
        clone: the name of the clone of the app; empty for the app itself.
        server: the server to run; None for workers of the processor.
    """

    number: int
    name: str
    app: str
    app_file: str
    processor: str
    digest: str
    settings: DeploymentSettings
    shape: VersionShape
    time_ms: int
    by: str
    clone: str = ""
    server: DeployedServer | None = None

    @property
    def reads_app(self) -> bool:
        """Whether its process reads the app file."""
        return self.server is None or self.server.reads_app

    @property
    def replica_of(self) -> str:
        """The name that its server shares with servers of the same content; empty without others, and for workers."""
        return "" if self.server is None else self.server.replica_of

    def app_in(self, code: Path | str) -> AppName:
        """Return the name of its processor in a folder with its code."""
        return AppName(Path(code) / self.app_file, self.processor, self.clone or None)

    def moved(self, folder: str, config: str | None, certificate: tuple[str, str] | None = None) -> Version:
        """Return the version with the paths at which a process elsewhere finds its files.

        Args:
            folder: its folder of states, the value of `--dir`.
            config: its configuration.
            certificate: its certificate and private key, if it has them; None for the same paths.
        """
        server = self.server
        if server is not None:
            states, moved = f"{self.settings.folder}/state/", f"{folder}/state/"
            options = tuple(word.replace(states, moved) for word in server.options)
            paths = server.certificate and (certificate or server.certificate)
            server = replace(server, options=options, certificate=paths)
        return replace(self, settings=replace(self.settings, folder=folder, config=config), server=server)

    @property
    def label(self) -> str:
        """The label of its workers, such as `scorer@3`."""
        return f"{self.name}@{self.number}"

    def is_run_like(self, other: Version) -> bool:
        """Return whether another version has the same code and settings."""
        return (self.app, self.clone, self.processor, self.digest, self.settings, self.server) == (
            other.app,
            other.clone,
            other.processor,
            other.digest,
            other.settings,
            other.server,
        )
