"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, get_origin

import typer

from ....processors import PenstockError
from ....processors.apps import AppName, names_app
from ....processors.declare import AnyCategory, Processor
from ....state.backups import Retention
from ....state.files import FileStore, open_file_store
from ....transport import Bus, BusError, Clusters, SettingsRefused, placement_of
from ....transport.kafka import KafkaBus, KafkaSettings
from ...http import Certificate
from ..config import TomlFile, clusters, configuration_of, kafka_settings, with_place
from ..declared import declared
from ..terminal import parse_span
from .option_groups import OptionGroup


def expect_backups(backup: str | None, *, standby: bool) -> None:
    """Refuse a standby without backups."""
    if standby and backup is None:
        raise typer.BadParameter(
            "--standby copies the backups of other machines, and there is no backup store. Name it with --backup LOCATION."
        )


def _setting(name: str, metavar: str | None, text: str, **options: Any) -> Any:
    """Return an option that can also be set with an environment variable, and in the configuration for all commands."""
    variable = f"PENSTOCK_{name.upper().replace('-', '_')}"
    return typer.Option(f"--{name}", envvar=variable, metavar=metavar, help=text, **{"show_default": False, **options})


class ClusterRefused(PenstockError):
    """A command does not support categories on other clusters than the main one: use it where they are."""


@dataclass(frozen=True)
class KafkaCluster:
    """A Kafka cluster: its address, and client settings from the configuration.

    Args:
        bootstrap: the address; None for the local cluster.
        file: the configuration, with its table of librdkafka's settings.
    """

    bootstrap: str | None = None
    file: TomlFile = field(default_factory=TomlFile)


def _cluster_at(address: object) -> KafkaCluster:
    """Return the cluster at an address, which is a number where a configuration says so by mistake."""
    return KafkaCluster(str(address))


def _with_settings(context: typer.Context, cluster: str | KafkaCluster | None) -> KafkaCluster:
    bootstrap = cluster.bootstrap if isinstance(cluster, KafkaCluster) else cluster
    return KafkaCluster(bootstrap, configuration_of(context).file)


Kafka = Annotated[
    KafkaCluster | None,
    _setting(
        "kafka",
        "HOST:PORT",
        "The Kafka cluster; the default is the local one of `penstock dev up`. Set SASL, TLS and other settings of librdkafka with "
        "kafka-settings in the configuration.",
        parser=_cluster_at,
        callback=_with_settings,
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="NAME",
        help="Another cluster than --kafka: the one of \\[clusters.NAME] in the configuration.",
        show_default=False,
    ),
]
Folder = Annotated[Path, _setting("dir", None, "The folder of local services and state.", show_default=True)]
Warehouse = Annotated[
    str | None,
    _setting(
        "warehouse", "LOCATION", "A folder or hdfs://HOST:PORT/PATH; the default is the folder warehouse in --dir."
    ),
]
WebHdfs = Annotated[
    str | None,
    _setting(
        "webhdfs", "URL", "The address of WebHDFS, for locations on HDFS; the default is port 9870 of the same host."
    ),
]
BackupEvery = Annotated[
    float, _setting("backup-every", "SECONDS", "The interval between backups of a shard.", min=1, show_default=True)
]
BackupHistory = Annotated[
    str | None,
    _setting(
        "backup-history",
        "SPAN",
        "How far back to keep the first backup of each hour (for a day at most) and of each day, beside the newest three: 24h, 30d.",
    ),
]
Standby = Annotated[
    bool,
    _setting(
        "standby",
        None,
        "With --backup: keep copies of the states of other machines, to take over their buckets without a download.",
    ),
]
Backup = Annotated[str | None, _setting("backup", "LOCATION", "The backup store: a folder or hdfs://HOST:PORT/PATH.")]
Store = Annotated[
    str | None,
    _setting(
        "store",
        "URL",
        "The store for remote state: postgresql://… or redis://… . Set a URL with a password in the configuration or the variable.",
    ),
]
ProtectedHost = Annotated[
    str,
    typer.Option("--host", help="The address to listen on. An address that other machines can reach requires a token."),
]


def absolute_location(location: str | None) -> str | None:
    """Return the location of a store for a process with another working directory."""
    return location if location is None or "://" in location else str(Path(location).absolute())


@dataclass(frozen=True)
class TlsOptions(OptionGroup):
    """The certificate of a server."""

    tls_cert: Annotated[
        Path | None,
        typer.Option("--tls-cert", help="Answer over TLS only, with this certificate (PEM).", show_default=False),
    ] = None
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", help="The private key of the certificate (PEM).", show_default=False)
    ] = None

    def certificate(self) -> Certificate | None:
        """Return the certificate; None for a server without TLS.

        Raises:
            AddressUnavailable: the files cannot be read, or do not match.
        """
        if (self.tls_cert is None) != (self.tls_key is None):
            raise typer.BadParameter("--tls-cert and --tls-key need each other. Pass both files.")
        if self.tls_cert is None or self.tls_key is None:
            return None
        certificate = Certificate(self.tls_cert.absolute(), self.tls_key.absolute())
        certificate.context()
        return certificate

    def url(self, scheme: str, host: str, port: int) -> str:
        """Return the address of a server.

        Args:
            scheme: its scheme without TLS.
            host: the value of `--host`.
            port: its port.
        """
        secure = "" if self.certificate() is None else "s"
        return f"{scheme}{secure}://{f'[{host}]' if ':' in host else host}:{port}"

    def paths(self) -> tuple[str, str] | None:
        """Return the absolute paths of the certificate and of its key; None for a server without TLS."""
        certificate = self.certificate()
        return None if certificate is None else (str(certificate.file), str(certificate.key))


StateCacheMib = Annotated[
    int | None,
    _setting(
        "state-cache",
        "MIB",
        "The memory of a worker for decoded states, estimated. More saves CPU when a key returns. The default is a thirty-second of the machine's or "
        "container's memory, from 32 to 256 MiB.",
        min=1,
    ),
]
Traces = Annotated[
    bool,
    _setting(
        "traces",
        None,
        "Export a span for each sampled event to OpenTelemetry (OTLP over HTTP). OTEL_EXPORTER_OTLP_ENDPOINT and the other variables "
        "of OpenTelemetry configure it.",
    ),
]
Target = Annotated[
    str, typer.Argument(metavar="APP[:PROCESSOR]", help="An app, as a file or module, or one processor in it.")
]
OneTarget = Annotated[
    str, typer.Argument(metavar="APP:PROCESSOR", help="One processor in an app, which is a file or module.")
]
First = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="DAY", help="The first day of event time (UTC), such as 2013-01-01.", show_default=False
    ),
]
Last = Annotated[
    str | None, typer.Option("--to", metavar="DAY", help="The last day of event time, included.", show_default=False)
]
OneDay = Annotated[
    str | None,
    typer.Option(
        "--day",
        metavar="DAY",
        help="One day, instead of --from and --to: 2013-01-31, or yesterday.",
        show_default=False,
    ),
]
AllowMissing = Annotated[
    bool,
    typer.Option("--allow-missing", help="Continue although days of the archive are missing or incomplete."),
]
BatchOutput = Annotated[
    str | None,
    typer.Option(
        "--output",
        metavar="LOCATION",
        help="The location of the batch output; the default is the folder backfill in --dir.",
        show_default=False,
    ),
]
Master = Annotated[
    str, _setting("master", None, "The Spark master: local[*], yarn, spark://HOST:PORT, …", show_default=True)
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan and change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
DEFAULT_FOLDER = Path(".penstock")


@dataclass(frozen=True)
class Connection(OptionGroup):
    """The Kafka cluster, and the folder of local services and state."""

    kafka: Kafka = None
    folder: Folder = DEFAULT_FOLDER

    def open(self) -> KafkaBus:
        """Return the bus; see `connect`."""
        return connect(self.kafka, self.folder)

    @property
    def states(self) -> Path:
        """The folder of local states."""
        return self.folder / "state"


@dataclass(frozen=True)
class BackupLocation(OptionGroup):
    """The backup store."""

    backup: Backup = None
    webhdfs: WebHdfs = None

    def open(self) -> FileStore | None:
        """Return the backup store; None if the user names none."""
        return open_file_store(self.backup, self.webhdfs) if self.backup else None

    def run_command(self, target: str) -> str:
        """Return the command that runs a processor with these backups."""
        return f"penstock run {target}" + (f" --backup {self.backup}" if self.backup else "")


def retention_of(history: str | None) -> Retention:
    """Return which backups are kept with an option `--backup-history`."""
    return Retention() if history is None else Retention(history=parse_span(history))


def only_processor(target: str) -> type[Processor]:
    """Return the only processor that a target names.

    Raises:
        BadParameter: the app has several.
    """
    name = AppName.parse(target)
    processors = name.load().processors
    if len(processors) > 1:
        names = ", ".join(processor.__name__ for processor in processors)
        raise typer.BadParameter(
            f"{name} has several processors: {names}. Name one, as {name}:{processors[0].__name__}."
        )
    return processors[0]


def processor_name(target: str | None) -> str | None:
    """Return the name of the processor that a user named by it, by its app if that has no other, or as `app.py:Processor`.

    Raises:
        BadParameter: the app has several.
    """
    return only_processor(target).name if target is not None and names_app(target) else target


def connect(kafka: KafkaCluster | None, folder: Path) -> KafkaBus:
    """Return the bus that the options name, or the local one.

    Raises:
        BusError: no cluster is named, and none runs locally.
        ConfigRefused: a Kafka setting in the configuration is invalid.
    """
    cluster, bootstrap = kafka or KafkaCluster(), address_of(kafka, folder)
    if bootstrap is None:
        raise BusError(
            f"No Kafka cluster is named, and no local one runs in {folder}. Start one with `penstock dev up kafka`, or name yours with --kafka "
            "HOST:PORT, the environment variable PENSTOCK_KAFKA, or kafka in penstock.toml."
        )
    bus = KafkaBus(KafkaSettings(bootstrap, kafka_settings(cluster.file)))
    try:
        bus.catalog  # noqa: B018 - opens the client here, so that an error contains the place of the setting
    except SettingsRefused as error:
        raise with_place(cluster.file, error) from error
    return bus


def _connect_cluster(file: TomlFile, name: str, user: str) -> KafkaBus:
    """Return the bus of a cluster; see `clusters.address_of`.

    Raises:
        ConfigRefused: as in `clusters.address_of`, or the client refuses a setting.
    """
    address, table = clusters.address_of(file, name, user), clusters.settings_keys(name)
    try:
        bus = KafkaBus(KafkaSettings(address, kafka_settings(file, table)))
        bus.catalog  # noqa: B018 - opens the client here, so that an error contains the place of the setting
    except SettingsRefused as error:
        raise with_place(file, error, table) from error
    return bus


def connect_to(cluster: str | None, kafka: KafkaCluster | None, folder: Path) -> KafkaBus:
    """Return the bus of a cluster by its name in the configuration; without a name, the one of `connect`.

    Raises:
        ConfigRefused: the configuration has no such cluster, or a setting of it is invalid.
    """
    if cluster is None:
        return connect(kafka, folder)
    return _connect_cluster((kafka or KafkaCluster()).file, cluster, "--cluster names")


def with_clusters(home: KafkaBus, kafka: KafkaCluster | None, categories: Iterable[AnyCategory]) -> Bus:
    """Return a bus that contains categories on the clusters that they declare; the main cluster if all of them are on it.

    Raises:
        ConfigRefused: the configuration lacks one of the clusters, or a setting of it is invalid.
    """
    placement, file = placement_of(categories), (kafka or KafkaCluster()).file
    if not placement:
        return home
    first_of = {cluster: category for category, cluster in reversed(placement.items())}
    others = {name: _connect_cluster(file, name, f"Category {first_of[name]} is on") for name in sorted(first_of)}
    return Clusters(home, others, placement)


def expect_main_cluster(categories: Iterable[AnyCategory], command: str, advice: str) -> None:
    """Refuse categories on other clusters.

    Args:
        categories: the categories that the command would read or write.
        command: what cannot be done with such a category, after the words "cannot be".
        advice: what to do.

    Raises:
        ClusterRefused: a category is on another cluster.
    """
    for category, cluster in placement_of(categories).items():
        raise ClusterRefused(
            f"Category {category} is on cluster {cluster}, and categories on other clusters than the main one cannot be {command}. Nothing was "
            f"done. {advice}"
        )


def address_of(kafka: KafkaCluster | None, folder: Path) -> str | None:
    """Return the address of the cluster that the options name, or of the local one if its process runs; None without either."""
    if kafka is not None and kafka.bootstrap is not None:
        return kafka.bootstrap
    running: str | None = declared("start.dev_services.services:kafka_address")(folder)
    return running


def warehouse_location(location: str | None, folder: Path) -> str:
    """Return the location of the warehouse."""
    return location or str(folder / "warehouse")


def batch_output_location(location: str | None, folder: Path) -> str:
    """Return the location of the batch's output."""
    return location or str(folder / "backfill")


def shared_settings() -> Any:
    """Return a command with every option of this module that a file may set for all commands."""
    declared = {name: kind for name, kind in globals().items() if get_origin(kind) is Annotated}
    parameters = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in declared.items()
        if any(getattr(option, "envvar", None) for option in kind.__metadata__)
    ]

    def settings(**_: Any) -> None: ...

    settings.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    settings.__annotations__ = {}
    holder = typer.Typer(add_completion=False)
    holder.command()(settings)
    return typer.main.get_command(holder)
