"""`penstock laser`: serves the latest value of each key of a category over the Redis protocol."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated

import typer

from ...processors.apps.apps import AppName
from ...processors.declare.categories import AnyCategory
from ...processors.errors import PenstockError
from ...processors.lifecycle import ending
from ...state.files.file_store import open_file_store
from ...transport.kafka import KafkaBus
from ..laser.served_pairs import ServedPairs
from ..laser.table import LaserTable
from ..listening import is_loopback, listening_at
from ..worker.assembly import Environment, assemble_worker, tune_gc
from ..worker.health import Address, LoopMonitor, serve_health
from ..worker.preflight import prepare
from ..worker.stall_watch import stalls_logged
from ..worker.worker import Worker
from .options import DEFAULT_FOLDER, Backup, BackupEvery, Folder, Kafka, WebHdfs, connect, expect_main_cluster
from .output import note
from .run import NOT_SAVED_EFFECT, STOP_WITHIN_S
from .signals import exit_within, stop_on_signals
from .times import parse_span
from .waiting import BrokerWait, FailFast

app = typer.Typer(help="Serve the latest value of each key of a category.", no_args_is_help=True)
DEFAULT_PORT = 8720
MIN_TOKEN_LENGTH = 16
"""The shortest token, in characters."""


class LaserRefused(PenstockError):
    """Laser cannot be served as asked: install the extra, or correct the options."""


@app.callback()
def _group() -> None:
    """Serve the latest value of each key of a category."""


@app.command()
def serve(
    name: Annotated[str, typer.Argument(help="The name of the table.")],
    category: Annotated[str, typer.Option("--category", help="The category that the pairs come from.")],
    app_file: Annotated[str, typer.Option("--app", help="The app that declares the category.")],
    key: Annotated[
        str, typer.Option("--key", metavar="COLUMNS", help="The columns of the key, such as carrier or carrier,origin.")
    ],
    value: Annotated[
        str, typer.Option("--value", metavar="COLUMNS", help="The columns of the value; several are a JSON object.")
    ],
    lifetime: Annotated[
        str | None,
        typer.Option(
            help="How long after its event time a pair is served, such as 7d. The default is forever.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on. An address that other machines can reach requires a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 for a free one.", min=0, max=65_535)] = DEFAULT_PORT,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="PENSTOCK_LASER_TOKEN",
            help="The password of AUTH. Set it with the environment variable: other users can read command lines.",
            show_default=False,
        ),
    ] = None,
    connections: Annotated[int, typer.Option(help="The most connections at a time.", min=1)] = 1_000,
    health: Annotated[
        str | None,
        typer.Option(
            "--health",
            metavar="[HOST:]PORT",
            help="Serve the worker's health at /health and /ready.",
            show_default=False,
        ),
    ] = None,
    backup: Backup = None,
    webhdfs: WebHdfs = None,
    backup_every: BackupEvery = 60.0,
    fail_fast: FailFast = False,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Serve a table of a category's latest values to Redis clients, until Ctrl-C.

    Its processor is called laser.NAME: `penstock status` shows its lag. It answers from saved checkpoints, once it has read all events
    that existed at its start.

    Example: penstock laser serve rankings --app examples/flights/app.py --category rankings --key carrier --value top --lifetime 7d
    """
    _expect_protected(host, token)
    bus = connect(kafka, folder)
    table = LaserTable(
        name,
        _declared(app_file, category),
        _columns(key),
        _columns(value),
        None if lifetime is None else parse_span(lifetime),
    )
    backups = open_file_store(backup, webhdfs) if backup else None
    environment = Environment(folder / "state", backups, timedelta(seconds=backup_every))
    _serve(
        table,
        bus,
        environment,
        _Endpoint(host, port, token, connections, None if health is None else Address.parse(health)),
        BrokerWait(fail_fast=fail_fast),
    )


@dataclass(frozen=True)
class _Endpoint:
    """Where and to whom a server answers."""

    host: str
    port: int
    token: str | None = field(repr=False)
    connections: int
    health: Address | None


def _serve(table: LaserTable, bus: KafkaBus, environment: Environment, endpoint: _Endpoint, wait: BrokerWait) -> None:
    try:
        # Only this command needs the parser, which is an extra.
        from ..laser.commands import Cursors, LaserServices  # noqa: PLC0415
        from ..laser.server import Limits, serving  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise LaserRefused(
            f"Laser needs the package {error.name}, which is not installed. Nothing was started. Install it with `pip install 'penstock[redis]'`."
        ) from error
    monitor = LoopMonitor()
    with (
        exit_within(STOP_WITHIN_S, NOT_SAVED_EFFECT),
        listening_at(endpoint.host, endpoint.port, "Laser") as listener,
        serve_health(endpoint.health, monitor),
        ending(wait(lambda: prepare(table.processor(), bus))) as processor,
        assemble_worker(processor, bus, environment, call_bus=wait) as worker,
        stop_on_signals(worker.stop, {signal.SIGUSR1: lambda: worker.stop(keep_place=True)}),
        stalls_logged(monitor),
    ):
        pairs = wait(lambda: ServedPairs(table, bus))
        token = None if endpoint.token is None else endpoint.token.encode()
        services = LaserServices(table.name, pairs, token, Cursors())
        tune_gc()

        def publish(worker: Worker) -> bool:
            monitor.record_turn(worker)
            pairs.publish(worker)
            return False

        with serving(services, listener, Limits(endpoint.connections)):
            host, port = listener.getsockname()[:2]
            note(f"Laser table {table.name} is at redis://{host}:{port} (Ctrl-C ends it)")
            worker.run(publish)
    note(f"{table.name}: {worker.metrics}")


def _expect_protected(host: str, token: str | None) -> None:
    if token is None and not is_loopback(host):
        raise LaserRefused(
            f"Other machines may reach {host}, and Laser serves the content of events. Nothing was started. Set a token in the environment "
            'variable PENSTOCK_LASER_TOKEN (generate one with `python -c "import secrets; print(secrets.token_urlsafe())"`), or omit --host.'
        )
    if token is not None and len(token) < MIN_TOKEN_LENGTH:
        raise LaserRefused(
            f"The token has {len(token)} characters, so it could be guessed. Nothing was started. Set a token of at least {MIN_TOKEN_LENGTH} characters."
        )


def _declared(app_file: str, name: str) -> AnyCategory:
    declared = {category.name: category for category in AppName.parse(app_file).load().categories()}
    if name not in declared:
        raise typer.BadParameter(f"{app_file} declares no category {name!r}; it has {', '.join(declared)}.")
    expect_main_cluster(
        [declared[name]], "served", "Serve it where --kafka is its cluster, with a declaration without `cluster`."
    )
    return declared[name]


def _columns(text: str) -> tuple[str, ...]:
    return tuple(column.strip() for column in text.split(","))
