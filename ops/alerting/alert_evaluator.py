"""Who watches: looks, judges, keeps and tells. Several may be started; one of them at a time does.

They are members of one consumer group on the one bucket of `penstock.alerts`: whoever owns it watches, and when that one dies
another takes over, with all that was raised. What is raised is read from there once, at that moment: from then on nobody else changes it,
and one's own notes may come back later than the next look. Silences are read all the time, for anybody asks for them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing
from threading import Thread

from msgspec.structs import replace

from ...processors.declare.alerts import Alert
from ...transport.bus import Bus
from ...transport.errors import BusError
from ...transport.internal_topics import create_missing_categories
from ...transport.messages import Bucket, Outgoing
from ..monitoring.observer import Observer
from .alert_states import (
    ALERTS,
    ActiveAlert,
    Alerts,
    KeptAlerts,
    Subject,
    over_message,
    raised_message,
    unsilence_message,
)
from .evaluation import Change, judged
from .notifications import Delivery, Notification

_LOG = logging.getLogger("penstock.alerts")
GROUP = "penstock.alerts"
POLL_S = 0.1
LAST_NOTES_S = 5.0
"""How long one that ends waits until its last notes are on the bus."""


class AlertEvaluator:
    """Watches processors while the watch is its own. One thread; close it.

    Args:
        bus: where they are.
        observer: looks at them; closed with this.
        rules: those that hold.
        delivery: tells people.
    """

    def __init__(self, bus: Bus, observer: Observer, rules: Sequence[Alert], delivery: Delivery) -> None:
        create_missing_categories(bus, ALERTS)
        self._bus = bus
        self._observer = observer
        self._rules = rules
        self._delivery = delivery
        self._on_watch = False
        self._knows = False
        self._kept = KeptAlerts(bus)
        self._raised: dict[Subject, ActiveAlert] = {}
        self._writer = bus.writer()
        self._reader = bus.reader(GROUP, [ALERTS.name], self)

    @property
    def on_watch(self) -> bool:
        """Whether the watch is its own."""
        return self._on_watch

    def silences(self, raised: ActiveAlert, now_ms: int) -> bool:
        """Tell whether nobody is to be told of an alert, as far as is known."""
        return self._kept.alerts.silenced(raised, now_ms)

    def assigned(self, buckets: Sequence[Bucket]) -> None:
        """Take the watch over."""
        self._on_watch = self._on_watch or bool(buckets)

    def revoked(self, buckets: Sequence[Bucket]) -> None:
        """Leave it to another."""
        self._on_watch = self._on_watch and not buckets
        self._knows = self._knows and self._on_watch

    def lost(self, buckets: Sequence[Bucket]) -> None:
        """Note that another has it."""
        self.revoked(buckets)

    def turn(self) -> list[Notification]:
        """Look once, if the watch is its own; return what people are told now."""
        self._reader.poll(POLL_S)
        if not self._on_watch:
            return []
        alerts = self._alerts()
        picture = self._observer.look()
        told = list[Notification]()
        messages = [unsilence_message(one.id) for one in alerts.silences.values() if one.until_ms <= picture.at_ms]
        for change in judged(self._rules, picture, alerts):
            messages += self._changed(change, alerts, picture.at_ms, told)
        messages += self._told_of(alerts, picture.at_ms, told)
        self._keep(messages)
        return told

    def _alerts(self) -> Alerts:
        """Return what is raised and silenced."""
        if not self._knows:
            self._writer.flush()  # what this one has noted itself, when the watch was its own before
            self._kept.close()
            self._kept = KeptAlerts(self._bus)
            self._raised = dict(self._kept.read().raised)
            self._knows = True
        return Alerts(self._raised, self._kept.read().silences)

    def _changed(self, change: Change, alerts: Alerts, now_ms: int, told: list[Notification]) -> list[Outgoing]:
        """Note a change, and tell people of what is over; return what is to be kept."""
        subject, now, before = change
        if now is not None:
            alerts.raised[subject] = now
            return [raised_message(now)]
        if before is not None and before.told and not self._tell(Notification.of(before, "resolved", now_ms), told):
            return []  # it is over when everybody knows
        alerts.raised.pop(subject, None)
        return [over_message(subject)]

    def _told_of(self, alerts: Alerts, now_ms: int, told: list[Notification]) -> list[Outgoing]:
        """Tell people of what fires, as far as they do not know; return what is to be kept."""
        messages = []
        for raised in list(alerts.raised.values()):
            untold = raised.firing and not raised.told and not alerts.silenced(raised, now_ms)
            if untold and self._tell(Notification.of(raised, "firing", now_ms), told):
                alerts.raised[raised.subject] = replace(raised, told=True)
                messages.append(raised_message(alerts.raised[raised.subject]))
        return messages

    def _tell(self, notice: Notification, told: list[Notification]) -> bool:
        told.append(notice)
        return self._delivery.tell(notice)

    def _keep(self, messages: Sequence[Outgoing]) -> None:
        try:
            self._writer.send(ALERTS.name, messages)
        except BusError as error:
            _LOG.warning("Whoever watches next does not know of %d changes: %s", len(messages), error)

    def close(self) -> None:
        """Watch no more."""
        with closing(self._observer), closing(self._kept), closing(self._writer), closing(self._reader):
            self._reader.leave()
            telling = Thread(target=self._flush, daemon=True)  # a bus that does not answer keeps nobody from ending
            telling.start()
            telling.join(LAST_NOTES_S)

    def _flush(self) -> None:
        try:
            self._writer.flush()
        except BusError as error:
            _LOG.info("Whoever watches next does not know of the last changes: %s", error)
