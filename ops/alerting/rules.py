"""The rules that hold: those that make sense everywhere, an app's own, and a file's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from difflib import get_close_matches

from ...processors.declare.alerts import Alert
from ...processors.errors import PenstockError
from ..config.section import Section
from ..monitoring.measures import OF_PROCESSOR

DEFAULTS = (
    Alert("not running", "not_running", above=0, duration=timedelta(minutes=1)),
    Alert("worker failed", "workers_failed", above=0, duration=timedelta(0)),
    Alert("worker silent", "workers_silent", above=0, duration=timedelta(minutes=1)),
    Alert("lag", "behind_seconds", above=300, duration=timedelta(minutes=2)),
    Alert("watermark stuck", "watermark_still_seconds", above=300, duration=timedelta(minutes=2)),
    Alert("checkpoint old", "checkpoint_age_seconds", above=300, duration=timedelta(minutes=2)),
    Alert("backup old", "backup_age_seconds", above=900, duration=timedelta(minutes=2)),
    Alert("dead letters", "dead_letters_per_second", above=0, duration=timedelta(minutes=1)),
    Alert("many dead letters", "dead_letters_share", above=0.05, duration=timedelta(0)),
    Alert("events about to be lost", "retention_left", below=0.2, duration=timedelta(0)),
    Alert("restarts", "restarts", above=2, duration=timedelta(0)),
)
"""Rules that hold unless one of the same name takes their place."""


class Rule(Section, frozen=True):
    """A rule of the configuration: the arguments of `penstock.Alert`, its time in seconds."""

    name: str
    measure: str
    above: float | None = None
    below: float | None = None
    duration_s: float = 120.0
    processors: str = "*"

    def alert(self) -> Alert:
        """Return the rule as it is meant.

        Raises:
            DeclarationError: it cannot be.
        """
        return Alert(
            self.name, self.measure, self.above, self.below, timedelta(seconds=self.duration_s), self.processors
        )


class Alerting(Section, frozen=True):
    """The table ``alerting`` of the configuration."""

    rule: tuple[Rule, ...] = ()

    def alerts(self) -> list[Alert]:
        """Return its rules."""
        return [rule.alert() for rule in self.rule]


class RulesUnfit(PenstockError):
    """A rule cannot be meant as it is written: mend it. Nothing was watched."""


def rules_of(*further: Iterable[Alert]) -> list[Alert]:
    """Return the rules that hold; of those of one name the last.

    Raises:
        RulesUnfit: a rule is about a figure that there is not.
    """
    named = {rule.name: rule for rules in (DEFAULTS, *further) for rule in rules}
    for rule in named.values():
        if rule.measure not in OF_PROCESSOR:
            raise RulesUnfit(
                f"Alert {rule.name!r} is about {rule.measure!r}, which is no figure of a processor{_nearest(rule.measure, list(OF_PROCESSOR))} "
                "docs/operations.md lists them. Nothing is watched until it is mended."
            )
    return list(named.values())


def _nearest(given: str, known: Sequence[str]) -> str:
    near = get_close_matches(given, known, 1)
    return f"; did you mean {near[0]!r}?" if near else "."
