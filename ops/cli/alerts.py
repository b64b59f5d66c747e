"""`penstock alerts`: monitors processors and sends notifications."""

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
from .status import observing
from .times import parse_span, shown_time
from .waiting import FailFast, Waiting

STAND_BY_S = 1.0
"""How often a standby checks whether it has to take over."""
app = typer.Typer(help="Monitor processors and send notifications.", no_args_is_help=True)
Hook = Annotated[
    str | None,
    typer.Option(
        "--webhook",
        envvar="PENSTOCK_ALERTS_WEBHOOK",
        metavar="URL",
        help="Send each notification to this address, as JSON by POST. Set a secret address with the environment variable.",
        show_default=False,
    ),
]
Run = Annotated[
    str | None,
    typer.Option(
        "--command", metavar="LINE", help="Run this command for each notification, with JSON on its standard input."
    ),
]
Into = Annotated[
    str | None, typer.Option("--category", metavar="NAME", help="Write each notification to this category.")
]


@app.command("run")
def run(
    context: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[APP]", help="An app file, to add its own alerts; the default is all reporting processors."
        ),
    ] = None,
    webhook: Hook = None,
    command: Run = None,
    category: Into = None,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", help="The interval between evaluations.", min=0.5)
    ] = 10.0,
    bus_away: Annotated[
        str,
        typer.Option("--bus-away", metavar="SPAN", help="Notify after this time without an answer from Kafka."),
    ] = f"{AWAY_AFTER_S:.0f}s",
    fail_fast: FailFast = False,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Evaluate alerts until stopped, and notify when they start and end. Of several such processes, one notifies.

    Without a broker, it waits.

    Example: penstock alerts run examples/flights/app.py --webhook https://example.org/penstock
    """
    bus, observed = connect(kafka, folder), observing(target)
    outside, inside = _outside(webhook, command), _inside(bus, category)
    holding = rules_of(_own(target), _configured(context))
    if not outside and not inside:
        note("Notifications go to this terminal only. Name --webhook, --command or --category for others.")
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
    """Return the recipients outside of Kafka."""
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
    """Show active and silenced alerts.

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
        note("No alert is active.")
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
    target: Annotated[str | None, typer.Argument(metavar="[APP]", help="An app file, to add its own alerts.")] = None,
) -> None:
    """Show the alert rules.

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
    rule: Annotated[str, typer.Argument(metavar="ALERT", help='Its name; "*" stands for all alerts.')],
    lasting: Annotated[str, typer.Option("--for", metavar="SPAN", help="The duration: 30m, 2h, 1d.")],
    processor: Annotated[
        str, typer.Option("--processor", metavar="NAME", help="The processor; the default is all.")
    ] = "*",
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="The reason, for other users.")] = "",
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Suppress notifications of an alert for a while. An alert that is still active afterwards notifies then.

    Example: penstock alerts silence lag --processor scorer --for 2h --why "the backlog of Monday"
    """
    until_ms = int((time.time() + parse_span(lasting).total_seconds()) * 1000)
    made = SilencedAlert(uuid4().hex[:8], rule, processor, until_ms, why)
    keep(connect(kafka, folder), [silence_message(made)])
    note(f"Silenced until {shown_time(until_ms)} UTC. `penstock alerts unsilence {made.id}` ends it earlier.")


@app.command()
def unsilence(
    id_: Annotated[str, typer.Argument(metavar="ID", help="The ID from `penstock alerts list`.")],
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """End a silence.

    Example: penstock alerts unsilence 3f2a9c01
    """
    bus = connect(kafka, folder)
    if id_ not in alerts_on(bus).silences:
        raise PenstockError(
            f"There is no silence {id_}. Nothing was changed. `penstock alerts list` shows all silences."
        )
    keep(bus, [unsilence_message(id_)])
    note(f"Silence {id_} ended.")
