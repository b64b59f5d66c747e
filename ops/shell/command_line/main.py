"""The command `penstock`, and the output of its errors."""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Sequence
from copy import copy
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer

from ....processors import NotLoadable, PenstockError, file_remedy, user_traceback
from ....transport import has_pending_calls
from ..config import Commands, TomlFile
from ..logs import LogFormat, LogLevel, configure_logging, logs_json
from ..process import ADVICE, raise_limit
from ..terminal import out, print_error
from .root import CONFIG_VARIABLE, Root, commands_of, options_of
from .table import LazyCommands, consequence_without_app, outlines

_OF_THE_MACHINE = frozenset(
    {
        *(errno.EACCES, errno.EDQUOT, errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG),
        *(errno.ENOENT, errno.ENOSPC, errno.ENOTDIR, errno.EPERM, errno.EROFS),
    }
)
"""Errors of the file system that a user can correct."""

_TOO_MANY_FILES = frozenset({errno.EMFILE, errno.ENFILE})
_FULL = frozenset({errno.EDQUOT, errno.ENOSPC})
"""Errors of a full disk, which name no file when the output of a command is redirected to one."""

_BATCH_SIDE = frozenset({"pyspark", "pandas", "pyarrow"})
"""The packages of the extra `spark`, which workers do not need."""


class Penstock(Root):
    """The command `penstock`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = LazyCommands()

    def named_commands(self, file: TomlFile, arguments: Sequence[str]) -> Commands:
        """Return the commands that a command line and a file name. The root also has the options that several commands share."""
        from ..options import shared_settings  # noqa: PLC0415 - slow, and without a file not needed

        found = commands_of(self, {*arguments, *file.values} & self.commands.keys())
        return {**found, (): (*found[()], *options_of(shared_settings()))}

    def invoke(self, ctx: Any) -> Any:
        """Run the command, and add its consequence to the error of an app that cannot be loaded."""
        try:
            return super().invoke(ctx)
        except NotLoadable as error:
            error.consequence = consequence_without_app(ctx.invoked_subcommand)
            raise

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, without the import of all commands."""
        overview = copy(self)
        overview.commands = dict(outlines())
        super(Penstock, overview).format_help(ctx, formatter)


app = typer.Typer(
    cls=Penstock,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(*, requested: bool) -> None:
    if requested:
        from .versions import version_lines  # noqa: PLC0415 - no other command needs the Kafka client here

        for line in version_lines():
            out.print(line, markup=False, soft_wrap=True)
        raise typer.Exit


@app.callback()
def penstock(
    config_file: Annotated[  # noqa: ARG001 - read by Root, before all other options
        Path | None,
        typer.Option(
            "--config",
            envvar=CONFIG_VARIABLE,
            metavar="FILE",
            help="The configuration in TOML; the default is penstock.toml, if it exists. Variables and flags take precedence.",
            show_default=False,
        ),
    ] = None,
    log_format: Annotated[
        LogFormat,
        typer.Option(
            "--log-format", envvar="PENSTOCK_LOG_FORMAT", help="The format of lines on standard error: text or JSON."
        ),
    ] = LogFormat.PRETTY,
    log_level: Annotated[
        LogLevel, typer.Option("--log-level", envvar="PENSTOCK_LOG_LEVEL", help="The lowest level of log lines.")
    ] = LogLevel.WARNING,
    show_version: Annotated[  # noqa: ARG001 - its callback ends the command
        bool,
        typer.Option(
            "--version",
            callback=lambda requested: _show_version(requested=requested),
            is_eager=True,
            help="Show the versions of Penstock, Python and the Kafka client, and the compiled parts, and exit.",
        ),
    ] = False,
) -> None:
    """Stream processors in Python on Kafka that also run, unchanged, as Spark batch jobs."""
    configure_logging(log_format, log_level)
    raise_limit()


def main() -> None:
    """Run the command. An error that users can act on is printed as a paragraph, without a stack trace."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a locale may lack characters of the data
    try:
        _run()
    except SystemExit as end:
        if has_pending_calls():
            # Python does not wait for these threads, and one that returns during shutdown aborts the process.
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(end.code if isinstance(end.code, int) else int(end.code is not None))
        raise


def _run() -> None:
    try:
        app()
    except PenstockError as error:
        cause = error.__cause__
        print_error(str(error), "" if cause is None or isinstance(cause, PenstockError) else user_traceback(cause))
        sys.exit(1)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _BATCH_SIDE:
            raise
        print_error(
            f"This command needs {package}, which is not installed. Install it with `pip install 'penstock-core[spark]'`, and repeat the command. For "
            "commands of the archive, `penstock-core[archive]` suffices."
        )
        sys.exit(1)
    except OSError as error:
        if error.errno in _OF_THE_MACHINE and error.filename is not None:
            advice = file_remedy(error)
        elif error.errno in _TOO_MANY_FILES:
            advice = ADVICE
        elif error.errno in _FULL:
            advice = "A disk is full: the disk of the file to which the output goes, or of --dir. Free some space."
        else:
            raise
        place = "" if error.filename is None else f"{error.filename}: "
        print_error(
            f"{place}{error.strerror}. The command stopped; finished steps remain. {advice} Then run the command again."
        )
        sys.exit(1)
    except Exception:
        if not logs_json():
            raise
        logging.getLogger("penstock").critical("Penstock failed because of a bug.", exc_info=True)
        sys.exit(1)
