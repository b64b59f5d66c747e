"""Background merging of appended partials, which keeps reads fast.

A pass finds window keys with more partials than a limit, and replaces the partials of each by their combination. A replacement is one step,
and happens only if the partials have not changed since they were read. The combination is equivalent for any owner, so a compactor
claims nothing, disturbs no owner, and may run twice or be killed at any time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from ...processors import BackgroundThread, ProcessorFailed
from ...processors.declare import Aggregator, plan_of
from ..errors import StateError
from .addresses import address_of
from .errors import StoreInterrupted
from .folder import store_at
from .merging import PartialMerger
from .protocols import CompactedStore, StoredShard

PARTIAL_LIMIT = 16
"""A window key with at most this many partials is not compacted."""

PAUSE_S = 10.0
"""The pause of a compactor between passes."""

_LOG = logging.getLogger("penstock.state")


class Compactor:
    """Merges partials in a thread, over a connection of its own.

    Args:
        store: the store, used only by this compactor.
        processor: the aggregator.
        buckets: returns the bucket numbers to compact; called in each pass.
        partial_limit: a window key with at most this many partials is skipped.
        pause_s: the pause between passes.
    """

    def __init__(
        self,
        store: CompactedStore,
        processor: type[Aggregator],
        buckets: Callable[[], Collection[int]],
        *,
        partial_limit: int = PARTIAL_LIMIT,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._store = store
        self._name = processor.name
        self._merger = PartialMerger(processor.monoid)
        self._buckets = buckets
        self._partial_limit = partial_limit
        self._pause_s = pause_s
        self._thread = BackgroundThread(f"compact-{processor.name}", self._run)

    def start(self) -> None:
        """Run until closed."""
        self._thread.start()

    def compact(self) -> int:
        """Make one pass. Return the number of merged window keys."""
        return sum(self._compact_shard(StoredShard(self._name, bucket)) for bucket in sorted(self._buckets()))

    def close(self) -> None:
        """Stop after the current step, and close the store."""
        self._thread.close()
        self._store.close()

    def _compact_shard(self, shard: StoredShard) -> int:
        replaced = 0
        for batch in self._store.unmerged_partials(shard, self._partial_limit):
            if self._thread.is_closed:
                break
            if batch:
                merged = [(unmerged, self._merger.combined(list(unmerged.partials))) for unmerged in batch]
                replaced += self._store.replace(shard, merged)
        return replaced

    def _run(self) -> None:
        # The tables may not exist yet: the first opened shard creates them.
        while not self._thread.wait(self._pause_s):
            try:
                self.compact()
            except StoreInterrupted as error:
                _LOG.warning(
                    "Partials of %s were not merged: %s No data is lost. The next pass merges them.", self._name, error
                )
            except (StateError, ProcessorFailed) as error:
                _LOG.warning(
                    "Partials of %s cannot be merged, so reads become slower: %s No data is lost.",
                    self._name,
                    error,
                )


def compactor_of(
    url: str,
    processor: type[Aggregator],
    buckets: Callable[[], Collection[int]] | None = None,
    *,
    partial_limit: int = PARTIAL_LIMIT,
    pause_s: float = PAUSE_S,
) -> Compactor:
    """Return a compactor, not started yet.

    Args:
        url: postgresql://…, redis://… or rediss://…
        processor: the aggregator.
        buckets: returns the bucket numbers to compact in each pass; by default all. A worker passes its own.
        partial_limit: a window key with at most this many partials is skipped.
        pause_s: the pause between passes.
    """
    every = range(plan_of(processor).inputs[0].buckets)
    store = store_at(address_of(url))
    return Compactor(store, processor, buckets or (lambda: every), partial_limit=partial_limit, pause_s=pause_s)
