"""`penstock doctor`: shows what a Kafka cluster offers, and what an app lacks on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, NamedTuple

import typer

from ....processors import counted
from ....processors.apps import AppName
from ....processors.declare import AnyCategory, Processor, plan_of
from ....processors.shard import uses_transactions
from ....transport import Bus, Durability, MissingCategory
from ....transport.kafka import Check, Feature, Verdict, checks_of
from ...kernel import start_identity
from ...shell import DEFAULT_FOLDER, AsJson, Folder, Kafka, connect, note, print_json, print_table, with_clusters


def doctor(
    target: Annotated[
        str | None, typer.Argument(metavar="[APP[:PROCESSOR]]", help="An app, or one processor in it, to compare with.")
    ] = None,
    *,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Show what a Kafka cluster offers of what Penstock uses, what follows from each lack, and what to change; exit with 1 if a worker could not run.

    Brokers check the requests for new categories without creating them. Nothing is created or changed.

    Example: penstock doctor app.py --kafka kafka:9092
    """
    processors = () if target is None else AppName.parse(target).load().processors
    bus = connect(kafka, folder)
    note(f"Checking the cluster at {bus.settings.bootstrap}. Transactions may take 20 seconds …")
    needing = [each.name for each in processors if uses_transactions(each)]
    checks = checks_of(bus, start_identity(needing[0])) if needing else checks_of(bus)
    of_cluster = [_needed(check, needing) for check in checks]
    findings = [*of_cluster, *_of_categories(processors, with_clusters(bus, kafka, _categories(processors)))]
    rows = [(each.name, each.verdict.value, each.found, each.follows) for each in findings]
    if json:
        print_json([dict(zip(("check", "verdict", "found", "follows"), row, strict=True)) for row in rows])
    else:
        print_table(("check", "verdict", "found", "what follows"), rows)
    if any(each.stops for each in findings):
        raise typer.Exit(1)


class CheckedRow(NamedTuple):
    """A row of the table.

    Args:
        name: what was checked.
        verdict: the outcome.
        found: what the brokers answered.
        follows: what that means, and what to change; empty if nothing.
        stops: whether a worker could not run.
    """

    name: str
    verdict: Verdict
    found: str
    follows: str
    stops: bool


def _needed(check: Check, transactional: Sequence[str]) -> CheckedRow:
    """Return a row for a feature of the cluster. Transactions are missing only for the processors that need them, which are named."""
    is_missing, name = check.verdict is Verdict.MISSING, check.feature.value
    if check.feature is not Feature.TRANSACTIONS:
        return CheckedRow(name, check.verdict, check.found, check.follows, is_missing)
    stopped = f" It stops {', '.join(transactional)}." if is_missing and transactional else ""
    return CheckedRow(name, check.verdict, check.found, f"{check.follows}{stopped}", bool(stopped))


def _categories(processors: Iterable[type[Processor]]) -> list[AnyCategory]:
    """Return the categories that processors read and write, each once."""
    found = {
        category.name: category
        for processor in processors
        for category in (*plan_of(processor).sources, *plan_of(processor).side_inputs, *plan_of(processor).outputs)
    }
    return list(found.values())


def _of_categories(processors: Sequence[type[Processor]], bus: Bus) -> Iterator[CheckedRow]:
    """Yield a row for each category of processors."""
    for category in _categories(processors):
        name = f"category {category.name}"
        try:
            buckets, durability = (
                bus.catalog.describe(category.name).spec.buckets,
                bus.catalog.durability(category.name),
            )
        except MissingCategory:
            follows = "Workers refuse to start. Create it with `penstock category create`."
            yield CheckedRow(name, Verdict.MISSING, "does not exist", follows, stops=True)
            continue
        found = f"{counted(buckets, 'bucket')}, {counted(durability.replicas, 'replica')}"
        if buckets != category.buckets:
            follows = f"Workers refuse to start, because the app declares {counted(category.buckets, 'bucket')}."
            yield CheckedRow(name, Verdict.MISSING, found, follows, stops=True)
        else:
            yield CheckedRow(name, *_safety(durability, found), stops=False)


def _safety(durability: Durability, found: str) -> tuple[Verdict, str, str]:
    if durability.is_safe is False:
        return Verdict.LIMITED, found, "The failure of a broker can lose events."
    if durability.is_safe is None:
        return Verdict.UNKNOWN, found, f"The brokers do not report {', '.join(durability.unknown)}."
    return Verdict.OK, found, ""
