"""The evaluation of alert rules. It is pure, and short excursions of a metric change nothing.

limit respected --violated--> pending --for the rule's duration--> firing (notification)
firing --limit respected for the duration, and at least a minute--> resolved (notification)

While a missing output is reported, and until that alert has resolved, the failures that follow from it raise no alerts of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple

from msgspec.structs import replace

from ...processors.declare.alerts import Alert
from ..monitoring.metrics import PROCESSOR_METRICS
from ..monitoring.status import ClusterStatus, ProcessorStatus
from .alert_states import ActiveAlert, AlertKey, Alerts

MIN_RECOVERY_MS = 60_000
"""The shortest time that a metric must respect its limit before its alert resolves, however short the rule's duration is."""

_CAUSE = "outputs_missing"
_CONSEQUENCES = frozenset({"crash_looping", "not_running", "workers_failed"})
"""The metrics that a missing output violates, too, also for some time after the output was created again."""


class AlertChange(NamedTuple):
    """The change of an alert by an evaluation.

    Args:
        key: the rule and the processor.
        after: the new alert; None if it has resolved.
        before: the earlier alert; None if it is new.
    """

    key: AlertKey
    after: ActiveAlert | None
    before: ActiveAlert | None


def evaluate(rules: Iterable[Alert], cluster: ClusterStatus, alerts: Alerts) -> list[AlertChange]:
    """Return the changes of alerts. An alert without a rule resolves; one whose metric is unknown does not change.

    Args:
        rules: the rules.
        cluster: the current status.
        alerts: the alerts so far.
    """
    by_name = {rule.name: rule for rule in rules}
    unknown = _unknown(by_name.values(), cluster)
    violations = _unexplained(dict(_violations(by_name.values(), cluster)), alerts)
    changes = []
    for key in sorted((violations.keys() | alerts.active.keys()) - unknown):
        before, rule = alerts.active.get(key), by_name.get(key[0])
        after = None if rule is None else _next_state(rule, before, violations.get(key), cluster.at_ms)
        if after != before:
            changes.append(AlertChange(key, after, before))
    return changes


def _unexplained(violations: dict[AlertKey, ActiveAlert], alerts: Alerts) -> dict[AlertKey, ActiveAlert]:
    """Return the violations that are not consequences of another one."""
    explained = {alert.processor for alert in (*violations.values(), *alerts.active.values()) if alert.metric == _CAUSE}
    return {
        key: alert
        for key, alert in violations.items()
        if alert.metric not in _CONSEQUENCES or alert.processor not in explained
    }


def _unknown(rules: Iterable[Alert], cluster: ClusterStatus) -> set[AlertKey]:
    """Return the alerts whose metric Kafka did not return: they stay as they are."""
    return {
        (rule.name, status.node.name)
        for status in cluster.processors
        if status.failed_queries
        for rule in rules
        if PROCESSOR_METRICS[rule.metric].of(status) is None
    }


def _violations(rules: Iterable[Alert], cluster: ClusterStatus) -> Iterator[tuple[AlertKey, ActiveAlert]]:
    for rule in rules:
        for status in cluster.processors:
            name = status.node.name
            value = PROCESSOR_METRICS[rule.metric].of(status) if fnmatchcase(name, rule.processors) else None
            if value is not None and rule.is_beyond(value):
                message = _message(rule, status, value, cluster)
                yield (
                    (rule.name, name),
                    ActiveAlert(
                        rule.name,
                        name,
                        rule.metric,
                        rule.limit,
                        float(value),
                        cluster.at_ms,
                        message=message,
                        severity=rule.severity,
                    ),
                )


def _message(rule: Alert, status: ProcessorStatus, value: float, cluster: ClusterStatus) -> str:
    """Return the value, the limit, and the findings of the processor."""
    findings = " ".join(finding.message for finding in cluster.findings if finding.processor == status.node.name)
    return f"{rule.metric} of {status.node.name} is {value:,.6g}, {rule.limit}. {findings}".rstrip()


def _next_state(
    rule: Alert, before: ActiveAlert | None, violation: ActiveAlert | None, now_ms: int
) -> ActiveAlert | None:
    duration_ms = rule.duration.total_seconds() * 1000
    if violation is not None:
        since_ms = now_ms if before is None else before.since_ms
        firing = (before is not None and before.firing) or now_ms - since_ms >= duration_ms
        return replace(violation, since_ms=since_ms, firing=firing, notified=before is not None and before.notified)
    if before is None or not before.firing:
        return None
    recovering_since_ms = now_ms if before.recovering_since_ms is None else before.recovering_since_ms
    if now_ms - recovering_since_ms >= max(duration_ms, MIN_RECOVERY_MS):
        return None
    return replace(before, recovering_since_ms=recovering_since_ms)
