"""Options of `penstock serve laser`."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ....processors import PenstockError
from ....processors.apps import AppName, names_app
from ....state.files import open_file_store
from ...shell import OptionGroup, parse_span
from ..latest import DailyTable, DeclaredTable, LatestTable
from .server_deployment import category_and_app


class LaserRefused(PenstockError):
    """Laser cannot be served as asked: install the extra, or correct the options."""


@dataclass(frozen=True)
class TableOptions(OptionGroup):
    """The pairs of a table."""

    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            metavar="COLUMNS",
            help="The columns of the key, such as carrier or carrier,origin.",
            show_default=False,
        ),
    ] = None
    value: Annotated[
        str | None,
        typer.Option(
            "--value",
            metavar="COLUMNS",
            help="The columns of the value; several are a JSON object.",
            show_default=False,
        ),
    ] = None
    keep: Annotated[
        str | None,
        typer.Option(
            "--keep",
            help="How long after its event time a pair is served, such as 7d. The default is forever.",
            show_default=False,
        ),
    ] = None
    category: Annotated[
        str | None,
        typer.Option(
            "--category",
            help="The category that the pairs come from; the default is the one with the table's name.",
            show_default=False,
        ),
    ] = None
    app: Annotated[
        str | None,
        typer.Option(
            "--app",
            help="The app that declares the category; the default is the app of a deployed processor.",
            show_default=False,
        ),
    ] = None

    parquet: Annotated[
        str | None,
        typer.Option(
            "--parquet",
            metavar="LOCATION",
            help="Serve the newest complete day of a warehouse table instead: a folder or hdfs://HOST:PORT/PATH with ds=YYYY-MM-DD/*.parquet.",
            show_default=False,
        ),
    ] = None

    def or_declared(self, name: str, declared: DeclaredTable | None) -> TableOptions:
        """Return the options, and where one is not given, what the configuration declares.

        Args:
            name: the name of the table.
            declared: its table in the configuration; None without one.
        """
        known = {} if declared is None else msgspec.structs.asdict(declared)
        merged = {
            field.name: _text(known.get(field.name)) if given is None else given
            for field in fields(self)
            for given in [getattr(self, field.name)]
        }
        if names_app(name):
            raise typer.BadParameter(
                f"{name} is an app, but the argument is a name for the table, usually the name of its category. Write `NAME --app {name} --key COLUMN "
                "--value COLUMN`."
            )
        if not re.fullmatch(r"[\w.-]+", name, re.ASCII):
            raise typer.BadParameter(
                f"{name!r} cannot be the name of a table, which is part of the names of topics and folders. Use letters, digits, '.', '_' and '-'."
            )
        missing = next((one for one in ("key", "value") if merged[one] is None), None)
        if missing is not None:
            raise typer.BadParameter(
                f"--{missing} is missing: name its columns, or declare the table as [laser-tables.{_toml_key(name)}] in the configuration."
            )
        return TableOptions(**merged)

    def expect_for_all(self) -> None:
        """Expect only options that are for several tables.

        Raises:
            typer.BadParameter: there is another one.
        """
        single = next((field.name for field in fields(self) if field.name != "app" and getattr(self, field.name)), None)
        if single is not None:
            raise typer.BadParameter(
                f"--{single} is for one table, and --all deploys several. Nothing was deployed. Write it into [laser-tables.NAME] of each table, or "
                "name one table."
            )

    def daily(self, name: str, webhdfs: str | None) -> DailyTable | None:
        """Return the table of a warehouse table; None for a category.

        Args:
            name: the name of the table.
            webhdfs: the value of `--webhdfs`.

        Raises:
            BadStoreAddress: the location is incomplete or of another kind.
        """
        if self.parquet is None:
            return None
        if (self.category, self.app, self.keep) != (None, None, None):
            raise typer.BadParameter(
                "--parquet excludes --category, --app and --keep: the pairs come from files, and each day replaces the one before."
            )
        files = open_file_store(self.parquet, webhdfs)
        return DailyTable(name, files, *self.columns())

    def table(self, name: str, folder: Path, category: str | None = None) -> tuple[LatestTable, AppName]:
        """Return the table, and the app that declares its category.

        Args:
            name: the name of the table.
            folder: the value of `--dir`.
            category: the category if none was named.
        """
        declared, app = category_and_app(self.app, self.category or category or name, folder)
        lifetime = None if self.keep is None else parse_span(self.keep)
        return LatestTable(name, declared, *self.columns(), lifetime), app

    def columns(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the columns of the key and of the value."""
        return columns_of(self.key or ""), columns_of(self.value or "")


def _toml_key(name: str) -> str:
    return name if re.fullmatch(r"[\w-]+", name, re.ASCII) else f'"{name}"'


def _text(declared: str | list[str] | None) -> str | None:
    return ",".join(declared) if isinstance(declared, list) else declared


def columns_of(text: str) -> tuple[str, ...]:
    """Return the columns in a list with commas."""
    return tuple(column.strip() for column in text.split(","))
