"""`penstock scuba`: keeps the newest events of categories as columns, and answers queries of them."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from ....processors import counted
from ....processors.apps import App, AppName
from ....processors.declare import AnyCategory
from ...http import listening_at, url_of
from ...kernel import HAND_OVER, HANDED_OVER, ListenAddress, ServerHealth, serve_health, worker_identity
from ...shell import (
    BrokerWait,
    Connection,
    FailFast,
    ServerNumber,
    SystemClock,
    TlsOptions,
    note,
    parse_span,
    stop_on_signals,
    with_option_groups,
)
from ..rows import saving
from .scuba_deploy import delete_command, deploy_command, deployment_of
from .scuba_options import DEFAULT_PORT, ScubaEndpoint, StorageOptions, WarehouseOptions, missing, parse_size

if TYPE_CHECKING:  # DuckDB is an extra
    from ..rows import Explorer, NewestEvents

app = typer.Typer(help="Explore the newest events of categories.", no_args_is_help=True)
app.command("deploy")(deploy_command)
app.command("delete")(delete_command)


@app.callback()
def _group() -> None:
    """Explore the newest events of categories."""


@app.command()
@with_option_groups
def serve(
    target: Annotated[str, typer.Argument(metavar="APP", help="An app: a .py or .sql file, or a module.")],
    categories: Annotated[
        list[str] | None,
        typer.Argument(metavar="CATEGORY…", help="Categories of the app; the default is all.", show_default=False),
    ] = None,
    *,
    storage: StorageOptions,
    warehouse: WarehouseOptions,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", help="Keep the rows in this file, for less memory and a quick restart.", show_default=False
        ),
    ] = None,
    endpoint: ScubaEndpoint,
    tls: TlsOptions,
    port: Annotated[int, typer.Option("--port", help="The port; 0 for a free one.", min=0, max=65_535)] = DEFAULT_PORT,
    health: Annotated[
        str | None,
        typer.Option(
            "--health", metavar="[HOST:]PORT", help="Serve the health at /health and /ready.", show_default=False
        ),
    ] = None,
    number: ServerNumber = None,
    connection: Connection,
    fail_fast: FailFast = False,
) -> None:
    """Keep the newest events of categories as columns, and answer queries of them over HTTP, until Ctrl-C. `penstock scuba deploy` keeps it running.

    It reads at most once and best effort, outside of any group: at the start, from the oldest event that --keep covers; with --file, from
    the event after the last one in the file. An event is never in a table twice. `penstock explore` asks queries.

    Example: penstock scuba serve shop.sql views --keep 2h --sample 0.1
    """
    try:
        # Only this command needs the server and DuckDB, which are an extra.
        from ...http import http_server  # noqa: PLC0415
        from ..rows import (  # noqa: PLC0415
            FlatColumns,
            Ingester,
            IngestOptions,
            NewestEvents,
            SampleRate,
            ScubaStore,
            create_site,
        )
    except ModuleNotFoundError as error:
        raise missing(error) from error
    certificate = tls.certificate()
    access = endpoint.access()
    options = IngestOptions(parse_span(storage.keep), SampleRate(storage.sample), parse_size(storage.max_size))
    if not options.keep:
        raise typer.BadParameter("--keep must be greater than zero. Write 30m or 2h.")
    memory_bytes = parse_size(storage.memory)
    if file is None and options.max_bytes > memory_bytes:
        raise typer.BadParameter("--max-size is larger than --memory. Lower it, or keep the rows in a --file.")
    declared = AppName.parse(target).load_declarations()
    chosen = {category.name: category for category in _declared(declared, target, categories or ())}
    tables = {name: (category, FlatColumns(category)) for name, category in chosen.items()}
    bus = connection.open()
    wait = BrokerWait(fail_fast=fail_fast)
    handed_over, started = Event(), list[Ingester]()
    monitor = ServerHealth(
        lambda: any(each.is_current for each in started), lambda: started[0].buckets if started else ()
    )
    with (
        serve_health(None if health is None else ListenAddress.parse(health), monitor),
        # A process with this number has ended then, so the file and the address are free.
        _numbered(connection.folder, next(iter(chosen)), number),
        listening_at(endpoint.host, port, "Scuba") as listener,
    ):
        for name in chosen:
            wait(lambda name=name: bus.catalog.describe(name))  # type: ignore[misc]  # reports a missing category at once
        schemas = {name: columns.schema for name, (_, columns) in tables.items()}
        with (
            closing(ScubaStore(schemas, file, memory_bytes, options.rate)) as store,
            closing(Ingester(tables, bus, store, options)) as ingester,
            ExitStack() as opened,
        ):
            newest = NewestEvents(store, ingester, options.rate, SystemClock())
            explorer = opened.enter_context(_explorer(newest, warehouse, memory_bytes, parse_span(endpoint.timeout)))
            server = http_server(create_site(explorer, access, saving(declared)), certificate)

            def stop() -> None:
                server.should_exit = True

            def hand_over() -> None:
                handed_over.set()
                stop()

            with stop_on_signals(stop, {HAND_OVER: hand_over, signal.SIGUSR1: stop}):
                ingester.start()
                started.append(ingester)
                url = url_of(listener, "http" if certificate is None else "https")
                note(f"{counted(len(chosen), 'table')} at {url} (Ctrl-C ends it): {', '.join(chosen)}")
                server.run(sockets=[listener])
    if handed_over.is_set():
        raise typer.Exit(HANDED_OVER)


@contextmanager
def _explorer(
    newest: NewestEvents, warehouse: WarehouseOptions, memory_bytes: int, timeout: timedelta
) -> Iterator[Explorer]:
    """Yield what answers queries of the newest events, and of the warehouse if there is one."""
    from ..rows import (  # noqa: PLC0415 - as in `serve`
        PREFIX,
        Explorer,
        QueryLimits,
        WarehouseTables,
    )

    limits = QueryLimits(timeout)
    if warehouse.warehouse is None:
        yield Explorer([newest], limits)
        return
    with closing(WarehouseTables(warehouse.warehouse, memory_bytes, PREFIX, warehouse.webhdfs)) as archive:
        yield Explorer([newest, archive], limits)


def _numbered(folder: Path, table: str, number: int | None) -> AbstractContextManager[object]:
    """Return the place of a numbered server, for the time in which it runs."""
    return nullcontext() if number is None else worker_identity(folder / "state", deployment_of(table), number)


def _declared(loaded: App, target: str, names: Sequence[str]) -> list[AnyCategory]:
    declared = loaded.declared_categories()
    for name in names:
        if name not in declared:
            raise typer.BadParameter(f"{target} declares no category {name!r}; it has {', '.join(declared)}.")
    return [declared[name] for name in names] or loaded.categories()
