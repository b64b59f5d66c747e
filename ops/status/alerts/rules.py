"""Alert rules: the built-in ones, the rules of an app, and the rules of the configuration."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from ....processors.declare import Alert, AlertSeverity
from ...shell import Section
from ..findings import DROPPED_SHARE
from ..servers import OLD_DAY, OLD_DAY_S
from ..state_findings import DISK_FREE_SHARE

DEFAULTS = (
    Alert("not running", "not_running", above=0, duration=timedelta(minutes=1), severity="critical"),
    Alert("worker failed", "workers_failed", above=0, duration=timedelta(0)),
    Alert("worker silent", "workers_silent", above=0, duration=timedelta(minutes=1)),
    Alert("output missing", "outputs_missing", above=0, duration=timedelta(minutes=1), severity="critical"),
    Alert("lag", "lag_seconds", above=300, duration=timedelta(minutes=2)),
    Alert("blocked by a transaction", "buckets_blocked", above=0, duration=timedelta(minutes=1), severity="critical"),
    Alert("skewed bucket", "skewed_bucket_lag_seconds", above=60, duration=timedelta(minutes=2)),
    Alert("watermark stalled", "watermark_stall_seconds", above=300, duration=timedelta(minutes=2)),
    Alert("waiting", "waiting_seconds", above=30, duration=timedelta(0), severity="critical"),
    Alert("checkpoint old", "checkpoint_age_seconds", above=300, duration=timedelta(minutes=2)),
    Alert("checkpoint slow", "checkpoint_duration_seconds", above=30, duration=timedelta(minutes=2)),
    Alert("disk almost full", "disk_free_share", below=DISK_FREE_SHARE, duration=timedelta(minutes=1)),
    Alert("backup late", "backup_late", above=0, duration=timedelta(minutes=1)),
    Alert("dead letters", "dead_letters_per_second", above=0, duration=timedelta(minutes=1)),
    Alert("many dead letters", "dead_letter_share", above=0.05, duration=timedelta(0)),
    Alert("late events dropped", "dropped_share", above=DROPPED_SHARE, duration=timedelta(0)),
    Alert("events about to expire", "retention_remaining_share", below=0.2, duration=timedelta(0), severity="critical"),
    Alert("figures unknown", "figures_unknown", above=0, duration=timedelta(minutes=1)),
    Alert("crash loop", "crash_looping", above=0, duration=timedelta(0), severity="critical"),
    Alert("lost", "lost", above=0, duration=timedelta(seconds=30), severity="critical"),
    Alert(OLD_DAY, "served_day_age_seconds", above=OLD_DAY_S, duration=timedelta(0)),
    Alert("unsupervised", "unsupervised", above=0, duration=timedelta(0)),
)
"""The built-in rules. A rule of the same name replaces one."""


class Rule(Section, frozen=True):
    """A rule of the configuration: the arguments of `penstock.Alert`, with the duration in seconds."""

    name: str
    metric: str
    above: float | None = None
    below: float | None = None
    duration_s: float = 120.0
    processors: str = "*"
    severity: AlertSeverity = "warning"

    def alert(self) -> Alert:
        """Return the alert rule.

        Raises:
            DeclarationError: the rule names an unknown metric, does not have exactly one limit, or has a negative duration.
        """
        duration = timedelta(seconds=self.duration_s)
        return Alert(self.name, self.metric, self.above, self.below, duration, self.processors, self.severity)


class Alerting(Section, frozen=True):
    """The section ``alerting`` of the configuration."""

    rule: tuple[Rule, ...] = ()

    def alerts(self) -> list[Alert]:
        """Return the alert rules.

        Raises:
            DeclarationError: see `Rule.alert`.
        """
        return [rule.alert() for rule in self.rule]


def rules_of(*overrides: Iterable[Alert]) -> list[Alert]:
    """Return the built-in rules and further ones. Of rules with the same name, the last counts."""
    return list({rule.name: rule for rules in (DEFAULTS, *overrides) for rule in rules}.values())
