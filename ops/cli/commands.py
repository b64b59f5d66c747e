"""The commands of `penstock`. A command's module is imported when the command is used, so that each starts fast."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

import typer

_MODULES = {
    "new": "new:new",
    "dev": "dev:app",
    "category": "category:app",
    "dead-letters": "dead_letters:app",
    "sql": "sql:app",
    "archive": "archive:app",
    "state": "state:app",
    "snapshot": "snapshot:app",
    "bisect": "bisect:bisect",
    "watermark": "watermark:app",
    "config": "config:app",
    "alerts": "alerts:app",
    "audit": "audit:audit",
    "acls": "acls:acls",
    "status": "status:status",
    "graph": "status:graph",
    "metrics": "metrics:metrics",
    "dashboard": "dashboard:dashboard",
    "run": "run:run",
    "serve": "serve:serve",
    "laser": "laser:app",
    "scuba": "scuba:app",
    "pipe": "pipe:pipe",
    "deploy": "deploy:deploy",
    "undeploy": "deploy:undeploy",
    "deployments": "deploy:list_deployments",
    "rollback": "deploy:rollback",
    "scale": "deploy:scale",
    "autoscale": "autoscale:autoscale",
    "reset": "reset:reset",
    "backfill": "backfill:backfill",
    "bootstrap": "bootstrap:bootstrap",
    "compare": "compare:compare",
    "query": "query:query",
    "explore": "explore:explore",
    "replay": "replay:replay",
}
"""By name, in the order of the help: the module, and its function or group of commands."""


def import_command(arguments: Sequence[str]) -> None:
    """Import the module of the command that a command line names, if it names one."""
    name = next((argument for argument in arguments if argument in _MODULES), None)
    if name is not None:
        with suppress(ImportError):  # reported when the command is run
            _declared(name)


def _declared(name: str) -> Any:
    """Return the function or group of a command."""
    module, _, attribute = _MODULES[name].partition(":")
    return getattr(import_module(f".{module}", __package__), attribute)


class LazyCommands(MutableMapping[str, Any]):
    """The commands by name. The first access to a command imports it; the names need no import."""

    def __init__(self) -> None:
        self._commands: dict[str, Any] = dict.fromkeys(_MODULES)

    def __getitem__(self, name: str) -> Any:
        if self._commands[name] is None:
            self._commands[name] = _command(name, _declared(name))
        return self._commands[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._commands[name] = command

    def __delitem__(self, name: str) -> None:
        del self._commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._commands)

    def __len__(self) -> int:
        return len(self._commands)


def _command(name: str, declared: Any) -> Any:
    """Return the command of a function or of a group."""
    if isinstance(declared, typer.Typer):
        group = typer.main.get_group(declared)
        group.name = name
        return group
    single = typer.Typer(add_completion=False, rich_markup_mode="rich")
    single.command(name)(declared)
    return typer.main.get_command(single)
