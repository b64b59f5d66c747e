"""`penstock sql`: helps to write SQL files, explains, tries and tests them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.padding import Padding

from ....processors import counted
from ....processors.apps import AppName
from ...serve import parsed_query, sql_of
from ...shell import AsJson, out, print_json, table_of
from ..example_tests import ExampleResult, examples_of, run_examples
from ..explanation import explained
from .sql_shell import shell

app = typer.Typer(help="Write, explain, try and test SQL files.", no_args_is_help=True)
app.command()(shell)


@app.callback()
def _group() -> None:
    """Write, explain, try and test SQL files."""


@app.command()
def from_query(
    query: Annotated[
        str, typer.Argument(help="The address of Scuba's page, in quotes, or the JSON of a query.", show_default=False)
    ],
    *,
    declared: Annotated[
        str,
        typer.Option("--app", metavar="APP", help="The app that Scuba serves: a file or a module.", show_default=False),
    ],
    name: Annotated[str, typer.Option(help="The name of the table with the results.")] = "explored",
) -> None:
    """Print an exploration in Scuba as an app in SQL, which computes the answer from now on, as events arrive.

    Nothing is read from Scuba or Kafka. The time range and the limit of groups of the query are left out.

    Example: penstock sql from-query 'http://localhost:8094/#table=views&by=page&f=p95&of=ms&every=1m' --app shop.py > slow_pages.sql
    """
    out.out(sql_of(parsed_query(query), AppName.parse(declared).load(), name, query), highlight=False, end="")


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


@app.command("test")
def run_tests(
    file: Annotated[Path, typer.Argument(help="An SQL file.", exists=True, dir_okay=False)],
    *,
    examples: Annotated[
        Path | None,
        typer.Option(help="The test file; the default is NAME_test.sql beside NAME.sql.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the tests of an SQL file: rows that are inserted, and rows that its queries should write.

    The tests run in memory, without Kafka. The exit code is 1 if one fails.

    Example: penstock sql test shop.sql
    """
    place = examples or examples_of(file)
    results = run_examples(file, place)
    for result in results:
        if as_json:
            print_json({"passed": not result.differences, **asdict(result)})
        else:
            _print_result(place, result)
    if any(result.differences for result in results):
        raise typer.Exit(1)


def _print_result(place: Path, result: ExampleResult) -> None:
    out.print(f"{'[red]failed' if result.differences else '[green]passed'}[/]  {escape(result.name)}", soft_wrap=True)
    for each in result.differences:
        out.print(
            f"  {place}, line {each.line}: in {each.table}, {counted(len(each.missing), 'expected row')} missing (-), "
            f"{counted(len(each.unexpected), 'unexpected row')} written (+), {counted(each.equal, 'row')} as expected.",
            soft_wrap=True,
            markup=False,
        )
        if each.waits and each.missing and not each.unexpected:
            out.print(
                "    A window is complete when an event after its end has arrived, and no other bucket holds back the time: insert one, and let buckets "
                "become idle by ADVANCE interval '2 minutes'; after it. Without WITH (out_of_orderness = '0 seconds'), a bucket needs 8 events, from "
                "which their delay is estimated.",
                soft_wrap=True,
                markup=False,
            )
        marked = [*(("-", row) for row in each.missing), *(("+", row) for row in each.unexpected)]
        out.print(
            Padding(table_of(("", *each.columns), [(mark, *map(_shown, row)) for mark, row in marked]), (0, 0, 0, 4))
        )


def _shown(value: object) -> str:
    """Return a value as SQL writes it."""
    if value is None:
        return "NULL"
    return str(value).lower() if isinstance(value, (bool, int, float)) else f"'{value}'"
