"""Standby: a worker keeps copies of the states that other machines own, in a thread beside its loop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable

from ....processors import BackgroundThread, LogRateLimiter, counted
from ....processors.shard import StatePosition
from ....state import ShardIdentity, StateError
from ....state.backups import StandbyCopies

_LOG = logging.getLogger("penstock.state")
CLOSE_LIMIT_S = 2.0


class Standby:
    """Copies the newest backups of a processor's shards that this machine does not own, again and again.

    Errors are logged, and the next round tries again. They never affect the worker.

    Args:
        copies: the machine's copies.
        every_s: the interval between two rounds.
        shards: returns the shards that have backups.
        open_shards: the shards that this worker has open now.
        local_position: returns the position of a shard's state on this machine.
    """

    def __init__(
        self,
        copies: StandbyCopies,
        every_s: float,
        shards: Callable[[], Iterable[ShardIdentity]],
        open_shards: Collection[ShardIdentity],
        local_position: Callable[[ShardIdentity], StatePosition],
    ) -> None:
        self.copies = copies
        self._every_s = every_s
        self._shards = shards
        self._open_shards = open_shards
        self._local_position = local_position
        self._log_limiter = LogRateLimiter()
        self._thread = BackgroundThread("penstock-standby", self._work)
        self.current = 0
        """The number of other workers' shards that the machine could take over without a download at the end of the last round."""

    def start(self) -> None:
        """Begin the first round; return at once."""
        self._thread.start()

    def close(self) -> None:
        """Stop. A copy in progress is canceled by its store."""
        self._thread.close(CLOSE_LIMIT_S)

    def _work(self) -> None:
        while not self._thread.is_closed:
            try:
                self._update_all()
            except StateError as error:
                self._log(error)
            except Exception:  # noqa: BLE001 - no error may end the worker or the standby
                _LOG.exception("The standby has failed. It tries again in %.0f s.", self._every_s)
            self._thread.wait(self._every_s)

    def _update_all(self) -> None:
        before, current = self.current, 0
        for shard in self._shards():
            if self._thread.is_closed:
                return
            current += self._update(shard)
        self.current = current
        if current != before:
            _LOG.info("%s of other workers can be taken over here without a download.", counted(current, "shard"))

    def _update(self, shard: ShardIdentity) -> bool:
        try:
            if shard in self._open_shards:
                self.copies.drop(shard)
                return False
            return self.copies.update(shard, lambda: self._local_position(shard))
        except StateError as error:
            self._log(error)
            return False

    def _log(self, error: StateError) -> None:
        if self._log_limiter.is_due() and not self._thread.is_closed:
            _LOG.warning(
                "%s The standby tries again in %.0f s; a takeover meanwhile downloads more.", error, self._every_s
            )
