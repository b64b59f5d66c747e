"""The alert loop: runs the evaluator, also through outages of Kafka, and sends notifications about them.

Kafka answers --no answer for `unreachable_after_s`--> firing (notification) --Kafka answers--> resolved (notification)

During an outage no category accepts a notification, so the active process sends it by webhook and command. Perhaps only the clients of this
process fail: after `RENEW_AFTER_S` the loop closes them, so that another process becomes active if Kafka answers it, and retries with new ones.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from msgspec.structs import replace

from ....processors import human_duration
from ....transport import Bus, BusError, BusUnreachable
from ...shell import SystemClock
from .alert_evaluator import AlertEvaluator
from .alert_states import ActiveAlert
from .notifications import Notification, NotificationDelivery

_LOG = logging.getLogger("penstock.alerts")
UNREACHABLE_RULE = "kafka unreachable"
"""The name of the rule, for silences."""
UNREACHABLE_PROCESSOR = "kafka"
"""The value of the field `processor` in notifications about outages."""
UNREACHABLE_AFTER_S = 30.0
"""The default duration of an outage before a notification. A restart of a broker takes less."""
RENEW_AFTER_S = 20.0
"""The duration of an outage from which each retry uses new Kafka clients."""


class _Outage(NamedTuple):
    """An outage of Kafka.

    Args:
        since_ms: the start of the first request without an answer (milliseconds since 1970, UTC).
        reason: the error of that request.
        was_active: whether this process was the active one. Only the active process sends notifications.
    """

    since_ms: int
    reason: str
    was_active: bool


class AlertLoop:
    """Evaluates the rules again and again, and reports outages of Kafka. One thread; open it with `open`, and close it.

    Args:
        connect: returns a bus with new clients.
        bus: the first bus of the processors.
        evaluator: evaluates the rules; closed with this.
        open_evaluator: opens another evaluator on a bus. Called if one cannot continue after an outage.
        delivery: delivers notifications about outages, without Kafka.
        unreachable_after_s: the duration of an outage before a notification, in seconds.
        now_ms: returns the time in milliseconds since 1970, UTC.
    """

    def __init__(
        self,
        connect: Callable[[], Bus],
        open_evaluator: Callable[[Bus], AlertEvaluator],
        delivery: NotificationDelivery,
        *,
        bus: Bus,
        evaluator: AlertEvaluator,
        unreachable_after_s: float,
        now_ms: Callable[[], int],
    ) -> None:
        self._connect = connect
        self._bus = bus
        self._evaluator = evaluator
        self._open_evaluator = open_evaluator
        self._delivery = delivery
        self._unreachable_after_s = unreachable_after_s
        self._now_ms = now_ms
        self._is_evaluator_closed = False
        self._outage: _Outage | None = None
        self._outage_alert: ActiveAlert | None = None
        self._pending: list[Notification] = []

    @classmethod
    def open(
        cls,
        connect: Callable[[], Bus],
        open_evaluator: Callable[[Bus], AlertEvaluator],
        delivery: NotificationDelivery,
        *,
        unreachable_after_s: float = UNREACHABLE_AFTER_S,
        now_ms: Callable[[], int] | None = None,
    ) -> AlertLoop:
        """Return a loop with an evaluator; see `AlertLoop`.

        Raises:
            BusError: Kafka does not answer.
        """
        now_ms = now_ms or SystemClock().now_ms
        bus = connect()
        return cls(
            connect,
            open_evaluator,
            delivery,
            bus=bus,
            evaluator=open_evaluator(bus),
            unreachable_after_s=unreachable_after_s,
            now_ms=now_ms,
        )

    @property
    def is_active(self) -> bool:
        """Whether this process sends notifications."""
        return self._evaluator.is_active

    @property
    def is_evaluating(self) -> bool:
        """Whether this process has evaluated the rules in its last turn."""
        return self.is_active and self._outage is None

    def run_once(self) -> list[Notification]:
        """Evaluate the rules once if active and Kafka answers; return the new notifications."""
        started_ms = self._now_ms()
        try:
            self._recover()
            evaluated = self._evaluator.run_once()
        except BusError as error:
            notifications = self._on_error(error, started_ms)
        else:
            notifications = [*self._on_answer(), *evaluated]
        while self._pending and self._delivery.deliver(self._pending[0]):
            del self._pending[0]
        return notifications

    def _recover(self) -> None:
        """Check during an outage whether Kafka answers: an evaluator that became inactive meanwhile would not notice.

        Raises:
            BusError: Kafka does not answer.
        """
        if self._outage is None:
            return
        if self._now_ms() - self._outage.since_ms >= RENEW_AFTER_S * 1000:
            self.close()  # leaves the group, so that a process whose clients work becomes active
            self._bus = self._connect()
        self._bus.catalog.names()
        if self._is_evaluator_closed:
            self._evaluator, self._is_evaluator_closed = self._open_evaluator(self._bus), False

    def _on_error(self, error: BusError, started_ms: int) -> list[Notification]:
        """Record an outage; return a notification if it has lasted too long."""
        if self._outage is None:
            self._outage = _Outage(started_ms, str(error), self._evaluator.is_active)
            _LOG.warning("Kafka does not answer, so no alert is evaluated. Retrying until it does. %s", error)
        if not isinstance(error, BusUnreachable):
            self.close()  # the error would repeat: the loop opens another evaluator
        return self._notify_outage(self._outage)

    def _notify_outage(self, outage: _Outage) -> list[Notification]:
        now_ms = self._now_ms()
        duration_s = (now_ms - outage.since_ms) / 1000
        if not outage.was_active or self._outage_alert is not None or duration_s < self._unreachable_after_s:
            return []
        alert = ActiveAlert(
            rule=UNREACHABLE_RULE,
            processor=UNREACHABLE_PROCESSOR,
            metric="kafka_unreachable_seconds",
            limit=f"above {self._unreachable_after_s:g}",
            value=duration_s,
            since_ms=outage.since_ms,
            firing=True,
            severity="critical",
            message=f"Kafka has not answered this process for {human_duration(duration_s)}, so it evaluates no alert; the status of all processors is unknown. "
            f"{outage.reason} If other programs reach Kafka, check the network of {platform.node()}.",
        )
        if self._evaluator.is_silenced(alert, now_ms):
            return []
        self._outage_alert = alert
        return self._enqueue(Notification.of(alert, "firing", now_ms))

    def _on_answer(self) -> list[Notification]:
        """End an outage; return a notification if one was sent about it."""
        outage, self._outage = self._outage, None
        alert, self._outage_alert = self._outage_alert, None
        if outage is None:
            return []
        now_ms = self._now_ms()
        duration_s = (now_ms - outage.since_ms) / 1000
        message = f"Kafka answers again, after {human_duration(duration_s)}."
        _LOG.warning(message)
        if alert is None:
            return []
        return self._enqueue(replace(Notification.of(alert, "resolved", now_ms), value=duration_s, message=message))

    def _enqueue(self, notification: Notification) -> list[Notification]:
        self._pending.append(notification)
        return [notification]

    def close(self) -> None:
        """Close the evaluator."""
        if not self._is_evaluator_closed:
            self._is_evaluator_closed = True
            with suppress(BusError):  # the outage is reported already
                self._evaluator.close()
