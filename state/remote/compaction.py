"""Merging appended partials in the background, so that reading stays cheap.

A pass looks through shards for slots with more partials than a limit, combines the partials of each in their order, and puts the result
in their place: in one step, and only where they are still what was read. Their combination stands for them whoever owns the shard, so
a compactor claims nothing, disturbs no owner, and may run twice or be killed at any moment: a slot was replaced, or it was not.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection

from ...processors.declare.aggregator import Aggregator
from ..errors import StateError
from .addresses import address_of
from .errors import StoreInterrupted
from .folder import store_at
from .merging import Merging
from .protocols import CompactedStore, Shard

MORE_THAN = 16
"""How many partials of a slot are left alone."""

PAUSE_S = 10.0
"""How long a compactor rests between passes."""

_LOG = logging.getLogger("penstock.state")


class Compactor:
    """Merges partials, in a thread and over a connection of its own.

    Args:
        store: where they are; the compactor's alone.
        processor: whose they are.
        buckets: asked at each pass: the numbers of the shards to look through.
        more_than: how many partials of a slot are left alone.
        pause_s: how long to rest between passes.
    """

    def __init__(
        self,
        store: CompactedStore,
        processor: type[Aggregator],
        buckets: Callable[[], Collection[int]],
        *,
        more_than: int = MORE_THAN,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._store = store
        self._name = processor.name
        self._merging = Merging(processor.monoid)
        self._buckets = buckets
        self._more_than = more_than
        self._pause_s = pause_s
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"compact-{processor.name}", daemon=True)

    def start(self) -> None:
        """Begin, and go on until closed."""
        self._thread.start()

    def compact(self) -> int:
        """Make one pass; return how many slots it merged."""
        return sum(self._compact_shard(Shard(self._name, bucket)) for bucket in sorted(self._buckets()))

    def close(self) -> None:
        """End after the step at hand, and let go of the store."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()
        self._store.close()

    def _compact_shard(self, shard: Shard) -> int:
        replaced = 0
        for crowds in self._store.crowds(shard, self._more_than):
            if self._ending.is_set():
                break
            if crowds:
                merged = [(crowd, self._merging.combined(list(crowd.partials))) for crowd in crowds]
                replaced += self._store.replace(shard, merged)
        return replaced

    def _run(self) -> None:
        # At first there may be no tables yet: the first shard that is opened makes them.
        while not self._ending.wait(self._pause_s):
            try:
                self.compact()
            except StoreInterrupted as error:
                _LOG.warning("Partials of %s wait for being merged: %s Nothing is lost.", self._name, error)
            except StateError as error:
                _LOG.warning(
                    "Partials of %s cannot be merged, so reading them grows slower: %s Nothing is lost.",
                    self._name,
                    error,
                )


def compactor_of(
    url: str,
    processor: type[Aggregator],
    buckets: Callable[[], Collection[int]] | None = None,
    *,
    more_than: int = MORE_THAN,
    pause_s: float = PAUSE_S,
) -> Compactor:
    """Return a compactor that is not yet started.

    Args:
        url: postgresql://…, redis://… or rediss://…
        processor: whose partials are merged.
        buckets: asked at each pass: the numbers of the shards to look through, such as those that a worker owns; all by default.
        more_than: how many partials of a slot are left alone.
        pause_s: how long to rest between passes.
    """
    every = range(processor.inputs()[0].buckets)
    store = store_at(address_of(url))
    return Compactor(store, processor, buckets or (lambda: every), more_than=more_than, pause_s=pause_s)
