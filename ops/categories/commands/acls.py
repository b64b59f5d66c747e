"""`penstock acls`: prints the access rights that an app needs in Kafka."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from ....processors.apps import AppName
from ....processors.declare import plan_of
from ....transport import placement_of
from ...shell import AsJson, Kafka, address_of, configuration_of, print_json
from ..acls import KafkaRole, grants_of

_EFFECTS = {
    KafkaRole.WORKER: "penstock run, deployed workers",
    KafkaRole.OPERATOR: "every command",
    KafkaRole.MONITOR: "penstock status, alerts, serve metrics, serve dashboard",
}


def acls(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="APP[:PROCESSOR]", help="An app, or one processor in it.")],
    *,
    worker: Annotated[str, typer.Option(metavar="PRINCIPAL", help="The user of workers in Kafka.")] = "User:worker",
    operator: Annotated[str, typer.Option(metavar="PRINCIPAL", help="The user of operators.")] = "User:operator",
    monitor: Annotated[str, typer.Option(metavar="PRINCIPAL", help="The user of monitoring.")] = "User:monitor",
    kafka: Kafka = None,
    json: AsJson = False,
) -> None:
    """Print the `kafka-acls` commands that grant workers, operators and monitoring the access that an app needs. Nothing is changed.

    The categories must exist before workers start: create them with `penstock category create APP` as an operator. The printed commands
    read the credentials of Kafka's administrator from `admin.properties`.

    Example: penstock acls examples/flights/app.py --worker User:flights --kafka kafka:9092
    """
    processors = AppName.parse(target).load().processors
    principals = {KafkaRole.WORKER: worker, KafkaRole.OPERATOR: operator, KafkaRole.MONITOR: monitor}
    file = configuration_of(context).file
    elsewhere = placement_of(category for processor in processors for category in plan_of(processor).outputs)
    addresses: dict[str | None, str] = {
        None: (kafka and kafka.bootstrap) or "localhost:9092",
        **{cluster: address_of(file, cluster, f"Category {name} is on") for name, cluster in elsewhere.items()},
    }
    if json:
        print_json(
            [
                {"role": role, "principal": principal, **asdict(grant)}
                for role, principal in principals.items()
                for grant in grants_of(role, processors)
            ]
        )
        return
    for role, principal in principals.items():
        typer.echo(f"# {role.value}: {_EFFECTS[role]}")
        for grant in grants_of(role, processors):
            typer.echo(grant.command(principal, addresses[grant.cluster]))
