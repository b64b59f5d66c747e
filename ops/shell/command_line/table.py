"""The commands of `penstock`. A command's module is imported when the command is used, so that each starts fast."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperCommand

from ..declared import declared


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


_ENTRIES = {
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
            "Stop a processor's workers, or those of a whole app, after a last checkpoint.",
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
        "graph": Entry(
            "status.commands.status:graph", "Draw the processors and the categories between them, with rates and lag."
        ),
        "dashboard": Entry(
            "serve.commands.dashboard:dashboard",
            "Serve a page with the graph, plots, findings, and each processor's state and dead letters, until Ctrl-C.",
            starts=True,
        ),
        "alerts": Entry("status.commands.alerts:app", "Monitor processors and send notifications.", starts=True),
        "metrics": Entry(
            "status.commands.metrics:metrics", "Serve the metrics of all processors at /metrics, for Prometheus."
        ),
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
        "dead-letters": Entry("dead_letters.command:app", "List, show, retry, export and drop dead letters."),
        "state": Entry("change.commands.state:app", "Show, verify, restore and migrate states and their backups."),
        "snapshot": Entry(
            "change.commands.snapshot:app",
            "Consistent snapshots of a running app: all states, positions and messages on their way.",
        ),
        "clone": Entry("change.commands.clone:clone", "Make a second app from a snapshot of a running one."),
        "promote": Entry(
            "change.commands.promote:promote", "Let an app continue with the states and the code of its clone."
        ),
        "unclone": Entry(
            "change.commands.clone:unclone",
            "Remove a clone: its workers, categories, positions, states, backups and snapshots.",
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
        "serve": Entry(
            "serve.commands.serve:serve",
            "Answer queries for results by key, window and rank over HTTP with JSON, until Ctrl-C.",
            starts=True,
        ),
        "query": Entry(
            "serve.commands.query:query",
            "Print results by key, window and rank, from a server that `penstock serve` started.",
        ),
        "reads": Entry(
            "status.commands.reads:reads",
            "Show how often the results of processors are read, and stop the deployments of unread ones.",
        ),
        "laser": Entry("serve.commands.laser:app", "Serve the latest value of each key of a category.", starts=True),
        "scuba": Entry("serve.commands.scuba:app", "Explore the newest events of categories.", starts=True),
        "explore": Entry(
            "serve.commands.explore:explore",
            "Ask a query of the newest events of a category, of a server that `penstock scuba serve` started.",
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
    name = next((argument for argument in arguments if argument in _BY_NAME), None)
    if name is not None:
        with suppress(ImportError):  # reported when the command is run
            _declared(name)


def _declared(name: str) -> Any:
    """Return the function or group of a command."""
    return declared(_BY_NAME[name].declared)


class LazyCommands(MutableMapping[str, Any]):
    """The commands by name. The first access to a command imports it; the names need no import."""

    def __init__(self) -> None:
        self._commands: dict[str, Any] = dict.fromkeys(_BY_NAME)

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
