"""The evaluation of alert rules. It is pure, and short excursions of a metric change nothing.

limit respected --violated--> pending --for the rule's duration--> firing (notification)
firing --limit respected for the duration, and at least a minute--> resolved (notification)

While a cause is reported, such as a missing output, a crash loop or a sink that does not answer, and until that alert has resolved, what follows from it raises no alerts of
its own. Alerts that fired before stay until they resolve by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple

from msgspec.structs import replace

from ....processors.declare import Alert
from ..finding import Severity
from ..metrics import PROCESSOR_METRICS, alert_values
from ..servers import OLD_DAY
from ..status import ClusterStatus
from .alert_states import ActiveAlert, AlertKey, Alerts

MIN_RECOVERY_MS = 60_000
"""The shortest time that a metric must respect its limit before its alert resolves, however short the rule's duration is."""

_WITHOUT_PROGRESS = frozenset(
    {
        "backlog_events",
        "lag_seconds",
        "skewed_bucket_lag_seconds",
        "watermark_lag_seconds",
        "watermark_stall_seconds",
        "checkpoint_age_seconds",
        "checkpoint_duration_seconds",
        "workers_failed",
        "workers_silent",
        "unsupervised",
    }
)
"""The metrics that a processor without progress violates, too, also for some time after it continues."""
_STOPPED = frozenset({"crash_looping", "not_running", "lost"})
_CONSEQUENCES: dict[str, frozenset[str]] = {
    "outputs_missing": _STOPPED | _WITHOUT_PROGRESS,
    **dict.fromkeys((*_STOPPED, "waiting_seconds", "buckets_blocked"), _WITHOUT_PROGRESS),
    "lag_seconds": frozenset({"watermark_lag_seconds", "watermark_stall_seconds"}),
}
"""The metrics that follow from the violation of another one."""
_FINDINGS = {
    "backlog_events": frozenset({"lag", "without owner"}),
    "lag_seconds": frozenset({"lag", "without owner"}),
    "skewed_bucket_lag_seconds": frozenset({"skew"}),
    "watermark_lag_seconds": frozenset({"held back", "no watermark"}),
    "watermark_stall_seconds": frozenset({"held back", "no watermark"}),
    "checkpoint_age_seconds": frozenset({"checkpoint"}),
    "checkpoint_duration_seconds": frozenset({"checkpoint"}),
    "backup_age_seconds": frozenset({"backup"}),
    "backup_late": frozenset({"backup"}),
    "dead_letters": frozenset({"dead letters"}),
    "dead_letters_per_second": frozenset({"dead letters"}),
    "dead_letter_share": frozenset({"dead letters"}),
    "disk_free_share": frozenset({"disk"}),
    "figures_unknown": frozenset({"unknown"}),
    "workers_failed": frozenset({"failed"}),
    "workers_silent": frozenset({"silent"}),
    "unsupervised": frozenset({"unsupervised"}),
    "buckets_unowned": frozenset({"without owner"}),
    "restarts": frozenset({"restarted"}),
    "dropped_share": frozenset({"late events"}),
    "waiting_seconds": frozenset({"waits"}),
    "buckets_blocked": frozenset({"blocked"}),
    "served_day_age_seconds": frozenset({OLD_DAY}),
}
"""The kinds of findings about a metric."""


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
    explained = {
        (alert.processor, metric)
        for alert in (*violations.values(), *alerts.active.values())
        for metric in _CONSEQUENCES.get(alert.metric, ())
    }
    firing = {key for key, alert in alerts.active.items() if alert.firing}
    return {
        key: alert
        for key, alert in violations.items()
        if key in firing or (alert.processor, alert.metric) not in explained
    }


def _unknown(rules: Iterable[Alert], cluster: ClusterStatus) -> set[AlertKey]:
    """Return the alerts whose metric Kafka did not return: they stay as they are."""
    return {
        (rule.name, status.node.name)
        for status in cluster.processors
        if status.failed_queries
        for rule in rules
        if rule.metric in PROCESSOR_METRICS and PROCESSOR_METRICS[rule.metric].of(status) is None
    }


def _violations(rules: Iterable[Alert], cluster: ClusterStatus) -> Iterator[tuple[AlertKey, ActiveAlert]]:
    for rule in rules:
        for name, value in alert_values(rule.metric, cluster):
            if value is not None and fnmatchcase(name, rule.processors) and rule.is_beyond(value):
                message = _message(rule, name, value, cluster)
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


def _message(rule: Alert, name: str, value: float, cluster: ClusterStatus) -> str:
    """Return the value, the limit, and the findings about it or critical ones: the others are in the status, and would hide the cause."""
    own = [finding for finding in cluster.findings if finding.processor == name]
    kinds = _FINDINGS.get(rule.metric, frozenset())
    about = [finding for finding in own if finding.severity is Severity.CRITICAL or finding.kind in kinds]
    serious = [finding for finding in own if finding.severity is not Severity.NOTE]
    findings = " ".join(finding.message for finding in about or serious)
    return f"{rule.metric} of {name} is {value:,.6g}, {rule.limit}. {findings}".rstrip()


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
