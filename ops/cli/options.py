"""Options that several commands share, and what they lead to."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from ...transport.errors import BusError, SettingsRefused
from ...transport.kafka import KafkaBus, KafkaSettings
from ..config.kafka_settings import explained, kafka_settings
from ..config.toml_file import TomlFile
from ..dev_services import LocalServices
from .root import configuration_of


def _setting(name: str, metavar: str | None, says: str, **how: Any) -> Any:
    """Make an option that a variable of the environment gives as well, and the configuration's file for all commands that have it."""
    variable = f"PENSTOCK_{name.upper().replace('-', '_')}"
    return typer.Option(f"--{name}", envvar=variable, metavar=metavar, help=says, **{"show_default": False, **how})


@dataclass(frozen=True)
class Cluster:
    """A Kafka cluster as it is named: by an address, and by what the configuration passes on to the client.

    Args:
        bootstrap: the address; None for the local one.
        file: the configuration, with its table of librdkafka's settings.
    """

    bootstrap: str | None = None
    file: TomlFile = field(default_factory=TomlFile)


def _with_settings(context: typer.Context, named: str | Cluster | None) -> Cluster:
    bootstrap = named.bootstrap if isinstance(named, Cluster) else named
    return Cluster(bootstrap, configuration_of(context).file)


Kafka = Annotated[
    Cluster | None,
    _setting(
        "kafka",
        "HOST:PORT",
        "The Kafka cluster; by default the one that `penstock dev up` started. SASL, TLS and other settings of librdkafka: "
        "kafka-settings in the configuration.",
        parser=Cluster,
        callback=_with_settings,
    ),
]
Folder = Annotated[Path, _setting("dir", None, "Where local services and state keep their data.", show_default=True)]
Warehouse = Annotated[
    str | None,
    _setting("warehouse", "LOCATION", "A folder, or hdfs://HOST:PORT/PATH; by default the folder warehouse in --dir."),
]
WebHdfs = Annotated[
    str | None,
    _setting("webhdfs", "URL", "Where WebHDFS answers, for what is kept on HDFS; by default port 9870 of its host."),
]
BackupEvery = Annotated[
    float, _setting("backup-every", "SECONDS", "How often a shard's state is backed up.", min=1, show_default=True)
]
Backup = Annotated[
    str | None, _setting("backup", "LOCATION", "Where backups are kept: a folder, or hdfs://HOST:PORT/PATH.")
]
Store = Annotated[
    str | None,
    _setting(
        "store",
        "URL",
        "Where remote state is: postgresql://… or redis://… . With a password, give it in the configuration or in the variable.",
    ),
]
Target = Annotated[str, typer.Argument(metavar="APP[:PROCESSOR]", help="An app file, or one processor of it.")]
First = Annotated[
    str | None,
    typer.Option("--from", metavar="DAY", help="The first day of event time (UTC), as 2013-01-01.", show_default=False),
]
Last = Annotated[
    str | None, typer.Option("--to", metavar="DAY", help="The last day, itself included.", show_default=False)
]
OneDay = Annotated[
    str | None,
    typer.Option(
        "--day", metavar="DAY", help="One day instead of --from and --to: 2013-01-31, or yesterday.", show_default=False
    ),
]
AllowMissing = Annotated[
    bool,
    typer.Option(
        "--allow-missing", help="Also where days of the archive are missing, or not complete though later ones are."
    ),
]
BatchOutput = Annotated[
    str | None,
    typer.Option(
        "--output",
        metavar="LOCATION",
        help="Where the batch's output is; by default the folder backfill in --dir.",
        show_default=False,
    ),
]
Master = Annotated[
    str, _setting("master", None, "Where Spark runs: local[*], yarn, spark://HOST:PORT, …", show_default=True)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
DEFAULT_FOLDER = Path(".penstock")


def connect(kafka: Cluster | None, folder: Path) -> KafkaBus:
    """Return the bus that the options name, or the local one.

    Raises:
        BusError: no bus is named and none runs here.
        ConfigRefused: the configuration's settings of Kafka cannot be.
    """
    cluster = kafka or Cluster()
    bus = KafkaBus(KafkaSettings(cluster.bootstrap or _local_kafka(folder), kafka_settings(cluster.file)))
    try:
        bus.catalog  # noqa: B018 - opened here, where it is known where settings stand
    except SettingsRefused as error:
        raise explained(cluster.file, error) from error
    return bus


def _local_kafka(folder: Path) -> str:
    for service in LocalServices(folder).status():
        if service.name == "kafka" and service.state == "running":
            return service.endpoints["bootstrap"]
    raise BusError(
        f"No Kafka is named and none runs in {folder}. Start a local one with `penstock dev up kafka`, or name yours with "
        "--kafka HOST:PORT, the environment variable PENSTOCK_KAFKA, or kafka in penstock.toml."
    )


def warehouse_of(location: str | None, folder: Path) -> str:
    """Return the location of the warehouse."""
    return location or str(folder / "warehouse")


def batch_output_of(location: str | None, folder: Path) -> str:
    """Return the location of the batch's output."""
    return location or str(folder / "backfill")
