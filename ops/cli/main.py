"""The command `penstock`, and how its errors are shown."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ...processors.errors import PenstockError
from ...transport.kafka.bounded_calls import has_pending_calls
from ..logs.setting_up import LogFormat, LogLevel, in_json, set_up
from . import (
    alerting,
    archiving,
    autoscaling,
    backfilling,
    bootstrapping,
    categories,
    comparing,
    configuring,
    dashboard,
    deploying,
    dev,
    event_time,
    metering,
    migrating,
    querying,
    replaying,
    resetting,
    running,
    states,
    watching,
)
from .output import complain
from .root import CONFIG_VARIABLE, Root

app = typer.Typer(
    cls=Root,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.add_typer(dev.app, name="dev")
app.add_typer(categories.app, name="category")
app.add_typer(archiving.app, name="archive")
states.app.command("migrate")(migrating.migrate)
app.add_typer(states.app, name="state")
app.add_typer(event_time.app, name="watermark")
app.add_typer(configuring.app, name="config")
app.add_typer(alerting.app, name="alerts")
app.command("status")(watching.status)
app.command("graph")(watching.graph)
app.command("metrics")(metering.metrics)
app.command("dashboard")(dashboard.dashboard)
app.command("run")(running.run)
app.command("deploy")(deploying.deploy)
app.command("undeploy")(deploying.undeploy)
app.command("deployments")(deploying.list_deployments)
app.command("rollback")(deploying.rollback)
app.command("scale")(deploying.scale)
app.command("autoscale")(autoscaling.autoscale)
app.command("reset")(resetting.reset)
app.command("backfill")(backfilling.backfill)
app.command("bootstrap")(bootstrapping.bootstrap)
app.command("compare")(comparing.compare)
app.command("query")(querying.query)
app.command("replay")(replaying.replay)


@app.callback()
def penstock(
    config_file: Annotated[  # noqa: ARG001 - read before anything else is; see Root
        Path | None,
        typer.Option(
            "--config",
            envvar=CONFIG_VARIABLE,
            metavar="FILE",
            help="The configuration, in TOML; by default penstock.toml, where there is one. Variables and flags go before it.",
            show_default=False,
        ),
    ] = None,
    log_format: Annotated[
        LogFormat,
        typer.Option(
            "--log-format", envvar="PENSTOCK_LOG_FORMAT", help="Lines on standard error: for people, or JSON."
        ),
    ] = LogFormat.PRETTY,
    log_level: Annotated[
        LogLevel, typer.Option("--log-level", envvar="PENSTOCK_LOG_LEVEL", help="Which lines: from this weight on.")
    ] = LogLevel.WARNING,
) -> None:
    """Stream processors in Python on Kafka that also run, unchanged, as Spark batch jobs."""
    set_up(log_format, log_level)


def main() -> None:
    """Run the command; an error that the user can act on is a paragraph and an exit code, never a stack trace."""
    try:
        _run()
    except SystemExit as ended:
        if has_pending_calls():
            # Python waits for no such thread, and one that comes back while Python is taken down aborts the process.
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(ended.code if isinstance(ended.code, int) else int(ended.code is not None))
        raise


def _run() -> None:
    try:
        app()
    except PenstockError as error:
        complain(str(error))
        sys.exit(1)
    except Exception:
        if not in_json():
            raise
        logging.getLogger("penstock").critical("Penstock failed, which is a mistake of its own.", exc_info=True)
        sys.exit(1)
