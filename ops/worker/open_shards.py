"""The shards of one worker: wanted, being opened, open.

want --begin_opening--> opened in threads --opened--> open --close or reopen-->
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial

from ..clock import Clock
from .cleanup import do_all
from .open_shard import OpenShard, close_shard
from .shard_loader import Backups, LoadedShard, ShardLoader

Forget = Callable[[Collection[int]], None]
"""Drops everything that is kept about some shards."""


class OpenShards:
    """Opens and closes shards. One thread.

    Args:
        loader: opens them in threads.
        backups: backs up their states while they are open.
        clock: says when shards may be opened.
        forget: called for shards that are closed.
    """

    def __init__(self, loader: ShardLoader, backups: Backups, clock: Clock, forget: Collection[Forget]) -> None:
        self._loader = loader
        self._backups = backups
        self._clock = clock
        self._forget = forget
        self._open: dict[int, OpenShard] = {}
        self._wanted: set[int] = set()
        self._open_at_s = 0.0
        self.is_reopening = False
        """Whether shards were closed by a failure and none is being opened again yet."""

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
            is_ready: whether the outputs of an earlier life are settled, so that the committed positions are final.
        """
        if self._wanted and self._clock.monotonic_s() >= self._open_at_s and is_ready():
            numbers, self._wanted, self.is_reopening = sorted(self._wanted), set(), False
            self._loader.begin(numbers)

    def opened(self) -> Iterator[LoadedShard]:
        """Yield the shards that have been opened meanwhile; each counts as open from then on.

        Raises:
            PenstockError: a shard cannot be opened.
        """
        for loaded in self._loader.finished():
            self._open[loaded.shard.number] = loaded.shard
            yield loaded

    def back_up(self, shard: OpenShard) -> None:
        """Back up an open shard from now on."""
        identity = self._loader.identity(shard.number)
        if identity is not None and shard.state is not None:
            self._backups.adopt(identity, shard.state)

    def note_committed(self, numbers: Collection[int]) -> None:
        """Record on the bus that the group has committed positions of these shards; returns at once."""
        self._loader.note_committed(sorted(numbers))

    def release(self, numbers: Collection[int]) -> None:
        """Close shards that belong to another worker now, without saving, and open them no further."""
        self._wanted.difference_update(numbers)
        do_all([lambda: self.close(numbers), lambda: self._loader.drop(sorted(numbers))])

    def reopen(self, numbers: Collection[int], pause_s: float) -> None:
        """Close all shards without saving, and open some of them again after a pause."""
        self.is_reopening = True
        do_all([lambda: self.close(set(self._open)), self._loader.stop])
        self._wanted = set(numbers)
        self._open_at_s = self._clock.monotonic_s() + pause_s

    def close(self, numbers: Collection[int]) -> None:
        """Close shards without saving."""
        closing = [partial(self._close_one, number) for number in set(numbers) & set(self._open)]
        do_all([*closing, *(partial(forget, numbers) for forget in self._forget)])

    def _close_one(self, number: int) -> None:
        shard, identity = self._open.pop(number), self._loader.identity(number)
        release = [] if identity is None else [lambda: self._backups.release(identity)]
        do_all([*release, partial(close_shard, shard)])

    def stop(self) -> None:
        """Open no shard any more."""
        self._loader.close()
