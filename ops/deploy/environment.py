"""Environment variables of a deployment's workers, such as the addresses of stores.

The values may be secrets. They are stored in a separate file that only its owner can read, in the format of systemd's
EnvironmentFile, and are never printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ...processors.declare import Processor, plan_of
from ...processors.lookups import LookupJoin
from ...processors.shard import is_remote
from ...state.files import replace_file
from ...state.lookup_sources import LaserTable, PostgresQuery, PostgresTable, RedisTable
from .errors import DeployError

STORE = "PENSTOCK_STORE"
"""The variable with the address of the remote store."""


def required_variables(processor: type[Processor]) -> tuple[str, ...]:
    """Return the variables with the addresses of a processor's stores and sinks."""
    names = {STORE} if is_remote(processor) else set[str]()
    if issubclass(processor, LookupJoin) and isinstance(
        processor.source, (LaserTable, PostgresTable, PostgresQuery, RedisTable)
    ):
        names.add(processor.source.at)
    names.update(variable for sink in plan_of(processor).sinks for variable in sink.variables)
    return tuple(sorted(name for name in names if "://" not in name))


def opentelemetry_variables(environment: Mapping[str, str]) -> set[str]:
    """Return the names of the variables that configure OpenTelemetry, which may contain the keys of a receiver."""
    return {name for name, value in environment.items() if name.startswith("OTEL_") and value}


def variable_values(names: Iterable[str], environment: Mapping[str, str], processor: str) -> dict[str, str]:
    """Return the values of variables.

    Args:
        names: the variables.
        environment: the current environment.
        processor: the processor that needs them, for messages.

    Raises:
        DeployError: a variable is not set, or its value has several lines.
    """
    values = {name: environment.get(name, "") for name in names}
    missing = [name for name, value in values.items() if not value]
    if missing:
        raise DeployError(
            f"{processor} needs {' and '.join(missing)}, which is not set here. Nothing was deployed. Set it and deploy again. The value "
            "is stored for the workers, in a file that only you can read."
        )
    if any("\n" in value or "\0" in value for value in values.values()):
        raise DeployError(
            f"{processor} needs {', '.join(values)}, and one of these values has several lines. Nothing was deployed. Use values of one line."
        )
    return values


def save_variables(path: Path, values: Mapping[str, str]) -> None:
    """Write values to a file that only its owner can read."""
    lines = (f"{name}={_quoted(value)}\n" for name, value in sorted(values.items()))
    replace_file(path, "".join(lines).encode())


def load_variables(path: Path) -> dict[str, str]:
    """Return the stored values; empty without a file."""
    if not path.exists():
        return {}
    pairs = (line.partition("=") for line in path.read_text(encoding="utf-8").splitlines())
    return {name: _unquoted(value) for name, _, value in pairs}


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$").replace("`", "\\`")
    return f'"{escaped}"'


def _unquoted(value: str) -> str:
    plain, escaped = [], False
    for character in value[1:-1]:
        escaped = character == "\\" and not escaped
        if not escaped:
            plain.append(character)
    return "".join(plain)
