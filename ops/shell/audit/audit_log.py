"""The audit log: who changed what, when and from where.

    penstock.audit, retained for a year    key  an operation's id    value  its newest entry as JSON

A command writes one entry before it begins and one at its end. An operation without the second entry still runs, or was killed.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime, timedelta
from enum import Enum
from uuid import uuid4

import msgspec

from ....processors import user_name
from ....transport import Bus, CategorySpec
from ....transport.tables import TEXT_KEY, BusTable

AUDIT = CategorySpec("penstock.audit", buckets=1, retention=timedelta(days=365))
"""The category of operations."""
BEHALF_VARIABLE = "PENSTOCK_ON_BEHALF_OF"
"""The environment variable with the user for whom a program runs a command."""


class AuditOutcome(Enum):
    """How an operation ended; BEGUN if it has not."""

    BEGUN = "begun"
    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class Operation(msgspec.Struct, frozen=True):
    """A command that changes something.

    Args:
        id: its id.
        command: the words of the command, without `penstock`.
        arguments: the arguments that differ from their defaults, by parameter, without secrets.
        user: the user of the operating system; of `sudo`, the one who called it; of the dashboard, its visitor.
        machine: the name of the machine.
        kafka_user: the user name for SASL; empty without one.
        begun_ms: when it began (milliseconds since 1970, UTC).
        ended_ms: when it ended; None if it has not.
        outcome: how it ended.
        reason: the error of a failed one.
    """

    id: str
    command: str
    arguments: dict[str, str]
    user: str
    machine: str
    kafka_user: str
    begun_ms: int
    ended_ms: int | None = None
    outcome: AuditOutcome = AuditOutcome.BEGUN
    reason: str = ""


_TABLE: BusTable[str, Operation] = BusTable(AUDIT, TEXT_KEY, msgspec.json.Decoder(Operation).decode)


def begun(command: str, arguments: Mapping[str, str], kafka_user: str, now_ms: int) -> Operation:
    """Return the first entry of an operation of this process."""
    return Operation(uuid4().hex, command, dict(arguments), _user(), socket.gethostname(), kafka_user, now_ms)


def _user() -> str:
    return os.environ.get(BEHALF_VARIABLE) or os.environ.get("SUDO_USER") or user_name()


def record(bus: Bus, operation: Operation) -> None:
    """Write an entry; durable on return. Creates a missing category."""
    _TABLE.write(bus, [_TABLE.put(operation.id, operation)])


def operations_since(bus: Bus, begin: datetime) -> list[Operation]:
    """Return the operations with an entry at or after a time, oldest first; none if nothing was ever recorded."""
    if not bus.catalog.topics([AUDIT.name]):
        return []
    found: dict[str, Operation] = {}
    with closing(_TABLE.follow(bus, bus.catalog.at_time(AUDIT.name, begin)[0])) as reader:
        for change in reader.read_to_end():
            if change.value is not None:
                found[change.key] = change.value
    return sorted(found.values(), key=lambda operation: operation.begun_ms)
