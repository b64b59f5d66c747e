"""The command `penstock`, and how its errors are shown."""

from __future__ import annotations

import logging
import sys

import typer

from ...processors.errors import PenstockError
from . import archiving, backfilling, bootstrapping, categories, comparing, dev, event_time, querying, running, states
from .output import complain

app = typer.Typer(
    help="Stream processors in Python on Kafka that also run, unchanged, as Spark batch jobs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.add_typer(dev.app, name="dev")
app.add_typer(categories.app, name="category")
app.add_typer(archiving.app, name="archive")
app.add_typer(states.app, name="state")
app.add_typer(event_time.app, name="watermark")
app.command("status")(event_time.status)
app.command("run")(running.run)
app.command("backfill")(backfilling.backfill)
app.command("bootstrap")(bootstrapping.bootstrap)
app.command("compare")(comparing.compare)
app.command("query")(querying.query)


def main() -> None:
    """Run the command; an error that the user can act on is a paragraph and an exit code, never a stack trace."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    try:
        app()
    except PenstockError as error:
        complain(str(error))
        sys.exit(1)
