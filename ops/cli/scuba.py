"""`penstock scuba`: keeps the newest events of categories as columns, and answers queries of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ...processors.apps.apps import AppName
from ...processors.declare.categories import AnyCategory
from ...processors.errors import PenstockError
from ..humanize import counted
from ..listening import listening_at
from .option_groups import OptionGroup, with_option_groups
from .options import Connection
from .output import note
from .signals import stop_on_signals
from .times import parse_span
from .waiting import BrokerWait, FailFast

app = typer.Typer(help="Explore the newest events of categories.", no_args_is_help=True)
DEFAULT_PORT = 8740
_UNITS = {"KB": 10, "MB": 20, "GB": 30, "TB": 40}


class ScubaMissing(PenstockError):
    """A library of Scuba is not installed: install the extra."""


@app.callback()
def _group() -> None:
    """Explore the newest events of categories."""


@dataclass(frozen=True)
class _Storage(OptionGroup):
    """What is kept, and where."""

    keep: Annotated[str, typer.Option("--keep", help="How long an event is kept after its arrival, such as 2h.")] = "2h"
    sample: Annotated[
        float, typer.Option("--sample", min=0.000001, max=1.0, help="The share of events to keep, such as 0.1.")
    ] = 1.0
    max_size: Annotated[
        str, typer.Option("--max-size", help="The largest size of all rows; beyond it, the oldest are dropped.")
    ] = "1GB"
    memory: Annotated[str, typer.Option("--memory", help="The most memory for rows and queries together.")] = "2GB"
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", help="Keep the rows in this file, for less memory and a quick restart.", show_default=False
        ),
    ] = None


@dataclass(frozen=True)
class _Endpoint(OptionGroup):
    """Where and to whom the server answers."""

    host: Annotated[
        str,
        typer.Option(
            "--host", help="The address to listen on. An address that other machines can reach requires a token."
        ),
    ] = "127.0.0.1"
    port: Annotated[int, typer.Option("--port", help="The port; 0 for a free one.", min=0, max=65_535)] = DEFAULT_PORT
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            envvar="PENSTOCK_SCUBA_TOKEN",
            help="The token of clients. Set it with the environment variable: other users can read command lines.",
            show_default=False,
        ),
    ] = None
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", help="Serve HTTPS with this certificate (PEM).", show_default=False)
    ] = None
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", help="The private key of the certificate (PEM).", show_default=False)
    ] = None
    timeout: Annotated[str, typer.Option("--timeout", help="The longest time of a query.")] = "10s"


@app.command()
@with_option_groups
def serve(
    target: Annotated[str, typer.Argument(metavar="APP", help="An app: a .py or .sql file, or a module.")],
    categories: Annotated[
        list[str] | None,
        typer.Argument(metavar="CATEGORY…", help="Categories of the app; the default is all.", show_default=False),
    ] = None,
    *,
    storage: _Storage,
    endpoint: _Endpoint,
    connection: Connection,
    fail_fast: FailFast = False,
) -> None:
    """Keep the newest events of categories as columns, and answer queries of them over HTTP, until Ctrl-C.

    It reads at most once and best effort, outside of any group: at the start, from the oldest event that --keep covers; with --file, from
    the event after the last one in the file. An event is never in a table twice. `penstock explore` asks queries.

    Example: penstock scuba serve shop.sql views --keep 2h --sample 0.1
    """
    try:
        # Only this command needs the server and DuckDB, which are an extra.
        from ..dashboard.access import Access  # noqa: PLC0415
        from ..scuba.explorer import Explorer, QueryLimits  # noqa: PLC0415
        from ..scuba.flat_columns import FlatColumns  # noqa: PLC0415
        from ..scuba.ingester import Ingester, IngestOptions  # noqa: PLC0415
        from ..scuba.sampling import SampleRate  # noqa: PLC0415
        from ..scuba.site import SCUBA, create_site  # noqa: PLC0415
        from ..scuba.store import ScubaStore  # noqa: PLC0415
        from ..serving.serving import Certificate, http_server  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ScubaMissing(
            f"Scuba needs the package {error.name}, which is not installed. Nothing was started. Install it with `pip install 'penstock[scuba]'`."
        ) from error
    if (endpoint.tls_cert is None) != (endpoint.tls_key is None):
        raise typer.BadParameter("--tls-cert and --tls-key need each other. Pass both files.")
    certificate = Certificate(endpoint.tls_cert, endpoint.tls_key) if endpoint.tls_cert and endpoint.tls_key else None
    access = Access.at(endpoint.host, endpoint.token, SCUBA)
    options = IngestOptions(parse_span(storage.keep), SampleRate(storage.sample), parse_size(storage.max_size))
    if not options.keep:
        raise typer.BadParameter("--keep must be greater than zero. Write 30m or 2h.")
    memory_bytes = parse_size(storage.memory)
    if storage.file is None and options.max_bytes > memory_bytes:
        raise typer.BadParameter("--max-size is larger than --memory. Lower it, or keep the rows in a --file.")
    chosen = {category.name: category for category in _declared(target, categories or ())}
    tables = {name: (category, FlatColumns(category)) for name, category in chosen.items()}
    bus = connection.open()
    wait = BrokerWait(fail_fast=fail_fast)
    with listening_at(endpoint.host, endpoint.port, "Scuba") as listener:
        for name in chosen:
            wait(lambda name=name: bus.catalog.describe(name))  # type: ignore[misc]  # reports a missing category at once
        schemas = {name: columns.schema for name, (_, columns) in tables.items()}
        with (
            closing(ScubaStore(schemas, storage.file, memory_bytes, options.rate)) as store,
            closing(Ingester(tables, bus, store, options)) as ingester,
        ):
            limits = QueryLimits(parse_span(endpoint.timeout))
            server = http_server(create_site(Explorer(store, ingester, options.rate, limits), access), certificate)

            def stop() -> None:
                server.should_exit = True

            with stop_on_signals(stop):
                ingester.start()
                bound_host, bound_port = listener.getsockname()[:2]
                address = f"[{bound_host}]" if ":" in bound_host else bound_host
                scheme = "http" if certificate is None else "https"
                note(
                    f"{counted(len(chosen), 'table')} at {scheme}://{address}:{bound_port} (Ctrl-C ends it): {', '.join(chosen)}"
                )
                server.run(sockets=[listener])


def parse_size(text: str) -> int:
    """Parse a size such as 500MB or 2GB, as bytes."""
    match = re.fullmatch(r"(\d{1,9})\s*([KMGT]B)", text.strip(), re.IGNORECASE)
    if match is None or match[1].strip("0") == "":
        raise typer.BadParameter(f"{text!r} is not a size. Write 500MB or 2GB.")
    return int(match[1]) << _UNITS[match[2].upper()]


def _declared(target: str, names: Sequence[str]) -> list[AnyCategory]:
    declared = {category.name: category for category in AppName.parse(target).load().categories()}
    for name in names:
        if name not in declared:
            raise typer.BadParameter(f"{target} declares no category {name!r}; it has {', '.join(declared)}.")
    return [declared[name] for name in names or declared]
