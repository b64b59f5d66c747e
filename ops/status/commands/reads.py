"""`penstock reads`: how often the results of processors are read, and the end of deployments with unread results."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from ....processors import counted, human_duration
from ....transport.tables import ResultReads, reads_on
from ...deploy import all_deployments, deployment_lock, stop_deployment
from ...shell import (
    DEFAULT_FOLDER,
    AsJson,
    Folder,
    Kafka,
    audited,
    connect,
    format_time,
    interruptible,
    note,
    parse_span,
    print_json,
    print_table,
)
from ..observer import Observer
from ..unread import readers_of


@audited("reads")
def reads(
    unread: Annotated[
        str | None,
        typer.Option(
            "--unread", metavar="DURATION", help="Only results that were not read for this time.", show_default=False
        ),
    ] = None,
    stop: Annotated[
        bool,
        typer.Option("--stop", help="Stop the deployments of --unread results that no processor reads either."),
    ] = False,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Show how often the results of processors are read, and stop the deployments of unread ones. Query servers count the queries that they answer.

    A stopped deployment keeps its state and positions; `penstock deploy` continues it. Reads of the category by other programs are unknown.

    Example: penstock reads --unread 14d --stop
    """
    if stop and unread is None:
        raise typer.BadParameter("--stop needs --unread, such as --unread 14d.")
    bus = connect(kafka, folder)
    now_ms = time.time_ns() // 1_000_000
    limit_s = 0.0 if unread is None else parse_span(unread).total_seconds()
    found = {name: each for name, each in reads_on(bus).items() if each.unread_s(now_ms) >= limit_s}
    _print(found, now_ms, json=json)
    if not stop or not found:
        return
    observer = Observer.open(bus)
    try:
        nodes = [status.node for status in observer.observe().processors]
    finally:
        observer.close()
    running = {deployment.name for deployment in all_deployments(folder)}
    with interruptible("Repeat the command to finish."), deployment_lock(folder, note):
        for name in sorted(found.keys() & running):
            readers = readers_of(name, nodes)
            if readers:
                note(f"{name} runs on: {', '.join(readers)} reads its results.")
            else:
                stop_deployment(folder, name, note)
                note(
                    f"{name} is stopped: its results were not read for {human_duration(found[name].unread_s(now_ms))}. `penstock deploy` continues it."
                )


def _print(found: dict[str, ResultReads], now_ms: int, *, json: bool) -> None:
    for name, each in found.items() if json else ():
        print_json(
            {
                "processor": name,
                "reads": each.reads,
                "last_ms": each.last_ms,
                "since_ms": each.since_ms,
                "servers": list(each.servers),
            }
        )
    if json:
        return
    rows = [
        [
            name,
            each.reads,
            "never" if each.last_ms is None else f"{human_duration((now_ms - each.last_ms) / 1000)} ago",
            format_time(each.since_ms),
            ", ".join(each.servers),
        ]
        for name, each in found.items()
    ]
    print_table(["processor", "reads", "last read", "served since", "servers"], rows)
    note(f"{counted(len(rows), 'processor')}.")
