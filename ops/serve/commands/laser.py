"""`penstock serve laser`: serves the latest value of each key of a category over the Redis protocol and HTTP."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Annotated

import typer

from ....processors import ending
from ....transport.kafka import KafkaBus
from ...deploy import PodMemory, RolloutOptions, databases_folder
from ...http import Access, Certificate, allow_open_files, listening_at, url_of
from ...kernel import (
    HAND_OVER,
    HANDED_OVER,
    NOT_SAVED_EFFECT,
    STOP_WITHIN_S,
    Environment,
    ListenAddress,
    LoopMonitor,
    ServerHealth,
    SupervisedOptions,
    Worker,
    assemble_worker,
    pauses,
    prepare,
    serve_health,
    stalls_logged,
    tune_memory,
    worker_identity,
)
from ...shell import (
    BackupEvery,
    BackupLocation,
    BrokerWait,
    Connection,
    FailFast,
    ProtectedHost,
    TlsOptions,
    audited,
    configuration_of,
    exit_within,
    note,
    stop_on_signals,
    with_option_groups,
)
from ..latest import (
    MAX_REPLICAS,
    Cursors,
    DailyTable,
    DeclaredTable,
    LaserServices,
    LatestTable,
    Limits,
    Pairs,
    ServedPairs,
    serving,
)
from .laser_options import LaserRefused, TableOptions
from .laser_tiers import FIRST_PORT, TierOptions, deploy_tables
from .server_deployment import addresses_for
from .server_options import LASER, Deploy, LaserToken, access_to, expect_options_for, port_option


@audited("serve laser", flag="deploy")
@with_option_groups
def laser(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            help="The name of the table.",
            show_default=False,
        ),
    ] = None,
    *,
    table: TableOptions,
    host: ProtectedHost = "127.0.0.1",
    port: Annotated[int | None, port_option(FIRST_PORT, deployed=True)] = None,
    http: Annotated[
        int | None,
        typer.Option(
            "--http",
            metavar="PORT",
            help="Also answer HTTP requests, at this port; 0 for a free one.",
            min=0,
            max=65_535,
            show_default=False,
        ),
    ] = None,
    token_file: LaserToken = None,
    tls: TlsOptions,
    connections: Annotated[int, typer.Option("--connections", help="The most connections at a time.", min=1)] = 1_000,
    backups: BackupLocation,
    backup_every: BackupEvery = 60.0,
    connection: Connection,
    supervised: SupervisedOptions,
    fail_fast: FailFast = False,
    deploy: Deploy = False,
    all_tables: Annotated[
        bool, typer.Option("--all", help="With --deploy: all tables that the configuration declares.")
    ] = False,
    replicas: Annotated[
        int | None,
        typer.Option(
            "--replicas",
            min=1,
            max=MAX_REPLICAS,
            help="With --deploy: the number of servers, 1 by default. Each has all pairs and its own port.",
            show_default=False,
        ),
    ] = None,
    memory: PodMemory = "1Gi",
    rollout: RolloutOptions,
) -> None:
    r"""Serve a table of a category's latest values to Redis clients, until Ctrl-C; with --deploy, on one or several servers that a supervisor keeps running.

    Its processor is called laser.NAME: `penstock status` shows its lag. It answers from saved checkpoints, once it has read all events
    that existed at its start.

    Example: penstock serve laser rankings --app examples/flights/app.py --key carrier --value top --keep 7d

    Each deployed server reads the category for itself, so any of them can be lost. Later calls change them one after the other. A table that the
    configuration declares as \[laser-tables.NAME] needs no options, and `--all` deploys all of these.

    Example: penstock serve laser rankings --key carrier --value top --keep 7d --deploy --replicas 2
    """
    expect_options_for(context, deploy=deploy, here=(), deployed=("all_tables", "replicas", "memory"))
    if deploy:
        rollout.check(f"serve laser {name or '--all'} --deploy")
        addresses = addresses_for(rollout, connection.folder, host, {"redis": port, "http": http})
        access = access_to(LASER, token_file, host)  # a server that refuses to start would be restarted forever
        tiers = TierOptions(
            *(addresses, access, tls, connections, port, http, replicas),
            *(backups.backup, backups.webhdfs, backup_every, memory),
        )
        deploy_tables(context, name, table, tiers, rollout, connection, all_tables=all_tables)
        return
    if name is None:
        raise typer.BadParameter(
            "no table is named. Nothing was started. Name one, or deploy all declared ones with --all --deploy."
        )
    access = access_to(LASER, token_file, host)
    first_port = FIRST_PORT if port is None else port
    where = _Endpoint(host, first_port, http, access, connections, tls.certificate(), supervised.address)
    table = table.or_declared(name, configuration_of(context).named_section(DeclaredTable, name))
    daily = table.daily(name, backups.webhdfs)
    if daily is not None:
        _serve_days(daily, connection.states, where, supervised.number)
        return
    bus = connection.open()
    declared, _ = table.table(name, connection.folder)
    environment = Environment(connection.states, backups.open(), timedelta(seconds=backup_every))
    _serve(declared, bus, environment, where, BrokerWait(fail_fast=fail_fast), supervised.number)


@dataclass(frozen=True)
class _Endpoint:
    """Where and to whom a server answers."""

    host: str
    port: int
    http_port: int | None
    access: Access
    connections: int
    certificate: Certificate | None
    health: ListenAddress | None


def _serve(
    table: LatestTable,
    bus: KafkaBus,
    environment: Environment,
    endpoint: _Endpoint,
    wait: BrokerWait,
    number: int | None,
) -> None:
    monitor, handed_over = LoopMonitor(), Event()
    with (
        exit_within(STOP_WITHIN_S, NOT_SAVED_EFFECT),
        serve_health(endpoint.health, monitor),
        ending(wait(lambda: prepare(table.processor(), bus))) as processor,
        # A process with this number has ended then, and with it its server: the addresses are free.
        assemble_worker(processor, bus, environment, number=number, call_bus=wait) as worker,
        stop_on_signals(worker.stop, pauses(worker, handed_over)),
        stalls_logged(monitor),
    ):
        pairs = wait(lambda: ServedPairs(table, bus))
        tune_memory()

        def publish(worker: Worker) -> bool:
            pairs.publish(worker)
            monitor.record_turn(worker, is_serving=pairs.is_complete)
            return False

        with _answering(table.name, pairs, endpoint):
            worker.run(publish)
    note(f"{table.name}: {worker.metrics}")
    if handed_over.is_set():
        raise typer.Exit(HANDED_OVER)


def _serve_days(table: DailyTable, state: Path, endpoint: _Endpoint, number: int | None) -> None:
    """Serve the newest complete day of a warehouse table, until a signal."""
    from ..latest import DailyPairs  # noqa: PLC0415 - imports Arrow

    name, stopped, handed_over = f"laser.{table.name}", Event(), Event()
    pairs = DailyPairs(table, databases_folder(state, name))

    def hand_over() -> None:
        handed_over.set()
        stopped.set()

    with (
        serve_health(endpoint.health, ServerHealth(lambda: pairs.is_complete)),
        # A process with this number has ended then: the addresses and the databases are free.
        nullcontext() if number is None else worker_identity(state, name, number),
        closing(pairs),
        stop_on_signals(stopped.set, {HAND_OVER: hand_over, signal.SIGUSR1: stopped.set}),
    ):
        pairs.start()
        with _answering(table.name, pairs, endpoint):
            stopped.wait()
    if handed_over.is_set():
        raise typer.Exit(HANDED_OVER)


@contextmanager
def _answering(name: str, pairs: Pairs, endpoint: _Endpoint) -> Iterator[None]:
    """Answer clients during the block."""
    token = None if endpoint.access.token is None else endpoint.access.token.encode()
    services = LaserServices(name, pairs, token, Cursors())
    tls = None if endpoint.certificate is None else endpoint.certificate.context()
    allow_open_files()
    with (
        listening_at(endpoint.host, endpoint.port, "Laser") as listener,
        _answering_http(name, pairs, endpoint),
        serving(services, listener, Limits(endpoint.connections), tls),
    ):
        note(f"Laser table {name} is at {url_of(listener, 'redis' if tls is None else 'rediss')} (Ctrl-C ends it)")
        yield


@contextmanager
def _answering_http(name: str, pairs: Pairs, endpoint: _Endpoint) -> Iterator[None]:
    """Answer HTTP requests during the block, if they are asked for."""
    if endpoint.http_port is None:
        yield
        return
    try:
        from ...http import http_server  # noqa: PLC0415
        from ..latest import create_api  # noqa: PLC0415 - only for this option, and an extra
    except ModuleNotFoundError as error:
        raise LaserRefused(
            f"--http needs the package {error.name}, which is not installed. Nothing was served. Install it with `pip install 'penstock[serve]'`."
        ) from error
    application = create_api(pairs, endpoint.access)
    server = http_server(application, endpoint.certificate)
    with listening_at(endpoint.host, endpoint.http_port, "Laser") as listener:
        thread = Thread(target=server.run, args=([listener],), name="laser-http")
        thread.start()
        try:
            url = url_of(listener, "http" if endpoint.certificate is None else "https")
            note(f"Laser table {name} is at {url}")
            yield
        finally:
            server.should_exit = True
            thread.join()
