"""The shards of one worker: wanted, being opened, open.

want --begin_opening--> opened in threads --opened--> open --close or reopen-->
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from functools import partial

from ....state.backups import BackupId
from ...shell import MachineClock
from .backup_protocol import Backups
from .cleanup import do_all
from .open_shard import OpenShard, close_shard
from .shard_loader import ShardLoader
from .shard_opener import LoadedShard

Forget = Callable[[Collection[int]], None]
"""Drops all data about some shards."""


class OpenShards:
    """Opens and closes shards. One thread.

    Args:
        loader: opens them in threads.
        backups: backs up their states while they are open.
        clock: determines when shards may be opened.
        forget: called for closed shards.
    """

    def __init__(self, loader: ShardLoader, backups: Backups, clock: MachineClock, forget: Collection[Forget]) -> None:
        self._loader = loader
        self._backups = backups
        self._clock = clock
        self._forget = forget
        self._open: dict[int, OpenShard] = {}
        self._wanted: set[int] = set()
        self._open_at_s = 0.0
        self.is_reopening = False
        """Whether a failure has closed shards, and their opening has not begun yet."""

    def __iter__(self) -> Iterator[OpenShard]:
        return iter(self._open.values())

    def get(self, number: int) -> OpenShard | None:
        """Return an open shard."""
        return self._open.get(number)

    @property
    def numbers(self) -> Collection[int]:
        """The bucket numbers of the open shards."""
        return self._open.keys()

    def want(self, numbers: Collection[int]) -> None:
        """Open shards with the next `begin_opening`."""
        self._wanted.update(numbers)

    def begin_opening(self, is_ready: Callable[[], bool]) -> None:
        """Begin to open the wanted shards, each once.

        Args:
            is_ready: ends the worker's earlier transaction, and returns whether it has ended, so that the committed positions are final.
                Called also if no shard is wanted, since readers of the outputs wait for that transaction.
        """
        if self._clock.monotonic_s() >= self._open_at_s and is_ready() and self._wanted:
            numbers, self._wanted, self.is_reopening = sorted(self._wanted), set(), False
            self._loader.begin(numbers)

    def opened(self) -> Iterator[LoadedShard]:
        """Yield shards that were opened since the last call; each counts as open from then on.

        Raises:
            PenstockError: a shard cannot be opened.
        """
        for loaded in self._loader.opened():
            self._open[loaded.shard.number] = loaded.shard
            yield loaded

    def back_up(self, shard: OpenShard) -> None:
        """Back up an open shard from now on."""
        identity = self._loader.identity(shard.number)
        if identity is not None and shard.state is not None:
            self._backups.adopt(identity, shard.state)

    def copy(self, shard: OpenShard, pin: str) -> Future[BackupId] | None:
        """Copy the saved state of an open shard, and begin to store the copy; see `Backups.copy`. Return None for a shard without state."""
        identity = self._loader.identity(shard.number)
        return None if identity is None or shard.state is None else self._backups.copy(identity, pin)

    def give_up(self, pin: str) -> None:
        """Begin to remove what was copied or stored of the open shards for a snapshot that has failed; return at once."""
        for number in self._open:
            identity = self._loader.identity(number)
            if identity is not None:
                self._backups.give_up(identity, pin)

    def record_committed(self, numbers: Collection[int]) -> None:
        """Record on the bus that the group has committed positions of these shards; return at once."""
        self._loader.record_committed(sorted(numbers))

    def release(self, numbers: Collection[int]) -> None:
        """Close shards that belong to another worker now, without saving, and cancel their opening."""
        self._wanted.difference_update(numbers)
        do_all([lambda: self.close(numbers), lambda: self._loader.cancel(sorted(numbers))])

    def reopen(self, numbers: Collection[int], pause_s: float) -> None:
        """Close all shards without saving, and open some of them again after a pause."""
        self.is_reopening = True
        do_all([lambda: self.close(set(self._open)), self._loader.cancel_all])
        self._wanted = set(numbers)
        self._open_at_s = self._clock.monotonic_s() + pause_s

    def close(self, numbers: Collection[int]) -> None:
        """Close shards without saving."""
        closing = [partial(self._close_shard, number) for number in set(numbers) & set(self._open)]
        do_all([*closing, *(partial(forget, numbers) for forget in self._forget)])

    def _close_shard(self, number: int) -> None:
        shard, identity = self._open.pop(number), self._loader.identity(number)
        release = [] if identity is None else [lambda: self._backups.release(identity)]
        do_all([*release, partial(close_shard, shard)])

    def stop(self) -> None:
        """Cancel all openings; open no shard any more."""
        self._loader.close()
