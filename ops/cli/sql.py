"""`penstock sql`: helps to write SQL files, explains and tests them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from ...processors.sql.errors import SqlText
from ..sql.explanation import explained
from ..topic_inference import read_sample
from ..topic_inference.sql_columns import with_types
from .options import DEFAULT_FOLDER, AsJson, Folder, Kafka, connect
from .output import out, print_json
from .registry_options import Registry, RegistryCa, RegistryUser, named_registry

app = typer.Typer(help="Write, explain and test SQL files.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Write, explain and test SQL files."""


@app.command()
def infer(
    file: Annotated[Path, typer.Argument(help="An SQL file.", exists=True, dir_okay=False)],
    sample: Annotated[int, typer.Option(help="The number of latest messages of each topic to look at.", min=1)] = 1_000,
    registry: Registry = None,
    registry_user: RegistryUser = None,
    registry_ca: RegistryCa = None,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Print an SQL file with the types of columns that it leaves out, from the messages of its topics.

    The types are a proposal from a sample: check them. Nothing is written to Kafka or the registry.

    Example: penstock sql infer top_events.sql > typed.sql
    """
    bus = connect(kafka, folder)
    text = SqlText(file.name, file.read_text(encoding="utf-8"))
    named = named_registry(registry, registry_user, registry_ca)
    out.out(with_types(text, lambda topic: read_sample(bus, topic, sample), named), highlight=False, end="")


@app.command()
def explain(
    file: Annotated[Path, typer.Argument(help="An SQL file.", exists=True, dir_okay=False)],
    *,
    as_json: AsJson = False,
) -> None:
    """Print the processors that an SQL file becomes: their kinds, categories, keys, windows, state and semantics.

    Nothing is read from Kafka.

    Example: penstock sql explain shop.sql
    """
    for number, plan in enumerate(explained(file)):
        if as_json:
            print_json(asdict(plan))
            continue
        out.print(f"{chr(10) * bool(number)}[bold]{escape(plan.name)}[/]  {plan.kind}", soft_wrap=True)
        width = max(map(len, plan.facts()))
        for name, value in plan.facts().items():
            lines = f"\n{' ' * (width + 4)}".join(value.splitlines())
            out.print(f"  {name:<{width}}  {escape(lines)}", soft_wrap=True)
