"""`penstock backfill`: the same processors in Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from ...backfill.warehouse.warehouse import open_warehouse
from ...processors.declare.apps import AppName
from .batch_progress import batch_progress
from .into_bus import folder_before_bus, into_bus, names_bus
from .into_store import refill
from .options import (
    DEFAULT_FOLDER,
    AllowMissing,
    AsJson,
    First,
    Folder,
    Kafka,
    Master,
    OneDay,
    Store,
    Target,
    Warehouse,
    WebHdfs,
    batch_output_of,
    connect,
    warehouse_of,
)
from .output import as_json, note, table
from .signals import breaking_off
from .times import NOW, days_of

if TYPE_CHECKING:  # Spark is slow to import, and most commands do without
    from ...backfill.run.backfill import NodeResult
    from ...backfill.warehouse.warehouse import Warehouse as Archive
    from ...transport.kafka import KafkaBus

STORE = "store"
_Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        metavar="LOCATION|bus|store",
        help="Where the batch's output goes; by default the folder backfill in --dir. bus (or bus:LOCATION): from there to the processors' "
        "own categories. store: into the aggregator's remote store, in the place of what that has for these days.",
        show_default=False,
    ),
]
_DayOrNow = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="DAY|now",
        help="The last day, itself included; or now: where the archive ends, the rest is read from the bus, up to its end.",
        show_default=False,
    ),
]


class Ordering(Enum):
    """What may be asked for."""

    FITTING = "fitting"
    ARRIVAL = "arrival"
    EVENT_TIME = "event-time"


def parse_input(text: str) -> tuple[str, str]:
    """Return the category, empty for all, and the location that --input names."""
    name, equals, location = text.partition("=")
    if not equals or "/" in name:  # it is within the location
        return "", text
    if not name or not location:
        raise typer.BadParameter(f"{text!r} names no input; write CATEGORY=LOCATION, or LOCATION for all.")
    return name, location


def backfill(
    target: Target,
    first: First = None,
    last: _DayOrNow = None,
    day: OneDay = None,
    output: _Output = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what the output holds already.")] = False,
    order: Annotated[
        Ordering,
        typer.Option("--order", help="In which order the events come of processors whose result depends on it."),
    ] = Ordering.FITTING,
    chained: Annotated[
        bool,
        typer.Option(
            "--chained", help="Give each processor what those before it give in this run, not what is archived of it."
        ),
    ] = False,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="[CATEGORY=]LOCATION",
            help="Take an input, or all, from the output of an earlier backfill and not from the warehouse; may be repeated.",
            show_default=False,
        ),
    ] = None,
    allow_missing: AllowMissing = False,
    master: Master = "local[*]",
    store: Store = None,
    kafka: Kafka = None,
    warehouse: Warehouse = None,
    webhdfs: WebHdfs = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Run processors in Spark, each over its own archived input, for a range of days.

    Example: penstock backfill examples/flights/app.py --from 2013-01-01 --to 2013-01-31
    """
    asked = _Asked(
        AppName.parse(target),
        open_warehouse(warehouse_of(warehouse, folder), webhdfs),
        days_of(first, str(date.max) if last == NOW else last, day),
        master=master,
        order=order,
        chained=chained,
        overwrite=overwrite,
        allow_missing=allow_missing,
        inputs={name: open_warehouse(place, webhdfs) for name, place in map(parse_input, inputs or ())},
        until_now=connect(kafka, folder) if last == NOW else None,
        json=json,
    )
    if output == STORE:
        asked.into_store(connect(kafka, folder), store)
    elif output is not None and names_bus(output):
        asked.into_bus(connect(kafka, folder), folder_before_bus(output, folder), webhdfs)
    else:
        location = batch_output_of(output, folder)
        _tell(asked.computed(location), location, json=json)


@dataclass(frozen=True, kw_only=True)
class _Options:
    """How a backfill is to run; see the options of the command."""

    master: str
    order: Ordering
    chained: bool
    overwrite: bool
    allow_missing: bool
    inputs: Mapping[str, Archive]
    until_now: KafkaBus | None
    json: bool


@dataclass(frozen=True)
class _Asked(_Options):
    """What is to be computed.

    Args:
        app: of whom.
        warehouse: of what.
        days: for when, the first and the last.
    """

    app: AppName
    warehouse: Archive
    days: tuple[date, date]

    def computed(self, location: str) -> list[NodeResult]:
        """Run it into a folder."""
        from ...backfill.run.backfill import (  # noqa: PLC0415 - Spark is slow to import, and most commands do without
            run_backfill,
        )
        from ...backfill.run.plans import Order  # noqa: PLC0415 - as below

        says = "Categories that were complete are published; of all others nothing changed."
        with breaking_off(says), batch_progress() as show:
            return run_backfill(
                self.app,
                self.warehouse,
                first=self.days[0],
                last=self.days[1],
                output=location,
                master=self.master,
                order=None if self.order is Ordering.FITTING else Order(self.order.value),
                chained=self.chained,
                overwrite=self.overwrite,
                until_now=self.until_now,
                allow_missing=self.allow_missing,
                places=self.inputs,
                progress=show,
            )

    def into_bus(self, bus: KafkaBus, location: str, webhdfs: str | None) -> None:
        """Run it into a folder, and send what is there."""
        if self.until_now:
            raise typer.BadParameter(
                "--to now cannot go with --output bus, where it is noted by days what was sent: name the last."
            )

        def compute() -> None:
            results = self.computed(location)
            if not self.json:
                _tell(results, location, json=False)

        into_bus(self.app, bus, location, webhdfs, self.days, compute, json=self.json)

    def into_store(self, bus: KafkaBus, store: str | None) -> None:
        """Put it in the place of what a store has."""
        given = {
            "--to now": self.until_now,
            "--order": self.order is not Ordering.FITTING,
            "--chained": self.chained,
            "--input": self.inputs,
            "--overwrite": self.overwrite,
        }
        unfit = [name for name, is_given in given.items() if is_given]
        if unfit:
            raise typer.BadParameter(
                f"{', '.join(unfit)} cannot go with --output store: values are computed of the archived events that the store has counted, and "
                "replace what it has."
            )
        refill(
            self.app,
            self.warehouse,
            bus,
            store,
            self.days,
            master=self.master,
            allow_missing=self.allow_missing,
            json=self.json,
        )


def _tell(results: Sequence[NodeResult], location: str, *, json: bool) -> None:
    if json:
        as_json([asdict(result) for result in results])
        return
    rows = [(r.processor, r.kind, r.events_in, r.events_out, r.rejected, round(r.seconds, 1)) for r in results]
    table(("processor", "kind", "events in", "out", "set aside", "seconds"), rows)
    for result in results:
        if result.note:
            note(f"{result.processor}: {result.note}.")
    note(f"Written to {location}.")
