"""From figures to alerts: pure, and without flapping.

within the limit --beyond--> pending --for `duration`--> firing (told) --within again for `duration`--> over (told)

A figure that crosses its limit for less than that, either way, changes nothing that anybody hears of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from msgspec.structs import replace

from ...processors.declare.alerts import Alert
from ..monitoring.measures import OF_PROCESSOR
from ..monitoring.status import ClusterStatus, ProcessorStatus
from .alert_states import ActiveAlert, Alerts, Subject

LEAST_SETTLING_MS = 60_000
"""How long a figure has to be within its limit again before that counts, however short `duration` is."""


class Change(NamedTuple):
    """What has become of an alert.

    Args:
        subject: the rule and the processor.
        now: the alert as it is; None where it is over.
        before: as it was; None where there was none.
    """

    subject: Subject
    now: ActiveAlert | None
    before: ActiveAlert | None


def judged(rules: Sequence[Alert], picture: ClusterStatus, alerts: Alerts) -> list[Change]:
    """Return what a look changes about alerts.

    Args:
        rules: those that hold.
        picture: what was seen.
        alerts: what there was.
    """
    seen = dict(_breaches(rules, picture))
    by_name = {rule.name: rule for rule in rules}
    changes = []
    for subject in sorted(seen.keys() | alerts.raised.keys()):
        before, rule = alerts.raised.get(subject), by_name.get(subject[0])
        now = None if rule is None else _next(rule, before, seen.get(subject), picture.at_ms)
        if now != before:
            changes.append(Change(subject, now, before))
    return changes


def _breaches(rules: Iterable[Alert], picture: ClusterStatus) -> Iterator[tuple[Subject, ActiveAlert]]:
    for rule in rules:
        for standing in picture.standings:
            name = standing.node.name
            figure = OF_PROCESSOR[rule.measure].of(standing) if fnmatchcase(name, rule.processors) else None
            if figure is not None and rule.is_beyond(figure):
                says = _said(rule, standing, figure, picture)
                yield (
                    (rule.name, name),
                    ActiveAlert(rule.name, name, rule.measure, rule.limit, float(figure), picture.at_ms, says=says),
                )


def _said(rule: Alert, standing: ProcessorStatus, figure: float, picture: ClusterStatus) -> str:
    """Return the figure, and what is known to be wrong with the processor."""
    found = " ".join(finding.message for finding in picture.findings if finding.processor == standing.node.name)
    return f"{rule.measure} of {standing.node.name} is {figure:,.6g}, {rule.limit}. {found}".rstrip()


def _next(rule: Alert, before: ActiveAlert | None, breach: ActiveAlert | None, now_ms: int) -> ActiveAlert | None:
    lasting_ms = rule.duration.total_seconds() * 1000
    if breach is not None:
        since_ms = now_ms if before is None else before.since_ms
        firing = (before is not None and before.firing) or now_ms - since_ms >= lasting_ms
        return replace(breach, since_ms=since_ms, firing=firing, told=before is not None and before.told)
    if before is None or not before.firing:
        return None
    fine_since_ms = now_ms if before.fine_since_ms is None else before.fine_since_ms
    if now_ms - fine_since_ms >= max(lasting_ms, LEAST_SETTLING_MS):
        return None
    return replace(before, fine_since_ms=fine_since_ms)
