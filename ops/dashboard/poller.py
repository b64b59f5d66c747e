"""One look: how processors stand, and which alerts are raised about them."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from ...transport.bus import Bus
from ...transport.internal_topics import create_missing_categories
from ..alerting.alert_states import ALERTS, Alerts, KeptAlerts
from ..monitoring.observer import Observer
from ..monitoring.status import ClusterStatus
from ..monitoring.status_json import described


class PolledStatus(NamedTuple):
    """What one look gave.

    Args:
        picture: how processors stand.
        alerts: what is raised and silenced.
    """

    picture: ClusterStatus
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


class Poller:
    """Looks. One thread; close it.

    Args:
        bus: where alerts are kept.
        observer: looks at processors; closed with this.
    """

    def __init__(self, bus: Bus, observer: Observer) -> None:
        create_missing_categories(bus, ALERTS)
        self._observer = observer
        self._alerts = KeptAlerts(bus)

    def look(self) -> PolledStatus:
        """Return how everything stands now."""
        return PolledStatus(self._observer.look(), self._alerts.read())

    def close(self) -> None:
        """Look no more."""
        self._alerts.close()
        self._observer.close()
