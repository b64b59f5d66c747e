"""Alert rules in app files."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypeAlias, get_args

from ..errors import DeclarationError

AlertSeverity: TypeAlias = Literal["critical", "warning"]
"""The severity of an alert: critical if it needs action now."""


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
        DeclarationError: not exactly one limit is declared, the duration is negative, or the severity is unknown.

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
