"""`penstock category resize`: another number of buckets, with the states of those who read them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...processors.declare.apps import AppName
from ...processors.declare.processor import Processor
from ...state.files.file_store import open_file_store
from ...transport.bus import Bus
from ..maintenance.environment import Around
from ..maintenance.errors import MaintenanceRefused
from ..maintenance.resize import Resize, perform_resize, plan_resize
from .options import DEFAULT_FOLDER, AsJson, Backup, Folder, Kafka, WebHdfs, connect
from .output import as_json, facts, note


def resize(
    name: Annotated[str, typer.Argument(help="The category's name.")],
    buckets: Annotated[int, typer.Argument(help="The new number of buckets; it can only grow.", min=1)],
    apps: Annotated[
        list[Path] | None,
        typer.Option(
            "--app",
            metavar="FILE",
            help="An app that reads or writes it; may be repeated. States of its processors are split by key and go along.",
            show_default=False,
        ),
    ] = None,
    accept_misplaced: Annotated[
        bool,
        typer.Option(
            "--accept-misplaced", help="Finish, also where something was written by the old number meanwhile."
        ),
    ] = False,
    stateless: Annotated[
        bool,
        typer.Option(
            "--stateless", help="In place of --app: nobody who reads it keeps state, so that none is to be taken along."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what it would do.")] = False,
    backup: Backup = None,
    webhdfs: WebHdfs = None,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Give a category more buckets, and take the states of its readers along, so that each key goes on where it was.

    Readers have read all, and neither they nor what writes the category run meanwhile. With --stateless only the buckets are added, and
    later events of a key may live in another bucket than its earlier ones, and than its state; of a category without events, always.

    Example: penstock category resize flights 16 --app examples/flights/app.py
    """
    bus = connect(kafka, folder)
    if not apps:
        if not stateless:
            _expect_empty(bus, name)
        _resize_alone(bus, name, buckets, dry_run=dry_run)
        return
    if stateless:
        raise typer.BadParameter("--stateless is in place of --app: leave one of them out.")
    around = Around(bus, folder / "state", open_file_store(backup, webhdfs) if backup else None)
    processors = [processor for path in apps for processor in AppName(path).load().processors]
    planned = plan_resize(processors, around, name, buckets)
    if not json:
        _show(planned)
    if not dry_run:
        perform_resize(planned, around, accept_misplaced=accept_misplaced)
        if not json:
            note(_then(planned))
    if json:
        as_json(_described(planned, done=not dry_run))


def _expect_empty(bus: Bus, name: str) -> None:
    """Refuse to leave states behind that nobody has said there are none of."""
    if any(bus.catalog.describe(name).ends.values()):
        raise MaintenanceRefused(
            f"{name} has events, and whoever reads it may keep state: that would stay in the buckets in which it is, and its keys' later events "
            "come to others, so that they would be counted anew. Nothing was changed. Name every app that reads or writes it (`--app FILE`), "
            "and states go along; or say that no reader keeps any (`--stateless`)."
        )


def _resize_alone(bus: Bus, name: str, buckets: int, *, dry_run: bool) -> None:
    if dry_run:
        note(
            f"{name} would have {buckets} buckets, and has {bus.catalog.describe(name).spec.buckets}; no state would move."
        )
        return
    bus.catalog.resize(name, buckets)
    note(f"{name} has {buckets} buckets now. Declare the same number in the app before it is started again.")


def _show(planned: Resize) -> None:
    facts(
        {
            "categories": ", ".join(planned.categories),
            "buckets": f"{planned.before}, then {planned.after}",
            "readers": ", ".join(map(_with_state, planned.readers)) or "none",
            "writers": ", ".join(one.__name__ for one in planned.writers) or "none of the app",
            "event time": "goes on exactly"
            if planned.keeps_time
            else f"goes on from the bucket that is furthest behind; a multiple of {planned.before} would keep it as it is",
        }
    )


def _with_state(processor: type[Processor]) -> str:
    return processor.__name__ + ("" if processor.state_shape() is None else " (its states are split)")


def _then(planned: Resize) -> str:
    declared = {
        category.name: category.buckets
        for processor in (*planned.readers, *planned.writers)
        for category in (*processor.inputs(), *processor.outputs())
    }
    behind = [name for name in planned.categories if declared.get(name) != planned.after]
    told = f"{', '.join(planned.categories)}: {planned.after} buckets now."
    if behind:
        told += f" Declare buckets={planned.after} for {', '.join(behind)} before the app is started again."
    return told


def _described(planned: Resize, *, done: bool) -> dict[str, object]:
    return {
        "categories": list(planned.categories),
        "before": planned.before,
        "after": planned.after,
        "readers": [one.name for one in planned.readers],
        "writers": [one.name for one in planned.writers],
        "keeps_time": planned.keeps_time,
        "done": done,
    }
