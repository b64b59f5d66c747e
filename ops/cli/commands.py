"""The commands of `penstock`. A command's module is imported when the command is used, so that each starts fast."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any

import typer

from .start import uncollected

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


class LazyCommands(MutableMapping[str, Any]):
    """The commands by name. The first access to a command imports it; the names need no import."""

    def __init__(self) -> None:
        self._commands: dict[str, Any] = dict.fromkeys(_MODULES)

    def __getitem__(self, name: str) -> Any:
        if self._commands[name] is None:
            module, _, attribute = _MODULES[name].partition(":")
            with uncollected():
                self._commands[name] = _command(name, getattr(import_module(f".{module}", __package__), attribute))
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
