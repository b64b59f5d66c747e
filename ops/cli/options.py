"""Options that several commands share, and what they lead to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...transport.errors import BusError
from ...transport.kafka import KafkaBus, KafkaSettings
from ..local import LocalServices

Kafka = Annotated[
    str | None,
    typer.Option(
        "--kafka",
        envvar="PENSTOCK_KAFKA",
        metavar="HOST:PORT",
        help="The Kafka cluster; by default the one that `penstock dev up` started.",
        show_default=False,
    ),
]
KafkaConfig = Annotated[
    Path | None,
    typer.Option(
        "--kafka-config",
        envvar="PENSTOCK_KAFKA_CONFIG",
        metavar="FILE",
        help="Further settings of librdkafka (SASL, TLS, …), a name=value on each line.",
        show_default=False,
    ),
]
Folder = Annotated[
    Path, typer.Option("--dir", envvar="PENSTOCK_DIR", help="Where local services and state keep their data.")
]
Warehouse = Annotated[
    str | None,
    typer.Option(
        "--warehouse",
        envvar="PENSTOCK_WAREHOUSE",
        metavar="LOCATION",
        help="A folder, or hdfs://HOST:PORT/PATH; by default the folder warehouse in --dir.",
        show_default=False,
    ),
]
WebHdfs = Annotated[
    str | None,
    typer.Option(
        "--webhdfs",
        envvar="PENSTOCK_WEBHDFS",
        metavar="URL",
        help="Where WebHDFS answers, for what is kept on HDFS; by default port 9870 of its host.",
        show_default=False,
    ),
]
Backup = Annotated[
    str | None,
    typer.Option(
        "--backup",
        envvar="PENSTOCK_BACKUP",
        metavar="LOCATION",
        help="Where backups are kept: a folder, or hdfs://HOST:PORT/PATH.",
        show_default=False,
    ),
]
Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="PENSTOCK_STORE",
        metavar="URL",
        help="Where remote state is: postgresql://… or redis://… . With a password, give it in the environment variable.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
DEFAULT_FOLDER = Path(".penstock")


def connect(kafka: str | None, config: Path | None, folder: Path) -> KafkaBus:
    """Return the bus that the options name, or the local one."""
    return KafkaBus(KafkaSettings.from_file(kafka or _local_kafka(folder), config))


def _local_kafka(folder: Path) -> str:
    for service in LocalServices(folder).status():
        if service.name == "kafka" and service.state == "running":
            return service.endpoints["bootstrap"]
    raise BusError(
        f"No Kafka is named and none runs in {folder}. Start a local one with `penstock dev up kafka`, or name yours with "
        "--kafka HOST:PORT or the environment variable PENSTOCK_KAFKA."
    )


def warehouse_of(location: str | None, folder: Path) -> str:
    """Return the location of the warehouse."""
    return location or str(folder / "warehouse")
