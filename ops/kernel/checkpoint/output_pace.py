"""How much a worker writes with one checkpoint, by what the bus accepts.

A quota, a slow link or an overloaded broker takes the outputs of a checkpoint slower than the worker produces them. Their time limit passes, and
the worker reads their events again. If it then wrote as much in the same time, it would never make progress.

    the outputs of a checkpoint time out --> the next one has half of its events, and the time that all of them would have needed, at least twice
                                             the time, up to a limit
    a checkpoint is saved in a small part of its time --> the next one may have twice as many events as it
    in a tiny part, long after the last time-out --> the next writer has half of the time: readers wait for the transaction of a worker that dies
    one event, and no more time is possible --> the log names the setting: a window that ends, or timers, may write any amount at once

Outputs without a transaction have a fixed time, since they must not be older than the membership. The outputs of one event or window may need
longer, so after a time-out a worker also waits after every few of them.

A small checkpoint before the one that timed out proves nothing about it: with half of the time after each of them, the large one would time out
for ever.
"""

from __future__ import annotations

import logging
import sys
from math import inf

from ....processors import counted

_LOG = logging.getLogger("penstock.worker")
MOST_TIME_S = 890.0
"""The longest time limit: brokers allow transactions 15 minutes by default (`transaction.max.timeout.ms`)."""
RESERVE = 1.5
"""The time for outputs, by the time that they would have needed at the rate at which the bus accepted a part of them."""
GROWING_SHARE = 0.25
"""The share of its time limit in which a checkpoint is saved if twice as many events would certainly fit."""
TRANSACTION_SETTING = (
    "`transaction.timeout.ms` in [kafka-settings], and `transaction.max.timeout.ms` of the brokers, if it is lower"
)
"""What limits the time of a transaction."""
SESSION_SETTING = "`session.timeout.ms` in [kafka-settings]"
"""What limits the time of outputs outside of transactions, which must not be older than the membership."""
SHORTENING_SHARE = GROWING_SHARE / 4
"""The share of its time limit in which a checkpoint is saved if half of the time is enough for twice as many events."""
MOST_PORTION, LEAST_PORTION = 16_384, 64
"""The bounds of the outputs before a worker waits for them, after the outputs of a fixed time have timed out."""
SETTLING_TIMES = 4
"""How many times the limit passes after a time-out before it becomes shorter: until then, the same outputs have been tried again."""


class OutputPace:
    """The events of the next checkpoint, and the time limit of its outputs.

    Args:
        limit_s: the time limit at first. It becomes longer, unless `fix` sets another one.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.most_events = sys.maxsize
        """The most events of a checkpoint; in practice, more than any has unless outputs have timed out."""
        self.portion: int | None = None
        """The outputs after which to wait until the bus has accepted them; None to wait only at checkpoints."""
        self._least_s = limit_s
        self._most_s = max(limit_s, MOST_TIME_S)
        self._timed_out_s = -inf
        self._setting = TRANSACTION_SETTING

    def note_time_out(self, events: int, accepted: float, now_s: float) -> None:
        """Record that only a share of the outputs of a number of events was accepted in time; 0 if unknown."""
        self._timed_out_s = now_s
        if self._is_exhausted:
            _LOG.error(
                "The outputs of a single event did not reach the bus in time. They include those of all windows and timers that it ends. "
                "Nothing is lost, but the worker repeats the event, and makes no progress. Increase %s, or let the bus accept more: a quota, a slow "
                "link or an overloaded broker limits it.",
                self._setting,
            )
            return
        self.most_events = max(1, min(self.most_events, events) // 2)
        if self._setting is SESSION_SETTING:
            self.portion = max(LEAST_PORTION, (self.portion or MOST_PORTION) // 2)
        needed_s = RESERVE * self.limit_s / accepted if accepted else 0.0
        self.limit_s = min(max(needed_s, 2 * self.limit_s), self._most_s)
        _LOG.warning(
            "The next checkpoint contains at most %s, and its outputs may take %.0f s. The limits grow again when checkpoints are quick.",
            counted(self.most_events, "event"),
            self.limit_s,
        )

    @property
    def _is_exhausted(self) -> bool:
        """Whether neither fewer events, nor more time, nor smaller portions are possible."""
        is_divided = self._setting is TRANSACTION_SETTING or self.portion == LEAST_PORTION
        return self.most_events == 1 and self.limit_s == self._most_s and is_divided

    def note_saved(self, events: int, seconds: float, now_s: float) -> None:
        """Record how long a checkpoint of a number of events was saved."""
        is_quick = seconds < GROWING_SHARE * self.limit_s
        has_settled = now_s - self._timed_out_s >= SETTLING_TIMES * self.limit_s
        if is_quick:
            self.most_events = max(self.most_events, 2 * events)
        if is_quick and has_settled and self.portion is not None:
            self.portion = 2 * self.portion if 2 * self.portion < MOST_PORTION else None
        if has_settled and seconds < SHORTENING_SHARE * self.limit_s:
            self.limit_s = max(self._least_s, self.limit_s / 2)

    def fix(self, limit_s: float) -> None:
        """Set the time limit, which does not become longer, for outputs outside of transactions."""
        self._setting = SESSION_SETTING
        self.limit_s = self._least_s = self._most_s = limit_s

    def shorten(self) -> bool:
        """Take the last extension back for good, because the brokers refuse it; return whether there was one."""
        was_extended = self.limit_s > self._least_s
        self._most_s = self.limit_s = max(self._least_s, self.limit_s / 2)
        return was_extended
