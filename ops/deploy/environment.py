"""The values that a deployment's workers are given: what the app's stores are reached by, kept apart from versions and units.

They may be secrets: they lie in one file that only its owner reads, in the form that systemd's EnvironmentFile has, and are never shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ...processors.declare.processor import Processor
from ...processors.lookups import LookupJoin
from ...processors.shard.checkpoints import is_remote
from ...state.files.durable import replace_file
from ...state.lookup_sources import PostgresQuery, PostgresTable, RedisTable
from .errors import DeployError

STORE = "PENSTOCK_STORE"
"""The variable that holds the address of the remote store."""


def required_variables(processor: type[Processor]) -> tuple[str, ...]:
    """Return the variables that a processor's stores are named by."""
    names = {STORE} if is_remote(processor) else set[str]()
    if issubclass(processor, LookupJoin) and isinstance(processor.source, (PostgresTable, PostgresQuery, RedisTable)):
        names.add(processor.source.at)
    return tuple(sorted(name for name in names if "://" not in name))


def variable_values(names: Iterable[str], environment: Mapping[str, str], why: str) -> dict[str, str]:
    """Return the values of variables.

    Raises:
        DeployError: one is not set, or holds what no variable can.
    """
    values = {name: environment.get(name, "") for name in names}
    missing = [name for name, value in values.items() if not value]
    if missing:
        raise DeployError(
            f"{why} needs {' and '.join(missing)}, which is not set here. Nothing was deployed. Set it and deploy again: the workers "
            "are given its value, which is kept in a file that only you can read."
        )
    if any("\n" in value or "\0" in value for value in values.values()):
        raise DeployError(
            f"A value that {why} needs ({', '.join(values)}) has more than one line. Nothing was deployed."
        )
    return values


def save_variables(path: Path, values: Mapping[str, str]) -> None:
    """Write values to a file that only its owner reads."""
    lines = (f"{name}={_quoted(value)}\n" for name, value in sorted(values.items()))
    replace_file(path, "".join(lines).encode(), mode=0o600)


def load_variables(path: Path) -> dict[str, str]:
    """Return the values that were kept; none where there is no file."""
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
