"""`penstock backfill`: runs processors in Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from ....backfill.warehouse import open_warehouse
from ....processors.apps import AppName
from ...shell import (
    DEFAULT_FOLDER,
    NOW,
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
    audited,
    batch_output_location,
    batch_progress,
    connect,
    interruptible,
    note,
    parse_days,
    print_json,
    print_table,
    warehouse_location,
)
from .backfill_into_store import backfill_store_days
from .stored_backfill import BUS, SINKS, StoredBackfill

if TYPE_CHECKING:  # Spark is slow to import, and most commands do without
    from ....backfill.run import NodeResult
    from ....backfill.warehouse import Warehouse as Archive
    from ....transport.kafka import KafkaBus

STORE = "store"
_Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        metavar="LOCATION|bus|sinks|store",
        help="The destination; the default is the folder backfill in --dir. bus (or bus:LOCATION): the processors' own categories, by way of that "
        "folder. sinks (or sinks:LOCATION): their sinks, likewise. store: the aggregator's remote store, replacing its values of these days.",
        show_default=False,
    ),
]
_DayOrNow = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="DAY|now",
        help="The last day, included; or now, to continue from the end of the archive to the current end of the categories.",
        show_default=False,
    ),
]


class Ordering(Enum):
    """The order of events."""

    AUTO = "auto"
    ARRIVAL = "arrival"
    EVENT_TIME = "event-time"


def parse_input(text: str) -> tuple[str, str]:
    """Return the category, empty for all, and the location that --input names."""
    name, equals, location = text.partition("=")
    if not equals or "/" in name:  # the equals sign is part of the location
        return "", text
    if not name or not location:
        raise typer.BadParameter(f"--input {text!r} is invalid. Write CATEGORY=LOCATION, or LOCATION for all inputs.")
    return name, location


@audited("backfill")
def backfill(
    target: Target,
    first: First = None,
    last: _DayOrNow = None,
    day: OneDay = None,
    output: _Output = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing outputs.")] = False,
    order: Annotated[
        Ordering,
        typer.Option("--order", help="The order of events, for processors whose results depend on it."),
    ] = Ordering.AUTO,
    chained: Annotated[
        bool,
        typer.Option("--chained", help="Feed each processor with the outputs of this run instead of archived events."),
    ] = False,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="[CATEGORY=]LOCATION",
            help="Read an input, or all, from an earlier backfill instead of the warehouse; repeatable.",
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
    """Run processors in Spark over their archived inputs, for a range of days.

    Example: penstock backfill examples/flights/app.py --from 2013-01-01 --to 2013-01-31
    """
    request = _BackfillRequest(
        AppName.parse(target),
        open_warehouse(warehouse_location(warehouse, folder), webhdfs),
        parse_days(first, str(date.max) if last == NOW else last, day),
        master=master,
        order=order,
        chained=chained,
        overwrite=overwrite,
        allow_missing=allow_missing,
        inputs={name: open_warehouse(location, webhdfs) for name, location in map(parse_input, inputs or ())},
        until_now=connect(kafka, folder) if last == NOW else None,
        webhdfs=webhdfs,
        json=json,
    )
    if output == STORE:
        request.into_store(connect(kafka, folder), store)
    elif output is not None and (place := output.partition(":"))[0] in {BUS, SINKS}:
        location = batch_output_location(place[2] or None, folder)
        request.send(place[0], connect(kafka, folder), location)
    else:
        location = batch_output_location(output, folder)
        _show_results(request.compute(location), location, json=json)


@dataclass(frozen=True, kw_only=True)
class _Options:
    """Options of a backfill; see the command."""

    master: str
    order: Ordering
    chained: bool
    overwrite: bool
    allow_missing: bool
    inputs: Mapping[str, Archive]
    until_now: KafkaBus | None
    webhdfs: str | None
    json: bool


@dataclass(frozen=True)
class _BackfillRequest(_Options):
    """A requested backfill.

    Args:
        app: the app and its processors.
        warehouse: the archive.
        days: the first and the last day.
    """

    app: AppName
    warehouse: Archive
    days: tuple[date, date]

    def compute(self, location: str, *, sinks: bool = False) -> list[NodeResult]:
        """Run the batch, and write to a folder; also the rows of sinks, if they are the destination."""
        from ....backfill.run import (  # noqa: PLC0415 - Spark is slow to import, and most commands do without
            Order,
            Written,
            run_backfill,
        )

        effect = "Complete categories are published. All others are unchanged."
        with interruptible(effect), batch_progress() as show:
            return run_backfill(
                self.app,
                self.warehouse,
                first=self.days[0],
                last=self.days[1],
                output=open_warehouse(location, self.webhdfs),
                master=self.master,
                written=Written.ALL if sinks else Written.CATEGORIES,
                order=None if self.order is Ordering.AUTO else Order(self.order.value),
                chained=self.chained,
                overwrite=self.overwrite,
                until_now=self.until_now,
                allow_missing=self.allow_missing,
                places=self.inputs,
                progress=show,
            )

    def send(self, place: str, bus: KafkaBus, location: str) -> None:
        """Run the batch, and send its outputs to the processors' categories (`BUS`) or write the rows of its sinks (`SINKS`)."""
        if self.until_now:
            raise typer.BadParameter(
                f"--to now and --output {place} exclude each other: sent days are recorded. Name the last day."
            )
        compute = partial(self._compute_and_show, location, sinks=place == SINKS)
        stored = StoredBackfill(self.app, bus, location, self.webhdfs, self.days, compute, self.json)
        if place == SINKS:
            stored.into_sinks()
        else:
            stored.into_bus()

    def _compute_and_show(self, location: str, *, sinks: bool) -> None:
        results = self.compute(location, sinks=sinks)
        if not self.json:
            _show_results(results, location, json=False)

    def into_store(self, bus: KafkaBus, store: str | None) -> None:
        """Replace values in a remote store."""
        options = {
            "--to now": self.until_now,
            "--order": self.order is not Ordering.AUTO,
            "--chained": self.chained,
            "--input": self.inputs,
            "--overwrite": self.overwrite,
        }
        conflicts = [name for name, is_given in options.items() if is_given]
        if conflicts:
            raise typer.BadParameter(
                f"{', '.join(conflicts)} and --output store exclude each other: the values are computed from archived events and replace those in the "
                "store."
            )
        backfill_store_days(
            self.app,
            self.warehouse,
            bus,
            store,
            self.days,
            master=self.master,
            allow_missing=self.allow_missing,
            json=self.json,
        )


def _show_results(results: Sequence[NodeResult], location: str, *, json: bool) -> None:
    if json:
        print_json([asdict(result) for result in results])
        return
    rows = [(r.processor, r.kind, r.events_in, r.events_out, r.rejected, round(r.seconds, 1)) for r in results]
    print_table(("processor", "kind", "events in", "out", "set aside", "seconds"), rows)
    for result in results:
        if result.note:
            note(f"{result.processor}: {result.note}.")
    note(f"Written to {location}.")
