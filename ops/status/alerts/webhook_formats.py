"""The bodies of webhook requests: JSON, Slack, PagerDuty and Alertmanager.

Sources: Slack's "Incoming webhooks" and "Secondary message attachments"; PagerDuty's "Events API v2"; Alertmanager's OpenAPI specification, version 2.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from .notifications import Notification

SUMMARY_LENGTH = 1024
"""The longest summary that PagerDuty accepts, in characters."""
FIRING_FOR = timedelta(days=7)
"""The time after which Alertmanager resolves an alert without a resolved notification. Its default of five minutes would resolve every alert."""
_SLACK_COLORS = {"critical": "#a30200", "warning": "#daa038"}
_RESOLVED_COLOR = "#2eb886"
_encode = msgspec.json.Encoder().encode


class WebhookFormat(StrEnum):
    """The format of a webhook's requests."""

    JSON = "json"
    """All fields of the notification."""
    SLACK = "slack"
    """An incoming webhook of Slack, or of a service that accepts its messages."""
    PAGERDUTY = "pagerduty"
    """PagerDuty's Events API v2."""
    ALERTMANAGER = "alertmanager"
    """Alertmanager's `/api/v2/alerts`."""


def webhook_body(webhook_format: WebhookFormat, notification: Notification, routing_key: str = "") -> bytes:
    """Return the body of a request.

    Args:
        webhook_format: the format of the receiver.
        notification: the notification.
        routing_key: the integration key of a PagerDuty service.
    """
    if webhook_format is WebhookFormat.PAGERDUTY:
        return _encode({"routing_key": routing_key, **_pagerduty(notification)})
    return _encode(_FORMATS[webhook_format](notification))


def _slack(notification: Notification) -> object:
    title = _title(notification)
    color = _RESOLVED_COLOR if notification.is_resolved else _SLACK_COLORS[notification.severity]
    link = {"title_link": notification.runbook} if notification.runbook else {}
    return {
        "text": _escaped(title),
        "attachments": [
            {
                "color": color,
                "title": "Runbook" if notification.runbook else notification.rule,
                **link,
                "text": _escaped(notification.message),
                "fallback": title,
                "ts": notification.at_ms // 1000,
            }
        ],
    }


def _escaped(text: str) -> str:
    """Escape Slack's control characters: a name or an error must not become a link or a mention."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _pagerduty(notification: Notification) -> dict[str, object]:
    incident = {"dedup_key": f"penstock/{notification.rule}/{notification.processor}"}
    if notification.is_resolved:
        return {"event_action": "resolve", **incident}
    return {
        "event_action": "trigger",
        **incident,
        "payload": {
            "summary": f"{_title(notification)}: {notification.message}"[:SUMMARY_LENGTH],
            "source": notification.processor,
            "severity": notification.severity,
            "timestamp": _time(notification.since_ms),
            "class": notification.rule,
            "custom_details": msgspec.to_builtins(notification),
        },
        "links": [{"href": notification.runbook, "text": "Runbook"}] if notification.runbook else [],
    }


def _alertmanager(notification: Notification) -> object:
    ends_ms = notification.at_ms + (0 if notification.is_resolved else int(FIRING_FOR.total_seconds() * 1000))
    runbook = {"runbook_url": notification.runbook} if notification.runbook else {}
    return [
        {
            "labels": {
                "alertname": notification.rule,
                "processor": notification.processor,
                "severity": notification.severity,
            },
            "annotations": {"summary": _title(notification), "description": notification.message, **runbook},
            "startsAt": _time(notification.since_ms),
            "endsAt": _time(ends_ms),
        }
    ]


def _title(notification: Notification) -> str:
    status = "RESOLVED" if notification.is_resolved else notification.severity.upper()
    return f"[{status}] {notification.rule}: {notification.processor}"


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _json(notification: Notification) -> object:
    return notification


_FORMATS: dict[WebhookFormat, Callable[[Notification], object]] = {
    WebhookFormat.JSON: _json,
    WebhookFormat.SLACK: _slack,
    WebhookFormat.ALERTMANAGER: _alertmanager,
}
