"""The state of one claimed shard in a remote store."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from ...processors.declare import WriteMode
from ...processors.keyed_state import Changes
from ...processors.shard import StatePosition
from ..errors import StateError
from ..protocols import Outbox
from .errors import StoreFenced, StoreUnreachable
from .merging import PartialMerger
from .protocols import Claim, OwnedStore, ShardVersion, SlotChanges, StoredShard, Write
from .retry import StoreRetry

_encode_outbox = msgspec.msgpack.Encoder().encode
_decode_outbox = msgspec.msgpack.Decoder(Outbox).decode


class RemoteShardState:
    """A claimed shard; for one thread. Every write takes effect once, even if it is repeated after a lost connection.

    A write that fails has an unknown outcome, and the store could not distinguish the next write from it. Open the state again: its position
    shows whether the write took effect.

    Args:
        store: the store.
        shard: the shard.
        claim: the result of claiming it.
        merger: splits and combines the monoid's partials.
        write_mode: whether changes replace values or are partials to add.
        retry: repeats interrupted requests.
    """

    def __init__(
        self,
        store: OwnedStore,
        shard: StoredShard,
        claim: Claim,
        *,
        merger: PartialMerger,
        write_mode: WriteMode,
        retry: StoreRetry,
    ) -> None:
        self._store = store
        self._shard = shard
        self._version, self._position = claim
        self._merger = merger
        self._split = merger.additions if write_mode is WriteMode.APPEND else merger.replacements
        self._retry = retry
        self._open = True
        self._is_outcome_unknown = False

    def fetch(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each slot, merged from all parts stored there; None for an empty slot.

        Raises:
            StoreFenced: the shard has another owner. Values that the owner has written must not lead to outputs here.
        """
        self._expect_open()
        if not keys:
            return []
        before = self._version
        found = self._retry.call(partial(self._store.parts, self._shard, keys))
        self._expect_owner(before)
        return [self._merger.value(parts) for parts in found]

    def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:  # noqa: ARG002 - the protocol's
        """Return nothing: remote stores are unordered, and aggregators in them have neither closing windows nor timers."""
        return []

    def position(self) -> StatePosition:
        """Return the saved position; empty before the first save."""
        return self._position

    def save(self, changes: Changes) -> None:
        """Save changes of state, all or none."""
        if changes:
            self._commit(Write(self._split(changes), self._position))

    def save_position(self, position: StatePosition) -> None:
        """Save the position that the state reflects."""
        self._commit(Write(SlotChanges(), self._position.updated(position)))

    def save_together(self, changes: Changes, position: StatePosition) -> None:
        """Save changes and the position that reflects them as one."""
        self._commit(Write(self._split(changes), self._position.updated(position)))

    def save_with_outbox(self, changes: Changes, outbox: Outbox) -> None:
        """Save changes, the position at which the outbox ends, and the outbox, as one."""
        position = self._position.updated(outbox.after)
        self._commit(Write(self._split(changes), position, _encode_outbox(outbox)))

    def outbox(self) -> Outbox | None:
        """Return the saved outbox, unless it was cleared."""
        self._expect_open()
        saved = self._retry.call(partial(self._store.outbox, self._shard))
        return _decode_outbox(saved) if saved else None

    def clear_outbox(self) -> None:
        """Clear the outbox."""
        self._commit(Write(SlotChanges(), self._position, b""))

    def become(self, shape: str, position: StatePosition) -> None:
        """Change the type and the position of the shard's state in one write."""
        self._commit(Write(SlotChanges(), position, shape=shape))

    def close(self) -> None:
        """Stop using the shard. It stays claimed until another owner opens it."""
        self._open = False

    def _commit(self, write: Write) -> None:
        self._expect_open()
        if self._is_outcome_unknown:
            raise StoreUnreachable(
                f"{self._shard}: an earlier write failed with an unknown outcome, so nothing more is written. Close the state and open it "
                "again: its position shows which events it includes."
            )
        self._is_outcome_unknown = True
        found = self._retry.call(partial(self._store.commit, self._shard, self._version, write))
        self._expect_ours(found)
        self._is_outcome_unknown = False
        self._version = self._version._replace(saves=self._version.saves + 1)
        self._position = write.position

    def _expect_owner(self, before: ShardVersion) -> None:
        """Raise StoreFenced if another owner has written since `before`. This owner may have saved a checkpoint meanwhile."""
        found = self._retry.call(partial(self._store.version, self._shard))
        if found[:2] == before[:2] and found.saves >= before.saves:
            return
        raise self._fenced(found, "The values read are not used.")

    def _expect_ours(self, found: ShardVersion) -> None:
        """Raise StoreFenced unless the write took effect, now or in an attempt whose answer was lost."""
        ours = self._version
        if found in (ours, ours._replace(saves=ours.saves + 1)):
            return
        raise self._fenced(found, "Nothing was written.")

    def _fenced(self, found: ShardVersion, consequence: str) -> StoreFenced:
        ours = self._version
        if found.owner != ours.owner and found.epoch >= ours.epoch:
            return StoreFenced(
                f"{self._shard}: epoch {ours.epoch} has ended: another worker opened the shard with epoch {found.epoch}. {consequence} "
                "The new owner continues from the last checkpoint. Stop using this shard."
            )
        return StoreFenced(
            f"{self._shard}: the store is at save {found.saves} of epoch {found.epoch}, but this worker's last save was {ours.saves} of epoch "
            f"{ours.epoch}. The store lost saves, by a failover to a replica that lagged behind or by a restored backup. {consequence} "
            "State and position were lost together: open the shard again, and continue from its position."
        )

    def _expect_open(self) -> None:
        if not self._open:
            raise StateError(f"The state of {self._shard} is closed already. Nothing was written. Open it again.")
