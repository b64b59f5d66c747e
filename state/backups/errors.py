"""Errors of backups, by what the caller does next."""

from ..errors import StateError


class BackupError(StateError):
    """A backup cannot be made, found or read; the state itself is untouched."""


class BackupDamaged(BackupError):
    """What is stored is not what was saved: use the backup before it."""


class BackupFenced(BackupError):
    """A newer owner backs this shard up: stop doing it."""


class BackupAbandoned(BackupError):
    """Nobody wants the backup any more: what was stored of it is no backup."""
