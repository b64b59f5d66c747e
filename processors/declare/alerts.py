"""Alert rules in app files."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypeAlias, get_args

from ..errors import DeclarationError
from ..validation import did_you_mean, expect_types

AlertSeverity: TypeAlias = Literal["critical", "warning"]
"""The severity of an alert: critical if it needs action now."""

ALERT_METRICS = (
    "backlog_events",
    "backlog_bytes",
    "lag_seconds",
    "skewed_bucket_lag_seconds",
    "retention_remaining_share",
    "events_in_per_second",
    "events_out_per_second",
    "bytes_in_per_second",
    "bytes_out_per_second",
    "watermark_lag_seconds",
    "watermark_stall_seconds",
    "checkpoint_age_seconds",
    "checkpoint_duration_seconds",
    "disk_free_share",
    "lookup_table_rows",
    "lookup_table_bytes",
    "lookup_table_unread",
    "backup_age_seconds",
    "backup_late",
    "state_bytes",
    "dead_letters",
    "dead_letters_per_second",
    "dead_letter_share",
    "late_events",
    "workers",
    "workers_silent",
    "workers_failed",
    "not_running",
    "figures_unknown",
    "crash_looping",
    "unsupervised",
    "lost",
    "restarts",
    "buckets_unowned",
)
"""The metrics of a processor that alert rules may name."""


@dataclass(frozen=True)
class Alert:
    """An alert rule: fires when a metric of a processor violates a limit for some time.

    Args:
        name: the name in notifications.
        metric: the metric, as the documentation names it: "lag_seconds", "dead_letters_per_second", …
        above: fire when the metric is greater than this; or
        below: fire when the metric is less than this.
        duration: how long the limit must be violated before the alert fires, and respected before it resolves.
        processors: the names of the processors; "*" matches any text.
        severity: "critical" for an alert that needs action now, else "warning"; receivers route notifications by it.

    Raises:
        DeclarationError: not exactly one limit is declared, the duration is negative, or the metric or the severity is unknown.

    Examples:
        >>> Alert("slow", "lag_seconds", above=600, processors="flight*").limit
        'above 600'
    """

    name: str
    metric: str
    above: float | None = None
    below: float | None = None
    duration: timedelta = timedelta(minutes=2)
    processors: str = "*"
    severity: AlertSeverity = "warning"

    def __post_init__(self) -> None:
        expect_types(f"Alert {self.name!r}", self)
        if self.metric not in ALERT_METRICS:
            raise DeclarationError(
                f"Alert {self.name!r} has the unknown metric {self.metric!r}.{did_you_mean(self.metric, ALERT_METRICS)} No rule was evaluated. "
                "Declare one of the metrics that docs/operations.md lists."
            )
        if (self.above is None) == (self.below is None):
            raise DeclarationError(f"Alert {self.name!r} needs exactly one limit. Declare `above` or `below`.")
        if self.duration < timedelta(0):
            raise DeclarationError(f"Alert {self.name!r}: `duration={self.duration}` must not be negative.")
        if self.severity not in get_args(AlertSeverity):
            raise DeclarationError(
                f"Alert {self.name!r} has the unknown severity {self.severity!r}. Declare one of {', '.join(get_args(AlertSeverity))}."
            )

    def is_beyond(self, figure: float | None) -> bool:
        """Return whether the metric violates the limit. An unknown metric (None) does not."""
        if figure is None:
            return False
        return figure > self.above if self.above is not None else figure < (self.below or 0.0)

    @property
    def limit(self) -> str:
        """The limit in words."""
        return f"above {self.above:g}" if self.above is not None else f"below {self.below:g}"
