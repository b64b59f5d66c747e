"""The protocol between a worker and the backups of its states."""

from __future__ import annotations

from concurrent.futures import Future
from threading import Event
from typing import Protocol

from ....processors.shard import StatePosition
from ....state import ShardIdentity, ShardState
from ....state.backups import BackupError, BackupId


class Backups(Protocol):
    """Backs up the states of shards, and restores them. Any thread may call."""

    def refresh(
        self, identity: ShardIdentity, required: StatePosition, canceled: Event, *, expired: bool = False
    ) -> bool:
        """Replace a missing or outdated local state with a newer one from a backup; return whether it was replaced.

        Waits no longer than until `canceled` is set. If the group's positions have expired, any newer backup is used.
        """
        ...

    def adopt(self, identity: ShardIdentity, state: ShardState) -> None:
        """Back up an open state from now on."""
        ...

    def give_up(self, identity: ShardIdentity, pin: str) -> None:
        """Begin to remove what was copied or stored of an adopted state for a snapshot that has failed; return at once."""
        ...

    def release(self, identity: ShardIdentity) -> None:
        """Stop using a state; return at once."""
        ...

    def copy(self, identity: ShardIdentity, pin: str) -> Future[BackupId]:
        """Copy an adopted state as it is now, and begin to store it as a backup that is kept until it is unpinned.

        Raises:
            StateError: there is no backup store, or the state is not open any more.
        """
        ...

    def close(self) -> None:
        """Stop all backups and restores."""
        ...


class NoBackups:
    """Backups of a worker without a backup store: none."""

    def refresh(
        self,
        identity: ShardIdentity,  # noqa: ARG002 - no backups
        required: StatePosition,  # noqa: ARG002 - no backups
        canceled: Event,  # noqa: ARG002 - no backups
        *,
        expired: bool = False,  # noqa: ARG002 - no backups
    ) -> bool:
        """Do nothing."""
        return False

    def adopt(self, identity: ShardIdentity, state: ShardState) -> None:
        """Do nothing."""

    def give_up(self, identity: ShardIdentity, pin: str) -> None:
        """Do nothing: there are no copies."""

    def release(self, identity: ShardIdentity) -> None:
        """Do nothing."""

    def copy(self, identity: ShardIdentity, pin: str) -> Future[BackupId]:  # noqa: ARG002 - no backups
        """Refuse."""
        raise BackupError(
            f"{identity.processor} has state, and its workers have no backup store. Start them with --backup LOCATION."
        )

    def close(self) -> None:
        """Do nothing."""
