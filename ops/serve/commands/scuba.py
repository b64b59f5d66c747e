"""`penstock serve scuba`: keeps the newest events of categories as columns, and answers queries of them."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from ....processors import counted
from ....processors.apps import AppName
from ....processors.declare import AnyCategory
from ...deploy import RolloutOptions
from ...http import Access, Certificate, listening_at, url_of
from ...kernel import HAND_OVER, HANDED_OVER, ServerHealth, SupervisedOptions, serve_health, worker_identity
from ...shell import (
    BrokerWait,
    Connection,
    FailFast,
    ProtectedHost,
    SystemClock,
    TlsOptions,
    audited,
    note,
    parse_span,
    stop_on_signals,
    with_option_groups,
)
from ..rows import saving
from .scuba_deploy import ScubaServer, deploy_server, deployment_of
from .scuba_options import DEFAULT_PORT, StorageOptions, WarehouseOptions, missing, parse_size
from .server_deployment import addresses_for, categories_and_app
from .server_options import SCUBA, Deploy, ScubaToken, access_to, expect_options_for, port_option

if TYPE_CHECKING:  # DuckDB is an extra
    from ..rows import Explorer, NewestEvents


@audited("serve scuba", flag="deploy")
@with_option_groups
def scuba(
    context: typer.Context,
    categories: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CATEGORY…", help="Categories of one app; with --app, the default is all of it.", show_default=False
        ),
    ] = None,
    *,
    app: Annotated[
        str | None,
        typer.Option(
            "--app",
            help="The app that declares the categories; the default is the app of a deployed processor.",
            show_default=False,
        ),
    ] = None,
    storage: StorageOptions,
    warehouse: WarehouseOptions,
    timeout: Annotated[str, typer.Option("--timeout", help="The longest time of a query.")] = "10s",
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            help="Keep the rows in this file, for less memory and a quick restart; a deployed server always does.",
            show_default=False,
        ),
    ] = None,
    host: ProtectedHost = "127.0.0.1",
    port: Annotated[int | None, port_option(DEFAULT_PORT, deployed=True)] = None,
    token_file: ScubaToken = None,
    tls: TlsOptions,
    connection: Connection,
    supervised: SupervisedOptions,
    fail_fast: FailFast = False,
    deploy: Deploy = False,
    rollout: RolloutOptions,
) -> None:
    """Keep the newest events of categories as columns, and answer queries of them over HTTP, until Ctrl-C; with --deploy, under a supervisor.

    It reads at most once and best effort, outside of any group: at the start, from the oldest event that --keep covers; with --file, from
    the event after the last one in the file. An event is never in a table twice. `penstock explore` asks queries.

    Example: penstock serve scuba views --app shop.sql --keep 2h --sample 0.1
    """
    expect_options_for(context, deploy=deploy, here=("file",), deployed=())
    names, folder = categories or (), connection.folder
    if deploy:
        rollout.check(f"serve scuba {' '.join(names)} --deploy")
        addresses = addresses_for(rollout, folder, host, {"http": port})
        server = ScubaServer(storage, warehouse, timeout, addresses, access_to(SCUBA, token_file, host), tls)
        deploy_server(context, *categories_and_app(app, names, folder), server, rollout, connection)
        return
    access = access_to(SCUBA, token_file, host)
    chosen, declared = categories_and_app(app, names, folder)
    endpoint = _Endpoint(host, DEFAULT_PORT if port is None else port, access, tls.certificate(), parse_span(timeout))
    _serve(
        chosen, declared, storage, warehouse, file, endpoint, connection, supervised, BrokerWait(fail_fast=fail_fast)
    )


@dataclass(frozen=True)
class _Endpoint:
    """Where and to whom the server answers, and for how long."""

    host: str
    port: int
    access: Access
    certificate: Certificate | None
    timeout: timedelta


def _serve(
    categories: Sequence[AnyCategory],
    app: AppName,
    storage: StorageOptions,
    warehouse: WarehouseOptions,
    file: Path | None,
    endpoint: _Endpoint,
    connection: Connection,
    supervised: SupervisedOptions,
    wait: BrokerWait,
) -> None:
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
    options = IngestOptions(parse_span(storage.keep), SampleRate(storage.sample), parse_size(storage.max_size))
    if not options.keep:
        raise typer.BadParameter("--keep must be greater than zero. Write 30m or 2h.")
    memory_bytes = parse_size(storage.memory)
    if file is None and options.max_bytes > memory_bytes:
        raise typer.BadParameter("--max-size is larger than --memory. Lower it, or keep the rows in a --file.")
    tables = {category.name: (category, FlatColumns(category)) for category in categories}
    bus = connection.open()
    handed_over, started = Event(), list[Ingester]()
    monitor = ServerHealth(
        lambda: any(each.is_current for each in started), lambda: started[0].buckets if started else ()
    )
    with (
        serve_health(supervised.address, monitor),
        # A process with this number has ended then, so the file and the address are free.
        _numbered(connection.folder, next(iter(tables)), supervised.number),
        listening_at(endpoint.host, endpoint.port, "Scuba") as listener,
    ):
        for name in tables:
            wait(lambda name=name: bus.catalog.describe(name))  # type: ignore[misc]  # reports a missing category at once
        schemas = {name: columns.schema for name, (_, columns) in tables.items()}
        with (
            closing(ScubaStore(schemas, file, memory_bytes, options.rate)) as store,
            closing(Ingester(tables, bus, store, options)) as ingester,
            ExitStack() as opened,
        ):
            newest = NewestEvents(store, ingester, options.rate, SystemClock())
            explorer = opened.enter_context(_explorer(newest, warehouse, memory_bytes, endpoint.timeout))
            server = http_server(
                create_site(explorer, endpoint.access, saving(app.load_declarations())), endpoint.certificate
            )

            def stop() -> None:
                server.should_exit = True

            def hand_over() -> None:
                handed_over.set()
                stop()

            with stop_on_signals(stop, {HAND_OVER: hand_over, signal.SIGUSR1: stop}):
                ingester.start()
                started.append(ingester)
                url = url_of(listener, "http" if endpoint.certificate is None else "https")
                note(f"{counted(len(tables), 'table')} at {url} (Ctrl-C ends it): {', '.join(tables)}")
                server.run(sockets=[listener])
    if handed_over.is_set():
        raise typer.Exit(HANDED_OVER)


@contextmanager
def _explorer(
    newest: NewestEvents, warehouse: WarehouseOptions, memory_bytes: int, timeout: timedelta
) -> Iterator[Explorer]:
    """Yield what answers queries of the newest events, and of the warehouse if there is one."""
    from ..rows import (  # noqa: PLC0415 - as in `_serve`
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
