"""Alert rules in app files."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypeAlias, get_args

from ..errors import DeclarationError
from ..figures import PROCESSOR_ROWS
from ..validation import did_you_mean, expect_types

AlertSeverity: TypeAlias = Literal["critical", "warning"]
"""The severity of an alert: critical if it needs action now."""

ALERT_METRICS: dict[str, str] = {row.metric: row.help for row in PROCESSOR_ROWS} | {
    "backlog_events": "backlog in events: input events after the committed offsets",
    "backlog_bytes": "backlog in bytes, estimated from the mean event size",
    "lag_seconds": "lag: seconds that the oldest event of the backlog has waited",
    "skewed_bucket_lag_seconds": "lag in seconds of the slowest bucket if most others have less than a tenth of it, else 0",
    "retention_remaining_share": "remaining retention of the oldest backlog event, as a share from 0 to 1; the lowest of all buckets",
    "watermark_lag_seconds": "watermark lag: seconds between the low watermark and the current time; absent while all buckets are idle",
    "watermark_stall_seconds": "seconds without progress of the low watermark despite a backlog, as measured by this observer",
    "checkpoint_age_seconds": "seconds since the last checkpoint of a worker with unsaved events; the longest of all workers",
    "checkpoint_duration_seconds": "duration of the running checkpoint or of the last one in seconds, the longest of all workers; 0 if none runs or ended recently",
    "lookup_table_rows": "rows of a lookup table in memory; the most of all workers",
    "lookup_table_bytes": "size of the messages with the rows of a lookup table; the most of all workers",
    "lookup_table_unread": "messages that a lookup table had not applied at its last check; the most of all workers",
    "backup_late": "1 if the newest backup of a shard is older than its interval allows, or the backup store does not answer; else 0",
    "dead_letters": "pending dead letters: neither retried nor dropped",
    "dead_letter_share": "dead letters as a share of the events read, from 0 to 1",
    "dropped_share": "events dropped as too late as a share of the events read recently, from 0 to 1",
    "workers": "running workers",
    "waiting_seconds": "seconds for which a worker has waited for a sink, a store, a lookup, a backup, the bucket of a changelog or another Kafka cluster that does not answer; the most of all workers",
    "workers_silent": "workers without a report for 20 s that have not ended, while others run",
    "workers_failed": "workers that failed within the last hour and did not restart, while others run",
    "not_running": "1 if its last worker failed without a missing output, or if no worker has reported for an hour and there is a backlog; else 0",
    "figures_unknown": "figures that Kafka did not return; alerts about them do not change meanwhile",
    "crash_looping": "1 if its workers fail and restart again and again, and no output is missing, which would be the cause; else 0",
    "unsupervised": "1 if a worker runs without the supervisor that would restart it, else 0",
    "lost": "1 if its workers disappeared without a last report, else 0",
    "outputs_missing": "outputs that do not exist, so that workers fail when they write them",
    "buckets_blocked": "buckets whose reader waits for a transaction that has been open for more than 10 s",
    "buckets_unowned": "buckets with a backlog and without an owner",
}
"""The metrics of a processor, which alert rules may name, with their meanings. ops/status/metrics.py computes them."""


SERVER_ALERT_METRICS: dict[str, str] = {
    "served_day_age_seconds": "seconds since the end of the newest day (UTC) that a server of a Laser table of the warehouse serves; without a day, since its deployment",
}
"""The metrics of a server that is deployed on this machine, which alert rules may name, with their meanings."""


@dataclass(frozen=True)
class Alert:
    """An alert rule: fires when a metric of a processor violates a limit for some time.

    Args:
        name: the name in notifications.
        metric: the metric, as the documentation names it: "lag_seconds", "dead_letters_per_second", …
        above: fire when the metric is greater than this; or
        below: fire when the metric is less than this.
        duration: how long the limit must be violated before the alert fires, and respected before it resolves.
        processors: the names of the processors, or of the servers for a metric of servers; "*" matches any text.
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
        known = [*ALERT_METRICS, *SERVER_ALERT_METRICS]
        if self.metric not in known:
            raise DeclarationError(
                f"Alert {self.name!r} has the unknown metric {self.metric!r}.{did_you_mean(self.metric, known)} No rule was evaluated. "
                "Declare one of the metrics that docs/monitoring.md lists."
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
