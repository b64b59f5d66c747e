"""`penstock alerts`: watching processors, and telling somebody when something is wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from threading import Event
from typing import Annotated
from uuid import uuid4

import typer

from ...processors.declare.alerts import Alert
from ...processors.declare.apps import AppName
from ...processors.errors import PenstockError
from ...transport.bus import Bus
from ...transport.errors import BusError
from ..alerting.alert_evaluator import AlertEvaluator
from ..alerting.alert_loop import AWAY_AFTER_S, AlertLoop
from ..alerting.alert_states import ActiveAlert, SilencedAlert, alerts_on, keep, silence_message, unsilence_message
from ..alerting.notifications import CategoryOfAlerts, Command, Delivery, Notification, Recipient, Webhook
from ..alerting.rules import Alerting, rules_of
from ..clock import SystemClock
from ..humanize import human_duration
from ..monitoring.observer import Observer
from ..monitoring.outages import said_once
from .options import DEFAULT_FOLDER, AsJson, Folder, Kafka, connect
from .output import as_json, note, table
from .root import configuration_of
from .signals import stopping_on_signals
from .times import parse_span, shown_time
from .waiting import FailFast, Waiting
from .watching import observing

STAND_BY_S = 1.0
"""How often one that does not watch looks whether it is its turn."""
app = typer.Typer(help="Be told when something is wrong.", no_args_is_help=True)
Hook = Annotated[
    str | None,
    typer.Option(
        "--webhook",
        envvar="PENSTOCK_ALERTS_WEBHOOK",
        metavar="URL",
        help="Send each notice there, as JSON by POST. If the address is a secret, give it in the environment variable.",
        show_default=False,
    ),
]
Run = Annotated[
    str | None,
    typer.Option("--command", metavar="LINE", help="Start this for each notice, with JSON on its standard input."),
]
Into = Annotated[str | None, typer.Option("--category", metavar="NAME", help="Write each notice to this category.")]


@app.command("run")
def run(
    context: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(metavar="[APP]", help="An app file, whose own alerts hold, too; by default all that report."),
    ] = None,
    webhook: Hook = None,
    command: Run = None,
    category: Into = None,
    every: Annotated[float, typer.Option("--every", metavar="SECONDS", help="How often to look.", min=0.5)] = 10.0,
    bus_away: Annotated[
        str,
        typer.Option(
            "--bus-away", metavar="SPAN", help="After how long without an answer of the bus that is told, too."
        ),
    ] = f"{AWAY_AFTER_S:.0f}s",
    fail_fast: FailFast = False,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Watch until stopped, and tell of what is wrong and when it is over. Of several that watch, one tells. Where no broker answers, it waits.

    Example: penstock alerts run examples/flights/app.py --webhook https://example.org/penstock
    """
    bus, observed = connect(kafka, folder), observing(target)
    outside, inside = _outside(webhook, command), _inside(bus, category)
    holding = rules_of(_own(target), _configured(context))
    if not outside and not inside:
        note("Nobody is told beside this terminal: name --webhook, --command or --category.")
    delivery, stopped = Delivery([*outside, *inside]), Event()

    def vigil_on_bus() -> AlertLoop:
        away_after_s = parse_span(bus_away).total_seconds()
        return AlertLoop(
            bus,
            lambda: _watchman(bus, observed, holding, delivery),
            Delivery(outside),
            away_after_s=away_after_s,
        )

    with (
        said_once(),
        closing(Waiting(fail_fast=fail_fast)(vigil_on_bus)) as vigil,
        stopping_on_signals(stopped.set),
    ):
        while not stopped.is_set():
            for notice in vigil.turn():
                _say(notice, json=json)
            stopped.wait(every if vigil.on_watch else STAND_BY_S)


def _watchman(
    bus: Bus, observed: Callable[[Bus], Observer], rules: Sequence[Alert], delivery: Delivery
) -> AlertEvaluator:
    observer = observed(bus)
    try:
        return AlertEvaluator(bus, observer, rules, delivery)
    except BusError:
        observer.close()
        raise


def _own(target: str | None) -> Sequence[Alert]:
    return () if target is None else AppName.parse(target).load().alerts


def _configured(context: typer.Context) -> list[Alert]:
    section = configuration_of(context).section(Alerting)
    return [] if section is None else section.alerts()


def _outside(webhook: str | None, command: str | None) -> list[Recipient]:
    """Return whom the bus is not needed for."""
    recipients: list[Recipient] = []
    if webhook is not None:
        recipients.append(Webhook(webhook))
    if command is not None:
        recipients.append(Command(command))
    return recipients


def _inside(bus: Bus, category: str | None) -> list[Recipient]:
    return [] if category is None else [CategoryOfAlerts(bus, category)]


def _say(notice: Notification, *, json: bool) -> None:
    if json:
        as_json({name: getattr(notice, name) for name in Notification.__struct_fields__})
    else:
        note(f"{shown_time(notice.at_ms)} {notice.status}: {notice.rule}: {notice.says}")


@app.command("list")
def list_(kafka: Kafka = None, folder: Folder = DEFAULT_FOLDER, json: AsJson = False) -> None:
    """Show what is raised, and what is silenced.

    Example: penstock alerts list
    """
    now_ms = SystemClock().now_ms()
    alerts = alerts_on(connect(kafka, folder))
    raised = sorted(alerts.raised.values(), key=lambda one: one.since_ms)
    if json:
        as_json(
            {
                "alerts": [
                    {
                        **{name: getattr(one, name) for name in ActiveAlert.__struct_fields__},
                        "silenced": alerts.silenced(one, now_ms),
                    }
                    for one in raised
                ],
                "silences": [
                    {name: getattr(one, name) for name in SilencedAlert.__struct_fields__}
                    for one in alerts.silences.values()
                ],
            }
        )
        return
    if not raised:
        note("No alert is raised.")
    else:
        rows = [
            [
                "silenced" if alerts.silenced(one, now_ms) else "firing" if one.firing else "pending",
                one.rule,
                one.processor,
                human_duration((now_ms - one.since_ms) / 1000),
                one.says,
            ]
            for one in raised
        ]
        table(["", "alert", "processor", "for", "what"], rows)
    silences = [one for one in alerts.silences.values() if one.until_ms > now_ms]
    if silences:
        table(
            ["silence", "alert", "processor", "until (UTC)", "why"],
            [[one.id, one.rule, one.processor, shown_time(one.until_ms), one.why] for one in silences],
        )


@app.command()
def rules(
    context: typer.Context,
    target: Annotated[
        str | None, typer.Argument(metavar="[APP]", help="An app file, whose own alerts are shown, too.")
    ] = None,
) -> None:
    """Show the rules that hold.

    Example: penstock alerts rules examples/flights/app.py
    """
    table(
        ["alert", "figure", "limit", "for", "processors"],
        [
            [rule.name, rule.measure, rule.limit, human_duration(rule.duration.total_seconds()), rule.processors]
            for rule in rules_of(_own(target), _configured(context))
        ],
    )


@app.command()
def silence(
    rule: Annotated[str, typer.Argument(metavar="ALERT", help='Its name; "*" stands for anything.')],
    lasting: Annotated[str, typer.Option("--for", metavar="SPAN", help="How long: 30m, 2h, 1d.")],
    processor: Annotated[str, typer.Option("--processor", metavar="NAME", help="Whose; by default everybody's.")] = "*",
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="For others who look.")] = "",
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Tell nobody of an alert for a while; what still fires afterwards is told then.

    Example: penstock alerts silence lag --processor scorer --for 2h --why "the backlog of Monday"
    """
    until_ms = int((time.time() + parse_span(lasting).total_seconds()) * 1000)
    made = SilencedAlert(uuid4().hex[:8], rule, processor, until_ms, why)
    keep(connect(kafka, folder), [silence_message(made)])
    note(f"Silenced until {shown_time(until_ms)} UTC. `penstock alerts unsilence {made.id}` ends it before.")


@app.command()
def unsilence(
    id_: Annotated[str, typer.Argument(metavar="ID", help="As `penstock alerts list` shows it.")],
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """End a silence.

    Example: penstock alerts unsilence 3f2a9c01
    """
    bus = connect(kafka, folder)
    if id_ not in alerts_on(bus).silences:
        raise PenstockError(
            f"There is no silence {id_}, so nothing was changed. `penstock alerts list` shows those that there are."
        )
    keep(bus, [unsilence_message(id_)])
    note(f"Ended silence {id_}.")
