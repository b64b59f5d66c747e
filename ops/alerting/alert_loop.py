"""A watch that outlives the bus: while that does not answer, this is what people are told, and watching goes on when it does.

    the bus answers --not for `away_after_s`--> told by whoever has the watch --it answers--> told that it is over

Nobody can take the watch over meanwhile, and no category can be written: it is told to whom the bus is not needed for.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from ...transport.bus import Bus
from ...transport.errors import BusError, BusUnreachable
from ..clock import SystemClock
from ..humanize import human_duration
from ..monitoring.outages import Outage, Outages
from .alert_evaluator import AlertEvaluator
from .alert_states import ActiveAlert
from .notifications import Delivery, Notification

BUS_AWAY = "bus away"
"""The rule's name, by which it is silenced."""
THE_BUS = "the bus"
"""What stands in the place of a processor."""
AWAY_AFTER_S = 30.0
"""After how long without an answer somebody is told: a broker that is started again takes less."""


class AlertLoop:
    """Has a watchman look, again and again. One thread; close it.

    Args:
        bus: where it looks.
        open_watchman: gives one who joins those that watch; called anew where one cannot go on after an outage.
        delivery: tells people without the bus.
        away_after_s: after how long without an answer of the bus they are told.
        now_ms: tells the time, in milliseconds since 1970, UTC.

    Raises:
        BusError: the bus does not answer at the very beginning.
    """

    def __init__(
        self,
        bus: Bus,
        open_watchman: Callable[[], AlertEvaluator],
        delivery: Delivery,
        *,
        away_after_s: float = AWAY_AFTER_S,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        self._bus = bus
        self._open_watchman = open_watchman
        self._delivery = delivery
        self._away_after_s = away_after_s
        self._now_ms = now_ms or SystemClock().now_ms
        self._outages = Outages()
        self._tells = False
        self._raised: ActiveAlert | None = None
        self._untold: list[Notification] = []
        self._watchman = open_watchman()
        self._is_spent = False

    @property
    def on_watch(self) -> bool:
        """Whether the watch is its own."""
        return self._watchman.on_watch

    def turn(self) -> list[Notification]:
        """Look once, if the watch is its own and the bus answers; return what people are told now."""
        began_ms = self._now_ms()
        try:
            self._expect_answer()
            news = [*self._watchman.turn()]
        except BusError as error:
            news = self._without(error, began_ms)
        else:
            news = [*self._back(), *news]
        while self._untold and self._delivery.tell(self._untold[0]):
            del self._untold[0]
        return news

    def _expect_answer(self) -> None:
        """Ask whether the bus is back, where it was away: a watchman that has lost the watch meanwhile would not notice."""
        if self._outages.now is None:
            return
        self._bus.catalog.names()
        if self._is_spent:
            self._watchman, self._is_spent = self._open_watchman(), False

    def _without(self, error: BusError, since_ms: int) -> list[Notification]:
        """Note that the bus did not answer since then; return what people are told of it."""
        begins = self._outages.now is None
        outage = self._outages.note(error, since_ms)
        if begins:
            self._tells = self._watchman.on_watch
        if not isinstance(error, BusUnreachable):
            self.close()  # he would meet the same error again and again: another takes his place
        return self._away(outage)

    def _away(self, outage: Outage) -> list[Notification]:
        now_ms = self._now_ms()
        lasted_s = (now_ms - outage.since_ms) / 1000
        if not self._tells or self._raised is not None or lasted_s < self._away_after_s:
            return []
        says = f"The bus has not answered for {human_duration(lasted_s)}, so nobody knows how any processor is doing. {outage.why}"
        limit = f"above {self._away_after_s:g}"
        raised = ActiveAlert(
            BUS_AWAY, THE_BUS, "bus_away_seconds", limit, lasted_s, outage.since_ms, firing=True, says=says
        )
        if self._watchman.silences(raised, now_ms):
            return []
        self._raised = raised
        return self._told(Notification.of(raised, "firing", now_ms))

    def _back(self) -> list[Notification]:
        """Note that the bus answers; return what people are told of that."""
        now_ms = self._now_ms()
        self._outages.end(now_ms)
        raised, self._raised = self._raised, None
        if raised is None:
            return []
        lasted_s = (now_ms - raised.since_ms) / 1000
        over = replace(raised, figure=lasted_s, says=f"The bus answers again, after {human_duration(lasted_s)}.")
        return self._told(Notification.of(over, "resolved", now_ms))

    def _told(self, notice: Notification) -> list[Notification]:
        self._untold.append(notice)
        return [notice]

    def close(self) -> None:
        """Watch no more."""
        if not self._is_spent:
            self._is_spent = True
            with suppress(BusError):  # what it had to say is said
                self._watchman.close()
