"""`penstock laser`: serves the latest value of each key of a category over the Redis protocol and HTTP."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Annotated

import typer

from ...processors.lifecycle import ending
from ...state.files.file_store import open_file_store
from ...transport.kafka import KafkaBus
from ..laser.commands import Cursors, LaserServices
from ..laser.days import DailyTable
from ..laser.declared_table import DeclaredTable
from ..laser.pairs import Pairs
from ..laser.served_pairs import ServedPairs
from ..laser.server import Limits, serving
from ..laser.table import LaserTable
from ..listening import Certificate, allow_open_files, listening_at
from ..worker.app_processes import HANDED_OVER
from ..worker.assembly import Environment, assemble_worker
from ..worker.health import Address, LoopMonitor, ServerHealth
from ..worker.health_server import serve_health
from ..worker.identity import HAND_OVER, worker_identity
from ..worker.memory import tune_memory
from ..worker.preflight import prepare
from ..worker.stall_watch import stalls_logged
from ..worker.worker import Worker
from .laser_deploy import FIRST_PORT, delete_command, deploy_command
from .laser_options import EndpointOptions, LaserRefused, TableOptions
from .option_groups import with_option_groups
from .options import DEFAULT_FOLDER, Backup, BackupEvery, Folder, Kafka, ServerNumber, TlsOptions, WebHdfs, connect
from .output import note
from .root import configuration_of
from .run import NOT_SAVED_EFFECT, STOP_WITHIN_S, pauses
from .signals import exit_within, stop_on_signals
from .waiting import BrokerWait, FailFast

app = typer.Typer(help="Serve the latest value of each key of a category.", no_args_is_help=True)
app.command("deploy")(deploy_command)
app.command("delete")(delete_command)


@app.callback()
def _group() -> None:
    """Serve the latest value of each key of a category."""


@app.command()
@with_option_groups
def serve(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The name of the table.")],
    *,
    table: TableOptions,
    endpoint: EndpointOptions,
    tls: TlsOptions,
    port: Annotated[int, typer.Option("--port", help="The port; 0 for a free one.", min=0, max=65_535)] = FIRST_PORT,
    http: Annotated[
        int | None,
        typer.Option(
            "--http",
            metavar="PORT",
            help="Also answer HTTP requests, at this port.",
            min=0,
            max=65_535,
            show_default=False,
        ),
    ] = None,
    health: Annotated[
        str | None,
        typer.Option(
            "--health",
            metavar="[HOST:]PORT",
            help="Serve the worker's health at /health and /ready.",
            show_default=False,
        ),
    ] = None,
    number: ServerNumber = None,
    backup: Backup = None,
    webhdfs: WebHdfs = None,
    backup_every: BackupEvery = 60.0,
    fail_fast: FailFast = False,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Serve a table of a category's latest values to Redis clients, until Ctrl-C. `penstock laser deploy` keeps it running.

    Its processor is called laser.NAME: `penstock status` shows its lag. It answers from saved checkpoints, once it has read all events
    that existed at its start.

    Example: penstock laser serve rankings --app examples/flights/app.py --key carrier --value top --lifetime 7d
    """
    endpoint.expect_protected()
    address = None if health is None else Address.parse(health)
    where = _Endpoint(endpoint.host, port, http, endpoint.token, endpoint.connections, tls.certificate(), address)
    table = table.or_declared(name, configuration_of(context).named_section(DeclaredTable, name))
    daily = table.daily(name, webhdfs)
    if daily is not None:
        _serve_days(daily, folder / "state", where, number)
        return
    bus = connect(kafka, folder)
    declared, _ = table.table(name, folder)
    backups = open_file_store(backup, webhdfs) if backup else None
    environment = Environment(folder / "state", backups, timedelta(seconds=backup_every))
    _serve(declared, bus, environment, where, BrokerWait(fail_fast=fail_fast), number)


@dataclass(frozen=True)
class _Endpoint:
    """Where and to whom a server answers."""

    host: str
    port: int
    http_port: int | None
    token: str | None = field(repr=False)
    connections: int
    certificate: Certificate | None
    health: Address | None


def _serve(
    table: LaserTable,
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
    from ..laser.daily_pairs import DailyPairs  # noqa: PLC0415 - imports Arrow

    name, stopped, handed_over = f"laser.{table.name}", Event(), Event()
    pairs = DailyPairs(table, state / name / "days")

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
    token = None if endpoint.token is None else endpoint.token.encode()
    services = LaserServices(name, pairs, token, Cursors())
    tls = None if endpoint.certificate is None else endpoint.certificate.context()
    allow_open_files()
    with (
        listening_at(endpoint.host, endpoint.port, "Laser") as listener,
        _answering_http(name, pairs, endpoint),
        serving(services, listener, Limits(endpoint.connections), tls),
    ):
        host, port = listener.getsockname()[:2]
        note(f"Laser table {name} is at {'redis' if tls is None else 'rediss'}://{host}:{port} (Ctrl-C ends it)")
        yield


@contextmanager
def _answering_http(name: str, pairs: Pairs, endpoint: _Endpoint) -> Iterator[None]:
    """Answer HTTP requests during the block, if they are asked for."""
    if endpoint.http_port is None:
        yield
        return
    try:
        from ..laser.http_api import LaserApi  # noqa: PLC0415 - only for this option, and an extra
        from ..serving.access import Access  # noqa: PLC0415
        from ..serving.serving import http_server  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise LaserRefused(
            f"--http needs the package {error.name}, which is not installed. Nothing was served. Install it with `pip install 'penstock[serve]'`."
        ) from error
    application = LaserApi(pairs, Access(endpoint.token))
    server = http_server(application, endpoint.certificate)
    with listening_at(endpoint.host, endpoint.http_port, "Laser") as listener:
        thread = Thread(target=server.run, args=([listener],), name="laser-http")
        thread.start()
        try:
            host, port = listener.getsockname()[:2]
            note(f"Laser table {name} is at {'http' if endpoint.certificate is None else 'https'}://{host}:{port}")
            yield
        finally:
            server.should_exit = True
            thread.join()
