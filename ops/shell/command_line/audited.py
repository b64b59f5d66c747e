"""Commands that change something: each run is recorded in the audit log, before it begins and at its end.

@app.command()
@audited("category delete")
def delete(name: Name, kafka: Kafka = None, folder: Folder = DEFAULT_FOLDER) -> None:

A log that cannot be written never prevents an operation: a note says that it is missing there. `--dry-run` and `--units` change nothing and are not recorded.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from functools import wraps
from pathlib import Path
from typing import Any

import msgspec
import typer

from ....processors import PenstockError
from ....transport import Bus, NoAnswer, call_with_limit
from ..audit import AuditOutcome, Operation, begun, record
from ..config import kafka_settings, without_secrets
from ..options import Kafka, address_of, connect
from ..process import SystemClock
from ..terminal import note

WRITE_LIMIT_S = 5.0
"""How long a command waits for the confirmation of an entry."""
_UNRECORDED = frozenset({"context", "kafka", "folder", "json", "yes", "dry_run"})
"""Parameters that say nothing about the change."""


def audited(
    words: str, *, flag: str | None = None, unless: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Record the runs of a command.

    Args:
        words: the words of the command, without `penstock`.
        flag: the parameter without which it only reads or serves; None if it always changes something.
        unless: the parameter with which it is a program that runs for long; None without one.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        defaults = {name: each.default for name, each in inspect.signature(command).parameters.items()}

        @wraps(command)
        def run(**values: Any) -> None:
            is_operation = (flag is None or values[flag]) and (unless is None or values[unless] is None)
            writes_nothing = values.get("dry_run") or values.get("units")
            if not is_operation or writes_nothing or not address_of(values["kafka"], values["folder"]):
                command(**values)
                return
            with recorded(words, _arguments(values, defaults), values["kafka"], values["folder"]):
                command(**values)

        run.audited = words  # type: ignore[attr-defined]
        return run

    return decorate


def _arguments(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, str]:
    """Return the arguments that a user gave, without secrets."""
    given = {name: value for name, value in values.items() if name not in _UNRECORDED and value != defaults[name]}
    return {name: text for name, value in given.items() if (text := _text(without_secrets(name, value)))}


def _text(value: object) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, (list, tuple)):
        return " ".join(map(_text, value))
    return str(value) if isinstance(value, (str, int, float, Path)) else ""


@contextmanager
def recorded(words: str, arguments: Mapping[str, str], kafka: Kafka, folder: Path) -> Iterator[None]:
    """Record the context as one operation. Commands that change something in one step only use it for that step.

    Args:
        words: the words of the command, without `penstock`.
        arguments: its arguments, without secrets.
        kafka: its option, which names the cluster.
        folder: its option, the folder of local services.
    """
    bus = connect(kafka, folder)
    settings = {} if kafka is None else kafka_settings(kafka.file)
    operation = begun(words, arguments, str(settings.get("sasl.username", "")), SystemClock().now_ms())
    is_recorded = _record(bus, operation)
    outcome, reason = AuditOutcome.DONE, ""
    try:
        yield
    except typer.Exit as end:
        outcome = AuditOutcome.FAILED if end.exit_code else AuditOutcome.DONE
        raise
    except (KeyboardInterrupt, typer.Abort):
        outcome = AuditOutcome.INTERRUPTED
        raise
    except BaseException as error:
        outcome, reason = AuditOutcome.FAILED, str(error)
        raise
    finally:
        if is_recorded:
            ended = SystemClock().now_ms()
            _record(bus, msgspec.structs.replace(operation, ended_ms=ended, outcome=outcome, reason=reason))


def _record(bus: Bus, operation: Operation) -> bool:
    """Write an entry if Kafka accepts it in time; return whether it did."""
    try:
        call_with_limit(lambda: record(bus, operation), WRITE_LIMIT_S)
    except NoAnswer:
        reason = f"Kafka did not confirm it within {WRITE_LIMIT_S:.0f} s."
    except PenstockError as error:
        reason = str(error)
    else:
        return True
    end = "the end of `penstock" if operation.ended_ms else "`penstock"
    note(f"{end} {operation.command}` is not in the audit log: {reason}")
    return False
