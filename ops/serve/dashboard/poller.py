"""The poller of the dashboard: reads the status of processors, and the active alerts about them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any, NamedTuple

import msgspec

from ....transport import Bus
from ...status import AlertReader, Alerts, ClusterStatus, Observer, status_to_json


class PolledStatus(NamedTuple):
    """The result of one poll.

    Args:
        cluster: the status of the processors.
        alerts: the active alerts and silences.
    """

    cluster: ClusterStatus
    alerts: Alerts

    def to_json(self) -> dict[str, Any]:
        """Return the status as JSON values, with the alerts of its processors: firing ones first, then the oldest."""
        names = {status.node.name for status in self.cluster.processors}
        active = sorted(self.alerts.active.values(), key=lambda alert: (not alert.firing, alert.since_ms))
        alerts = [
            {**msgspec.to_builtins(alert), "silenced": self.alerts.is_silenced(alert, self.cluster.at_ms)}
            for alert in active
            if alert.processor in names
        ]
        return {**status_to_json(self.cluster), "alerts": alerts}


class Poller:
    """Polls the status. One thread; open it with `open`, and close it.

    Args:
        observer: observes the processors; closed with this.
        alerts: reads alerts and silences; closed with this.
    """

    def __init__(self, observer: Observer, alerts: AlertReader) -> None:
        self._observer = observer
        self._alerts = alerts

    @classmethod
    def open(cls, bus: Bus, observer: Observer) -> Poller:
        """Return a poller. An error closes the observer.

        Raises:
            BusError: Kafka does not answer.
        """
        with ExitStack() as opened:
            opened.enter_context(closing(observer))
            alerts = AlertReader.open(bus)
            opened.pop_all()
        return cls(observer, alerts)

    def poll(self) -> PolledStatus:
        """Return the current status.

        Raises:
            BusError: Kafka does not answer.
        """
        return PolledStatus(self._observer.observe(), self._alerts.read())

    def close(self) -> None:
        """Close the observer and the reader."""
        with closing(self._observer):
            self._alerts.close()


class LazyPoller:
    """A poller that is opened as soon as Kafka answers. One thread; close it.

    Args:
        open_poller: opens it.
    """

    def __init__(self, open_poller: Callable[[], Poller]) -> None:
        self._open_poller = open_poller
        self._poller: Poller | None = None

    def open(self) -> Poller:
        """Open the poller, unless it is open.

        Raises:
            BusError: Kafka does not answer.
        """
        if self._poller is None:
            self._poller = self._open_poller()
        return self._poller

    def poll(self) -> PolledStatus:
        """Return the current status.

        Raises:
            BusError: Kafka does not answer.
        """
        return self.open().poll()

    def close(self) -> None:
        """Close the poller, if it is open."""
        if self._poller is not None:
            self._poller.close()
