"""Notifications of alerts, and their recipients: a webhook, a command, a category."""

from __future__ import annotations

import logging
import shlex
import subprocess
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from typing import Protocol

import msgspec

from ....processors import PenstockError, human_duration
from ....processors.declare import AlertSeverity
from ....state import exchange, http_host
from ....transport import Bus, Outgoing, Writer
from .alert_states import ActiveAlert
from .webhook_formats import WebhookFormat, webhook_body

_LOG = logging.getLogger("penstock.alerts")
ANSWER_LIMIT_S = 10.0
"""The time for the whole request to a webhook."""
COMMAND_LIMIT_S = 30.0
"""How long a command may run."""
RETRY_LIMIT_S = 3_600.0
"""How long a failed notification is retried."""


class Notification(msgspec.Struct, frozen=True):
    """A notification that an alert fires or has resolved.

    Args:
        status: "firing" or "resolved".
        rule: the name of the rule.
        processor: the name of the processor.
        metric: the name of the metric.
        limit: the limit in words.
        value: the latest known value of the metric.
        since_ms: the start of the violation (milliseconds since 1970, UTC).
        at_ms: the time of the notification.
        message: the problem in words; of a resolved alert, its duration and what it was.
        severity: its severity, as its rule declares it.
        runbook: the address of its runbook; empty without one.
    """

    status: str
    rule: str
    processor: str
    metric: str
    limit: str
    value: float
    since_ms: int
    at_ms: int
    message: str
    severity: AlertSeverity = "warning"
    runbook: str = ""

    @property
    def is_resolved(self) -> bool:
        """Whether the alert has resolved."""
        return self.status == "resolved"

    @staticmethod
    def of(alert: ActiveAlert, status: str, at_ms: int) -> Notification:
        """Return a notification of an alert."""
        message = alert.message
        if status == "resolved":
            message = f"Resolved after {human_duration((at_ms - alert.since_ms) / 1000)}. It was: {alert.message}"
        return Notification(
            status=status,
            rule=alert.rule,
            processor=alert.processor,
            metric=alert.metric,
            limit=alert.limit,
            value=alert.value,
            since_ms=alert.since_ms,
            at_ms=at_ms,
            message=message,
            severity=alert.severity,
        )


class NotificationFailed(PenstockError):
    """A recipient did not accept a notification. It is retried."""


class Recipient(Protocol):
    """A recipient of notifications. One thread. It may get a notification twice."""

    def send(self, notification: Notification) -> None:
        """Deliver a notification; blocks until the recipient accepts it.

        Raises:
            NotificationFailed: the recipient did not accept it.
        """
        ...


def runbook_of(rule: str, page: str) -> str:
    """Return the address of a rule's heading on a page of runbooks."""
    return f"{page}#{rule.replace(' ', '-')}"


_encode = msgspec.json.Encoder().encode


class Webhook:
    """A web address. It receives each notification by POST.

    Args:
        url: the address. It may contain a secret, so errors name its host only.
        webhook_format: the format of the requests.
        routing_key: the integration key of a PagerDuty service.

    Raises:
        PenstockError: it is not an http or https address, or PagerDuty lacks its key.
    """

    def __init__(self, url: str, webhook_format: WebhookFormat = WebhookFormat.JSON, *, routing_key: str = "") -> None:
        host = http_host(url)
        if host is None:
            raise PenstockError("The webhook is not a valid http:// or https:// address. No rule was evaluated.")
        if webhook_format is WebhookFormat.PAGERDUTY and not routing_key:
            raise PenstockError(
                "PagerDuty needs the integration key of a service. No rule was evaluated. Set it in PENSTOCK_ALERTS_ROUTING_KEY."
            )
        self._format = webhook_format
        self._routing_key = routing_key
        self._url = url
        self._host = host

    def send(self, notification: Notification) -> None:
        """Post a notification; any answer but 2xx is a failure."""
        request = urllib.request.Request(  # noqa: S310 - http and https alone
            self._url,
            webhook_body(self._format, notification, self._routing_key),
            {"Content-Type": "application/json", "User-Agent": "penstock"},
        )
        try:
            answer = exchange(request, ANSWER_LIMIT_S)
        except (OSError, ValueError, HTTPException) as error:
            raise NotificationFailed(f"The webhook at {self._host} does not answer: {type(error).__name__}.") from error
        if not answer.is_accepted:
            raise NotificationFailed(f"The webhook at {self._host} answered with {answer}.")


class CommandRecipient:
    """A command that runs for each notification, with JSON on its standard input.

    Args:
        line: the command and its arguments, quoted as for a shell. It runs without a shell.
    """

    def __init__(self, line: str) -> None:
        self._arguments = shlex.split(line)

    def send(self, notification: Notification) -> None:
        """Run the command; any exit code but 0 is a failure."""
        name = self._arguments[0]
        try:
            done = subprocess.run(
                self._arguments, input=_encode(notification), capture_output=True, timeout=COMMAND_LIMIT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NotificationFailed(f"The command {name} did not complete: {error}.") from error
        if done.returncode:
            output = done.stderr.decode(errors="replace").strip()[-300:]
            raise NotificationFailed(f"The command {name} exited with {done.returncode}: {output}")


class CategoryRecipient:
    """A category. It receives each notification as JSON, with rule and processor as the key.

    Args:
        name: the category.
        writer: writes to it.
    """

    def __init__(self, name: str, writer: Writer) -> None:
        self._name = name
        self._writer = writer

    @classmethod
    def open(cls, bus: Bus, name: str) -> CategoryRecipient:
        """Return the recipient of a category.

        Raises:
            MissingCategory: the category does not exist.
        """
        bus.catalog.describe(name)
        return cls(name, bus.writer())

    def send(self, notification: Notification) -> None:
        """Write a notification; it is durable on return."""
        key = f"{notification.rule}/{notification.processor}".encode()
        try:
            self._writer.send(self._name, [Outgoing(key, _encode(notification))])
            self._writer.flush()
        except PenstockError as error:
            raise NotificationFailed(str(error)) from error


class NotificationDelivery:
    """Delivers notifications to all recipients. One thread.

    Args:
        recipients: the recipients.
        now_s: returns monotonic seconds, for the time limit of retries.
        runbooks: the address of a page with a heading for each rule; empty without one.
    """

    def __init__(
        self, recipients: Sequence[Recipient], now_s: Callable[[], float] = time.monotonic, *, runbooks: str = ""
    ) -> None:
        self._recipients = recipients
        self._runbooks = runbooks
        self._now_s = now_s
        self._pending: dict[tuple[str, str, str, int], _PendingDelivery] = {}

    def deliver(self, notification: Notification) -> bool:
        """Send a notification to each recipient that has not accepted it yet.

        Returns:
            Whether no recipient is pending. If one is, the caller calls again. After `RETRY_LIMIT_S`, a failing recipient is no longer pending.
        """
        if self._runbooks:
            notification = msgspec.structs.replace(notification, runbook=runbook_of(notification.rule, self._runbooks))
        key = (notification.status, notification.rule, notification.processor, notification.since_ms)
        delivery = self._pending.setdefault(key, _PendingDelivery(self._now_s(), list(self._recipients)))
        delivery.recipients = [
            recipient
            for recipient in delivery.recipients
            if not self._is_done(recipient, notification, delivery.started_s)
        ]
        if not delivery.recipients:
            del self._pending[key]
        return not delivery.recipients

    def _is_done(self, recipient: Recipient, notification: Notification, started_s: float) -> bool:
        """Send a notification; return whether it was accepted, or is not retried."""
        try:
            recipient.send(notification)
        except NotificationFailed as error:
            tried_s = self._now_s() - started_s
            is_retried = tried_s < RETRY_LIMIT_S
            action = "It is retried" if is_retried else f"It is dropped after {tried_s / 60:.0f} min"
            alert = f"{notification.rule} of {notification.processor} is {notification.status}"
            _LOG.warning("%s The notification that %s was not delivered. %s.", error, alert, action)
            return not is_retried
        return True


@dataclass
class _PendingDelivery:
    """A notification that some recipients have not accepted.

    Args:
        started_s: the time of the first attempt, in monotonic seconds.
        recipients: these recipients.
    """

    started_s: float
    recipients: list[Recipient]
