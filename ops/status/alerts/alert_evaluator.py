"""The alert evaluator: evaluates the rules, stores alerts, and sends notifications. Of several evaluators, one is active.

Evaluators are members of one consumer group on the single bucket of `penstock.alerts`. The owner of the bucket is active. If it dies, another
takes over with all active alerts. It reads active alerts once, when it becomes active: from then on only it changes them, and its own writes
may arrive later than its next evaluation. It reads silences at every evaluation, because users add them at any time.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack, closing
from threading import Thread

from msgspec.structs import replace

from ....processors.declare import Alert
from ....transport import Bucket, Bus, BusError, Outgoing, Reader, Writer, create_missing_categories
from ..observer import Observer
from .alert_states import (
    ALERTS,
    ActiveAlert,
    AlertKey,
    AlertReader,
    Alerts,
    alert_message,
    resolved_message,
    unsilence_message,
)
from .evaluation import AlertChange, evaluate
from .notifications import Notification, NotificationDelivery

_LOG = logging.getLogger("penstock.alerts")
GROUP = "penstock.alerts"
POLL_S = 0.1
LAST_WRITES_S = 5.0
"""How long an evaluator that closes waits until its last writes are durable."""


class GroupMembership:
    """The ownership of the single bucket of the group; see `penstock.transport.bus.Ownership`."""

    def __init__(self) -> None:
        self.is_active = False
        """Whether this member owns the bucket."""
        self.is_loaded = False
        """Whether it has read the active alerts since it owns the bucket."""

    def assigned(self, buckets: Sequence[Bucket]) -> None:
        """Become active."""
        self.is_active = self.is_active or bool(buckets)

    def revoked(self, buckets: Sequence[Bucket]) -> None:
        """Become inactive."""
        self.is_active = self.is_active and not buckets
        self.is_loaded = self.is_loaded and self.is_active

    def lost(self, buckets: Sequence[Bucket]) -> None:
        """Become inactive: another member may own the bucket already."""
        self.revoked(buckets)


class AlertEvaluator:
    """Evaluates alert rules while it is active. One thread; open it with `open`, and close it.

    Args:
        bus: the bus of the processors.
        observer: observes the processors; closed with this.
        rules: the rules.
        delivery: delivers notifications.
        membership: the membership in the group.
        reader: the group's reader.
        alerts: reads alerts and silences.
        writer: writes alerts.
    """

    def __init__(
        self,
        bus: Bus,
        observer: Observer,
        rules: Sequence[Alert],
        delivery: NotificationDelivery,
        *,
        membership: GroupMembership,
        reader: Reader,
        alerts: AlertReader,
        writer: Writer,
    ) -> None:
        self._bus = bus
        self._observer = observer
        self._rules = rules
        self._delivery = delivery
        self._membership = membership
        self._reader = reader
        self._stored = alerts
        self._writer = writer
        self._active: dict[AlertKey, ActiveAlert] = {}

    @classmethod
    def open(
        cls, bus: Bus, observer: Observer, rules: Sequence[Alert], delivery: NotificationDelivery
    ) -> AlertEvaluator:
        """Join the group of evaluators. Creates the category of alerts if it is missing. An error closes the observer.

        Raises:
            BusError: Kafka does not answer.
        """
        membership = GroupMembership()
        with ExitStack() as opened:
            opened.enter_context(closing(observer))
            create_missing_categories(bus, ALERTS)
            alerts = opened.enter_context(closing(AlertReader.open(bus)))
            writer = opened.enter_context(closing(bus.writer()))
            reader = bus.reader(GROUP, [ALERTS.name], membership)
            opened.pop_all()
        return cls(bus, observer, rules, delivery, membership=membership, reader=reader, alerts=alerts, writer=writer)

    @property
    def is_active(self) -> bool:
        """Whether this evaluator sends notifications."""
        return self._membership.is_active

    def is_silenced(self, alert: ActiveAlert, now_ms: int) -> bool:
        """Return whether a silence covers an alert, as of the last evaluation."""
        return self._stored.alerts.is_silenced(alert, now_ms)

    def run_once(self) -> list[Notification]:
        """Evaluate the rules once if active; return the notifications that were sent or attempted.

        Raises:
            BusError: Kafka does not answer.
        """
        self._reader.poll(POLL_S)
        if not self.is_active:
            return []
        alerts = self._load()
        cluster = self._observer.observe()
        sent: list[Notification] = []
        messages = [
            unsilence_message(silence.id) for silence in alerts.silences.values() if silence.until_ms <= cluster.at_ms
        ]
        for change in evaluate(self._rules, cluster, alerts):
            messages += self._apply(change, alerts, cluster.at_ms, sent)
        messages += self._notify_firing(alerts, cluster.at_ms, sent)
        self._store(messages)
        return sent

    def _load(self) -> Alerts:
        """Return the active alerts and the silences."""
        if not self._membership.is_loaded:
            self._writer.flush()  # its own writes of an earlier active time
            self._stored.close()
            self._stored = AlertReader.open(self._bus)
            self._active = dict(self._stored.read().active)
            self._observer.note_outage()  # Kafka may have answered no evaluator: workers report first
            self._membership.is_loaded = True
        return Alerts(self._active, self._stored.read().silences)

    def _apply(self, change: AlertChange, alerts: Alerts, now_ms: int, sent: list[Notification]) -> list[Outgoing]:
        """Apply a change, and notify if an alert has resolved; return the messages to store."""
        key, after, before = change
        if after is not None:
            alerts.active[key] = after
            return [alert_message(after)]
        if before is not None and before.notified and not self._send(Notification.of(before, "resolved", now_ms), sent):
            return []  # it stays active until all recipients have the notification
        alerts.active.pop(key, None)
        return [resolved_message(key)]

    def _notify_firing(self, alerts: Alerts, now_ms: int, sent: list[Notification]) -> list[Outgoing]:
        """Notify about firing alerts without a notification; return the messages to store."""
        messages = []
        for alert in list(alerts.active.values()):
            is_due = alert.firing and not alert.notified and not alerts.is_silenced(alert, now_ms)
            if is_due and self._send(Notification.of(alert, "firing", now_ms), sent):
                alerts.active[alert.key] = replace(alert, notified=True)
                messages.append(alert_message(alerts.active[alert.key]))
        return messages

    def _send(self, notification: Notification, sent: list[Notification]) -> bool:
        sent.append(notification)
        return self._delivery.deliver(notification)

    def _store(self, messages: Sequence[Outgoing]) -> None:
        try:
            self._writer.send(ALERTS.name, messages)
        except BusError as error:
            _LOG.warning(
                "%d changes of alerts were not stored. The next active alert process may repeat notifications. %s",
                len(messages),
                error,
            )

    def close(self) -> None:
        """Leave the group, so that another evaluator becomes active at once, and close the observer."""
        with closing(self._observer), closing(self._stored), closing(self._writer), closing(self._reader):
            self._reader.leave()
            flush = Thread(target=self._flush, daemon=True)  # without an answer from Kafka, the process still ends
            flush.start()
            flush.join(LAST_WRITES_S)

    def _flush(self) -> None:
        try:
            self._writer.flush()
        except BusError as error:
            _LOG.info(
                "The last changes of alerts were not stored. The next active alert process may repeat notifications. %s",
                error,
            )
