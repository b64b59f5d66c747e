"""The commands of `penstock`. A command's module is imported when the command is used, so that each starts fast."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from ..declared import declared
from .root import EPILOG, leaves


@dataclass(frozen=True)
class Entry:
    """A command in the list of all commands.

    Args:
        declared: its module in operations, and its function or group of commands.
        summary: the first sentence of its help.
        starts: whether it starts something, so that nothing was started if its app cannot be loaded.
    """

    declared: str
    summary: str
    starts: bool = False


@dataclass(frozen=True)
class Family:
    """A group of commands, of which each is imported only when it is used.

    Args:
        entries: its commands by name.
        summary: its help.
        starts: as for a command.
    """

    entries: Mapping[str, Entry]
    summary: str
    starts: bool = False


_SERVERS = {
    "results": Entry(
        "serve.commands.results:results",
        "Answer queries for results by key, window and rank over HTTP with JSON, until Ctrl-C.",
    ),
    "laser": Entry("serve.commands.laser:laser", "Serve a table of a category's latest values to Redis clients"),
    "scuba": Entry(
        "serve.commands.scuba:scuba", "Keep the newest events of categories as columns, and answer queries of them"
    ),
    "dashboard": Entry(
        "serve.commands.dashboard:dashboard",
        "Serve a page with the graph, plots, findings, and each processor's state and dead letters, until Ctrl-C.",
    ),
    "metrics": Entry(
        "status.commands.metrics:metrics", "Serve the metrics of all processors at /metrics, for Prometheus."
    ),
}
_ENTRIES: dict[str, dict[str, Entry | Family]] = {
    "Write": {
        "new": Entry(
            "start.commands.new:new",
            "Create a project: a package with an app, its test, and files for containers, Kubernetes and CI.",
        ),
        "image": Entry(
            "start.commands.image:image",
            "Write the recipe of a container image for an app: Containerfile, .dockerignore and requirements.lock.",
        ),
        "dev": Entry("start.commands.dev:app", "Start and stop local services."),
        "sql": Entry("sql.commands.sql:app", "Write, explain, try and test SQL files."),
        "config": Entry("shell.commands.config:app", "Show the configuration."),
    },
    "Run": {
        "run": Entry(
            "kernel.process.command:run",
            "Run a processor, or each processor of an app in its own process.",
            starts=True,
        ),
        "pipe": Entry(
            "categories.commands.pipe:pipe",
            "Run a program in any language on a category: messages in as lines, lines out as messages.",
        ),
        "deploy": Entry(
            "deploy.commands.deploy:deploy",
            "Deploy the current version of a processor, or of all processors of an app, and keep it running.",
            starts=True,
        ),
        "undeploy": Entry(
            "deploy.commands.deploy:undeploy",
            "Stop a processor's workers, those of a whole app, or servers, after a last checkpoint.",
        ),
        "deployments": Entry(
            "deploy.commands.deployment_list:list_deployments",
            "Show the deployments and their status, or one deployment with its workers and versions.",
        ),
        "logs": Entry(
            "deploy.commands.logs:logs",
            "Print the last lines that a deployment's workers have logged, in the order of time, and with --follow each new line.",
        ),
        "rollback": Entry(
            "deploy.commands.deploy:rollback", "Return a deployment to an earlier version, with its code and settings."
        ),
        "scale": Entry("deploy.commands.deploy:scale", "Change the number of workers of a deployment."),
        "autoscale": Entry(
            "status.commands.autoscale:autoscale",
            "Adjust a deployment's number of workers to its load until stopped, and report each decision with its reason.",
        ),
    },
    "Watch": {
        "status": Entry("status.commands.status:status", "Show processors and their progress, problems first."),
        "alerts": Entry("status.commands.alerts:app", "Monitor processors and send notifications.", starts=True),
        "audit": Entry(
            "shell.commands.audit:audit",
            "List the commands that changed something: who, what, when, from where, and how they ended.",
        ),
        "doctor": Entry(
            "categories.commands.doctor:doctor",
            "Show what a Kafka cluster offers of what Penstock uses, what follows from each lack, and what to change; exit with 1 if a worker could not run.",
        ),
        "acls": Entry(
            "categories.commands.acls:acls",
            "Print the `kafka-acls` commands that grant workers, operators and monitoring the access that an app needs.",
        ),
    },
    "Data and state": {
        "category": Entry("categories.commands.category:app", "Create, show, change and delete categories."),
        "dead-letters": Entry("dead_letters.command:app", "Show, retry and drop dead letters."),
        "state": Entry("change.commands.state:app", "Show, verify, restore and migrate states and their backups."),
        "snapshot": Entry(
            "change.commands.snapshot:app",
            "Consistent snapshots of a running app: all states, positions and messages on their way.",
        ),
        "clone": Entry(
            "change.commands.clone:clone", "Make a second app from a snapshot of a running one, or remove it."
        ),
        "promote": Entry(
            "change.commands.promote:promote", "Let an app continue with the states and the code of its clone."
        ),
        "watermark": Entry(
            "categories.commands.watermark:app", "Show watermarks, and set the watermarks of external writers."
        ),
        "reset": Entry(
            "change.commands.reset:reset",
            "Move a processor to another position in its inputs, with the matching state.",
        ),
    },
    "Query": {
        "serve": Family(_SERVERS, "Serve results, latest values, newest events, a dashboard or metrics.", starts=True),
        "query": Entry(
            "serve.commands.query:query",
            "Print results by key, window and rank, from a server that `penstock serve results` started.",
        ),
        "reads": Entry(
            "status.commands.reads:reads",
            "Show how often the results of processors are read, and stop the deployments of unread ones.",
        ),
        "explore": Entry(
            "serve.commands.explore:explore",
            "Ask a query of the newest events of a category, of a server that `penstock serve scuba` started.",
        ),
    },
    "Repeat and repair": {
        "replay": Entry(
            "look_back.commands.replay:replay",
            "Run a processor over past events, without effects on the live processor.",
        ),
        "explain": Entry(
            "look_back.commands.explain:explain",
            "Show which inputs led to the last output with a key, with the state before and after each, and upstream through the app.",
        ),
        "bisect": Entry(
            "change.commands.bisect:bisect", "Find the first event after which a condition on the state of a key holds."
        ),
        "archive": Entry(
            "batch.commands.archive:app", "Archive categories to the warehouse, as Parquet files by day.", starts=True
        ),
        "backfill": Entry(
            "batch.commands.backfill:backfill",
            "Run processors in Spark over their archived inputs, for a range of days.",
            starts=True,
        ),
        "bootstrap": Entry(
            "batch.commands.bootstrap:bootstrap", "Build a processor's state from the archive in Spark.", starts=True
        ),
        "compare": Entry(
            "batch.commands.compare:compare",
            "Compare the stream's archived outputs with the batch's outputs; exit with 1 if they differ.",
            starts=True,
        ),
    },
}
"""The commands by panel of the help and by name."""

_BY_NAME = {name: entry for entries in _ENTRIES.values() for name, entry in entries.items()}


def outlines() -> dict[str, TyperCommand]:
    """Return the commands for the list of all commands, with their summaries only. Nothing is imported."""
    return {
        name: TyperCommand(name, help=entry.summary, rich_help_panel=panel)
        for panel, entries in _ENTRIES.items()
        for name, entry in entries.items()
    }


def consequence_without_app(name: str) -> str:
    """Return what it means for the data that a command cannot load its app; empty if it starts nothing anyway."""
    return "Nothing was started." if _BY_NAME[name].starts else ""


def import_command(arguments: Sequence[str]) -> None:
    """Import the module of the command that a command line names, if it names one."""
    entries: Mapping[str, Entry | Family] = _BY_NAME
    for argument in arguments:
        entry = entries.get(argument)
        if isinstance(entry, Family):
            entries = entry.entries
        elif entry is not None:
            with suppress(ImportError):  # reported when the command is run
                declared(entry.declared)
            return


class LazyCommands(MutableMapping[str, Any]):
    """Commands by name. The first access to a command imports it; the names need no import."""

    def __init__(self, entries: Mapping[str, Entry | Family] = _BY_NAME) -> None:
        self._entries = entries
        self._commands: dict[str, Any] = dict.fromkeys(entries)

    def __getitem__(self, name: str) -> Any:
        if self._commands[name] is None:
            self._commands[name] = _command(name, self._entries[name])
        return self._commands[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._commands[name] = command

    def __delitem__(self, name: str) -> None:
        del self._commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._commands)

    def __len__(self) -> int:
        return len(self._commands)


class _LazyGroup(TyperGroup):
    """The commands of a family."""

    def __init__(self, name: str, family: Family) -> None:
        super().__init__(name=name, help=family.summary, no_args_is_help=True, rich_markup_mode="rich")
        self.commands = LazyCommands(family.entries)
        self.outlines = {each: TyperCommand(each, help=entry.summary) for each, entry in family.entries.items()}

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, without the import of its commands."""
        overview = copy(self)
        overview.commands = dict(self.outlines)
        super(_LazyGroup, overview).format_help(ctx, formatter)


def _command(name: str, entry: Entry | Family) -> Any:
    """Return a command or a group, whose commands mention the options of all commands in their help."""
    if isinstance(entry, Family):
        return _LazyGroup(name, entry)
    found = declared(entry.declared)
    if isinstance(found, typer.Typer):
        command: Any = typer.main.get_group(found)
        command.name = name
    else:
        single = typer.Typer(add_completion=False, rich_markup_mode="rich")
        single.command(name)(found)
        command = typer.main.get_command(single)
    for _, leaf in leaves((), command):
        leaf.epilog = leaf.epilog or EPILOG
    return command
