"""Options that several commands share, and what they lead to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ...transport.errors import BusError
from ...transport.kafka import KafkaBus, KafkaSettings
from ..local import LocalServices


def _setting(name: str, metavar: str, says: str) -> Any:
    """Make an option that a variable of the environment gives as well."""
    variable = f"PENSTOCK_{name.upper().replace('-', '_')}"
    return typer.Option(f"--{name}", envvar=variable, metavar=metavar, help=says, show_default=False)


Kafka = Annotated[
    str | None, _setting("kafka", "HOST:PORT", "The Kafka cluster; by default the one that `penstock dev up` started.")
]
KafkaConfig = Annotated[
    Path | None,
    _setting("kafka-config", "FILE", "Further settings of librdkafka (SASL, TLS, …), a name=value on each line."),
]
Folder = Annotated[
    Path, typer.Option("--dir", envvar="PENSTOCK_DIR", help="Where local services and state keep their data.")
]
Warehouse = Annotated[
    str | None,
    _setting("warehouse", "LOCATION", "A folder, or hdfs://HOST:PORT/PATH; by default the folder warehouse in --dir."),
]
WebHdfs = Annotated[
    str | None,
    _setting("webhdfs", "URL", "Where WebHDFS answers, for what is kept on HDFS; by default port 9870 of its host."),
]
Backup = Annotated[
    str | None, _setting("backup", "LOCATION", "Where backups are kept: a folder, or hdfs://HOST:PORT/PATH.")
]
Store = Annotated[
    str | None,
    _setting(
        "store",
        "URL",
        "Where remote state is: postgresql://… or redis://… . With a password, give it in the environment variable.",
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
Master = Annotated[str, typer.Option(help="Where Spark runs: local[*], yarn, spark://HOST:PORT, …")]
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


def batch_output_of(location: str | None, folder: Path) -> str:
    """Return the location of the batch's output."""
    return location or str(folder / "backfill")
