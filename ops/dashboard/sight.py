"""One look: how processors stand, and which alerts are raised about them."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from ...transport.bus import Bus
from ...transport.ensuring import ensure
from ..alerting.states import ALERTS, Alerts, KeptAlerts
from ..watching.describing import described
from ..watching.observer import Observer
from ..watching.standing import Picture


class Seen(NamedTuple):
    """What one look gave.

    Args:
        picture: how processors stand.
        alerts: what is raised and silenced.
    """

    picture: Picture
    alerts: Alerts

    def content(self) -> dict[str, Any]:
        """Return it as JSON has it, with the alerts about processors that are shown, the longest first."""
        names = {standing.node.name for standing in self.picture.standings}
        raised = sorted(self.alerts.raised.values(), key=lambda alert: (not alert.firing, alert.since_ms))
        alerts = [
            {**msgspec.to_builtins(alert), "silenced": self.alerts.silenced(alert, self.picture.at_ms)}
            for alert in raised
            if alert.processor in names
        ]
        return {**described(self.picture), "alerts": alerts}


class Sight:
    """Looks. One thread; close it.

    Args:
        bus: where alerts are kept.
        observer: looks at processors; closed with this.
    """

    def __init__(self, bus: Bus, observer: Observer) -> None:
        ensure(bus, ALERTS)
        self._observer = observer
        self._alerts = KeptAlerts(bus)

    def look(self) -> Seen:
        """Return how everything stands now."""
        return Seen(self._observer.look(), self._alerts.read())

    def close(self) -> None:
        """Look no more."""
        self._alerts.close()
        self._observer.close()
