"""`penstock archive`: categories into the warehouse."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from ...processors.apps import AppName
from ..preflight import ends_of
from .options import DEFAULT_FOLDER, AsJson, Folder, Kafka, KafkaConfig, Warehouse, WebHdfs, connect, warehouse_of
from .output import as_json, note, progress
from .signals import stopping_on_signals

app = typer.Typer(help="Keep categories in the warehouse, as Parquet by day.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Keep categories in the warehouse, as Parquet by day."""


@app.command()
def run(
    target: Annotated[str, typer.Argument(metavar="APP", help="The app file; every category of it is archived.")],
    only: Annotated[
        list[str] | None, typer.Option("--category", help="Archive just this one; may be repeated.", show_default=False)
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Stop at the end of the categories as they are at the start.")
    ] = False,
    warehouse: Warehouse = None,
    webhdfs: WebHdfs = None,
    kafka: Kafka = None,
    kafka_config: KafkaConfig = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Archive an app's categories to the warehouse as they fill.

    Example: penstock archive run examples/flights/app.py --until-end
    """
    from ...backfill.archiver import Archiver  # noqa: PLC0415 - Arrow is slow to import, and most commands do without
    from ...backfill.warehouse import open_warehouse  # noqa: PLC0415 - as above

    declared = {category.name: category for category in AppName.parse(target).load().categories()}
    for name in only or ():
        if name not in declared:
            raise typer.BadParameter(f"{target} declares no category {name!r}; it has {', '.join(declared)}.")
    categories = [declared[name] for name in only] if only else list(declared.values())
    bus = connect(kafka, kafka_config, folder)
    targets = ends_of(categories, bus)
    location = warehouse_of(warehouse, folder)
    archiver = Archiver(bus, categories, open_warehouse(location, webhdfs))
    with stopping_on_signals(archiver.stop), progress() as bars:
        bar = bars.add_task("archive", total=sum(targets.values()) if until_end else None)

        def finished(archiver: Archiver) -> bool:
            bars.update(bar, completed=archiver.tally.events)
            return until_end and archiver.has_reached(targets)

        archiver.run(finished)
    if json:
        as_json(asdict(archiver.tally))
        return
    tally = archiver.tally
    note(f"Archived {tally.events:,} events to {location} in {tally.files:,} files.")
    if tally.undecodable:
        note(
            f"{tally.undecodable:,} messages do not decode and are not in the warehouse; the bus still has their bytes."
        )
