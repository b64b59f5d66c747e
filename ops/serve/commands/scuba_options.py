"""Options of `penstock serve scuba`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

import typer

from ....processors import PenstockError
from ...shell import OptionGroup, WebHdfs

DEFAULT_PORT = 8740
_UNITS = {"KB": 10, "MB": 20, "GB": 30, "TB": 40}


@dataclass(frozen=True)
class StorageOptions(OptionGroup):
    """What is kept."""

    keep: Annotated[str, typer.Option("--keep", help="How long an event is kept after its arrival, such as 2h.")] = "2h"
    sample: Annotated[
        float, typer.Option("--sample", min=0.000001, max=1.0, help="The share of events to keep, such as 0.1.")
    ] = 1.0
    max_size: Annotated[
        str, typer.Option("--max-size", help="The largest size of all rows; beyond it, the oldest are dropped.")
    ] = "1GB"
    memory: Annotated[str, typer.Option("--memory", help="The most memory for rows and queries together.")] = "2GB"


@dataclass(frozen=True)
class WarehouseOptions(OptionGroup):
    """The warehouse whose tables the server also answers for."""

    warehouse: Annotated[
        str | None,
        typer.Option(
            "--warehouse",
            metavar="LOCATION",
            help="Also answer for all days of this warehouse: a folder, or hdfs://host:port/path.",
            show_default=False,
        ),
    ] = None
    webhdfs: WebHdfs = None


class ScubaMissing(PenstockError):
    """A library of Scuba is not installed: install the extra."""


def missing(error: ModuleNotFoundError) -> ScubaMissing:
    """Return the error about a library that is not installed."""
    return ScubaMissing(
        f"Scuba needs the package {error.name}, which is not installed. Nothing was started. Install it with `pip install 'penstock[scuba]'`."
    )


def parse_size(text: str) -> int:
    """Parse a size such as 500MB or 2GB, as bytes."""
    match = re.fullmatch(r"(\d{1,9})\s*([KMGT]B)", text.strip(), re.IGNORECASE)
    if match is None or match[1].strip("0") == "":
        raise typer.BadParameter(f"{text!r} is not a size. Write 500MB or 2GB.")
    return int(match[1]) << _UNITS[match[2].upper()]
