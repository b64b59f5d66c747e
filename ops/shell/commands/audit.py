"""`penstock audit`: lists who changed what, when and from where."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from typing import Annotated

import msgspec
import typer

from ....processors import printable
from ..audit import AuditOutcome, Operation, operations_since
from ..options import DEFAULT_FOLDER, AsJson, Folder, Kafka, connect
from ..terminal import format_time, note, parse_span, print_json, print_table


def audit(
    last: Annotated[str, typer.Option(metavar="SPAN", help="How far back: 12h, 7d.")] = "7d",
    command: Annotated[
        str, typer.Option(metavar="WORDS", help="Only commands that begin so, such as deploy.", show_default=False)
    ] = "",
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """List the commands that changed something: who, what, when, from where, and how they ended. Kafka keeps them for a year.

    An unfinished command still runs, or was killed. Workers and long-running commands are shown by `penstock status` instead.

    Example: penstock audit --last 30d --command deploy
    """
    found = operations_since(connect(kafka, folder), datetime.now(UTC) - parse_span(last))
    operations = [operation for operation in found if operation.command.startswith(command)]
    if json:
        print_json([msgspec.to_builtins(operation) for operation in operations])
    elif operations:
        print_table(("began (UTC)", "user", "machine", "command", "outcome"), list(map(_row, operations)))
    else:
        note(f"No command changed anything in the last {last}.")


def _row(operation: Operation) -> list[object]:
    users = [operation.user, *([f"as {operation.kafka_user}"] if operation.kafka_user else [])]
    options = [f"{name}={value}" for name, value in operation.arguments.items()]
    outcome = "unfinished" if operation.outcome is AuditOutcome.BEGUN else operation.outcome.value
    return [
        format_time(operation.begun_ms),
        " ".join(users),
        operation.machine,
        printable(" ".join([operation.command, *map(shlex.quote, options)])),
        printable(f"{outcome}: {operation.reason}" if operation.reason else outcome),
    ]
