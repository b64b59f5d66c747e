"""`penstock alerts`: monitors processors and sends notifications."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from enum import Enum
from threading import Event
from typing import Annotated
from uuid import uuid4

import typer
from msgspec.structs import asdict

from ....processors import PenstockError, human_duration
from ....processors.apps import AppName
from ....processors.declare import Alert
from ....transport import Bus
from ....transport.kafka import quiet_outages
from ...shell import (
    DEFAULT_FOLDER,
    AsJson,
    BrokerWait,
    FailFast,
    Folder,
    Kafka,
    SystemClock,
    audited,
    configuration_of,
    connect,
    format_time,
    note,
    out,
    parse_span,
    print_json,
    print_table,
    stop_on_signals,
)
from ..alerts import (
    UNREACHABLE_AFTER_S,
    ActiveAlert,
    AlertEvaluator,
    Alerting,
    AlertLoop,
    Alerts,
    CategoryRecipient,
    CommandRecipient,
    Heartbeat,
    Notification,
    NotificationDelivery,
    Recipient,
    Silence,
    Webhook,
    WebhookFormat,
    prometheus_rules,
    read_alerts,
    rules_of,
    silence_message,
    unsilence_message,
    write_alerts,
)
from .status import observer_factory


class RuleFormat(Enum):
    """The format of the alert rules."""

    TABLE = "table"
    PROMETHEUS = "prometheus"


STAND_BY_S = 1.0
"""The interval at which a standby checks whether it must take over."""
app = typer.Typer(help="Monitor processors and send notifications.", no_args_is_help=True)
Hook = Annotated[
    str | None,
    typer.Option(
        "--webhook",
        envvar="PENSTOCK_ALERTS_WEBHOOK",
        metavar="URL",
        help="Send each notification to this address, by POST. Set a secret address with the environment variable.",
        show_default=False,
    ),
]
Form = Annotated[
    WebhookFormat, typer.Option("--webhook-format", help="The format of the webhook's requests.", case_sensitive=False)
]
RoutingKey = Annotated[
    str,
    typer.Option(
        "--routing-key",
        envvar="PENSTOCK_ALERTS_ROUTING_KEY",
        metavar="KEY",
        help="The integration key of a PagerDuty service. Set it with the environment variable.",
        show_default=False,
    ),
]
Runbooks = Annotated[
    str,
    typer.Option(
        "--runbooks",
        metavar="URL",
        help="The address of a page with a heading for each alert, such as docs/runbooks.md; notifications link to it.",
        show_default=False,
    ),
]
Beat = Annotated[
    str | None,
    typer.Option(
        "--heartbeat",
        envvar="PENSTOCK_ALERTS_HEARTBEAT",
        metavar="URL",
        help="Request this address every 30 s while rules are evaluated, so that a service outside notices when that ends.",
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
            metavar="[APP]",
            help="An app, as a file or module, to add its own alerts; the default is all reporting processors.",
        ),
    ] = None,
    webhook: Hook = None,
    webhook_format: Form = WebhookFormat.JSON,
    routing_key: RoutingKey = "",
    runbooks: Runbooks = "",
    heartbeat: Beat = None,
    command: Run = None,
    category: Into = None,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", help="The interval between evaluations.", min=0.5)
    ] = 10.0,
    unreachable_after: Annotated[
        str,
        typer.Option(
            "--unreachable-after", metavar="SPAN", help="Notify after this time without an answer from Kafka."
        ),
    ] = f"{UNREACHABLE_AFTER_S:.0f}s",
    fail_fast: FailFast = False,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
    json: AsJson = False,
) -> None:
    """Evaluate alerts until stopped, and notify when they start and end. Of several such processes, one notifies.

    Without a broker, it waits.

    Example: penstock alerts run examples/flights/app.py --webhook https://example.org/penstock
    """
    bus, open_observer = connect(kafka, folder), observer_factory(target, folder)
    hook = None if webhook is None else Webhook(webhook, webhook_format, routing_key=routing_key)
    external, internal = _external(hook, command), _internal(bus, category)
    rules = rules_of(_app_alerts(target), _configured_alerts(context))
    beat = None if heartbeat is None else Heartbeat(heartbeat, time.monotonic)
    if not external and not internal:
        note("Notifications go to this terminal only. Name --webhook, --command or --category for others.")
    delivery, stopped = NotificationDelivery([*external, *internal], runbooks=runbooks), Event()

    def open_loop() -> AlertLoop:
        return AlertLoop.open(
            lambda: connect(kafka, folder),
            lambda bus: AlertEvaluator.open(bus, open_observer(bus), rules, delivery),
            NotificationDelivery(external, runbooks=runbooks),
            unreachable_after_s=parse_span(unreachable_after).total_seconds(),
        )

    with (
        quiet_outages(),
        closing(BrokerWait(fail_fast=fail_fast)(open_loop)) as loop,
        stop_on_signals(stopped.set),
    ):
        was_active = False
        while not stopped.is_set():
            for notification in loop.run_once():
                _show(notification, json=json)
            if loop.is_active and not was_active:
                note(f"This process evaluates the alerts, every {every:g} s.")
            was_active = loop.is_active
            if beat is not None and loop.is_evaluating:
                beat.beat_if_due()
            stopped.wait(every if loop.is_active else STAND_BY_S)


def _app_alerts(target: str | None) -> Sequence[Alert]:
    return () if target is None else AppName.parse(target).load().alerts


def _configured_alerts(context: typer.Context) -> list[Alert]:
    section = configuration_of(context).section(Alerting)
    return [] if section is None else section.alerts()


def _external(webhook: Webhook | None, command: str | None) -> list[Recipient]:
    """Return the recipients outside of Kafka."""
    recipients: list[Recipient] = []
    if webhook is not None:
        recipients.append(webhook)
    if command is not None:
        recipients.append(CommandRecipient(command))
    return recipients


def _internal(bus: Bus, category: str | None) -> list[Recipient]:
    return [] if category is None else [CategoryRecipient.open(bus, category)]


def _show(notification: Notification, *, json: bool) -> None:
    if json:
        print_json(asdict(notification))
    else:
        note(f"{format_time(notification.at_ms)} {notification.status}: {notification.rule}: {notification.message}")


@app.command("list")
def list_(kafka: Kafka = None, folder: Folder = DEFAULT_FOLDER, json: AsJson = False) -> None:
    """Show active and silenced alerts.

    Example: penstock alerts list
    """
    now_ms = SystemClock().now_ms()
    alerts = read_alerts(connect(kafka, folder))
    active = sorted(alerts.active.values(), key=lambda alert: alert.since_ms)
    if json:
        print_json(
            {
                "alerts": [{**asdict(alert), "silenced": alerts.is_silenced(alert, now_ms)} for alert in active],
                "silences": [asdict(silence) for silence in alerts.silences.values()],
            }
        )
        return
    _show_active(alerts, active, now_ms)
    silences = [silence for silence in alerts.silences.values() if silence.until_ms > now_ms]
    if silences:
        print_table(
            ["silence", "alert", "processor", "until (UTC)", "reason"],
            [[each.id, each.rule, each.processor, format_time(each.until_ms), each.reason] for each in silences],
        )


def _show_active(alerts: Alerts, active: Sequence[ActiveAlert], now_ms: int) -> None:
    if not active:
        note("No alert is active.")
    else:
        rows = [
            [
                "silenced" if alerts.is_silenced(alert, now_ms) else "firing" if alert.firing else "pending",
                alert.rule,
                alert.processor,
                human_duration((now_ms - alert.since_ms) / 1000),
                alert.message,
            ]
            for alert in active
        ]
        print_table(["", "alert", "processor", "for", "message"], rows)


@app.command()
def rules(
    context: typer.Context,
    target: Annotated[
        str | None, typer.Argument(metavar="[APP]", help="An app, as a file or module, to add its own alerts.")
    ] = None,
    form: Annotated[
        RuleFormat, typer.Option("--format", help="A table, or a rule file for Prometheus.", case_sensitive=False)
    ] = RuleFormat.TABLE,
    runbooks: Runbooks = "",
) -> None:
    """Show the alert rules; with --format prometheus, as a file that Prometheus evaluates over the metrics of `penstock serve metrics`.

    Example: penstock alerts rules examples/flights/app.py --format prometheus > penstock-rules.yaml
    """
    found = rules_of(_app_alerts(target), _configured_alerts(context))
    if form is RuleFormat.PROMETHEUS:
        out.out(prometheus_rules(found, runbooks), highlight=False, end="")
        return
    print_table(
        ["alert", "metric", "limit", "for", "processors"],
        [
            [rule.name, rule.metric, rule.limit, human_duration(rule.duration.total_seconds()), rule.processors]
            for rule in found
        ],
    )


@app.command()
@audited("alerts silence")
def silence(
    rule: Annotated[
        str | None, typer.Argument(metavar="ALERT", help='Its name; "*" means all alerts.', show_default=False)
    ] = None,
    duration: Annotated[
        str | None, typer.Option("--for", metavar="SPAN", help="The duration: 30m, 2h, 1d.", show_default=False)
    ] = None,
    processor: Annotated[
        str, typer.Option("--processor", metavar="NAME", help="The processor; the default is all.")
    ] = "*",
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="The reason, for other users.")] = "",
    end: Annotated[
        str | None,
        typer.Option(
            "--end", metavar="ID", help="End this silence of `penstock alerts list` instead.", show_default=False
        ),
    ] = None,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Suppress notifications of an alert for a while. An alert that is still active afterwards notifies then.

    Example: penstock alerts silence lag --processor scorer --for 2h --why "the backlog of Monday"

    Example: penstock alerts silence --end 3f2a9c01
    """
    if end is not None:
        if (rule, duration) != (None, None):
            raise typer.BadParameter("--end ends a silence. Nothing was changed. Leave the alert and --for out.")
        _end_silence(connect(kafka, folder), end)
        return
    if rule is None or duration is None:
        raise typer.BadParameter(
            "An alert and its --for are missing. Nothing was changed. Name both, or a silence to end with --end."
        )
    until_ms = int((time.time() + parse_span(duration).total_seconds()) * 1000)
    silenced = Silence(uuid4().hex[:8], rule, processor, until_ms, why)
    write_alerts(connect(kafka, folder), [silence_message(silenced)])
    note(f"Silenced until {format_time(until_ms)} UTC. `penstock alerts silence --end {silenced.id}` ends it earlier.")


def _end_silence(bus: Bus, id_: str) -> None:
    if id_ not in read_alerts(bus).silences:
        raise PenstockError(
            f"There is no silence {id_}. Nothing was changed. `penstock alerts list` shows all silences."
        )
    write_alerts(bus, [unsilence_message(id_)])
    note(f"Silence {id_} ended.")
