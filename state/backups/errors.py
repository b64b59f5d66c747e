"""Errors of backups, by the caller's next step."""

from ..errors import StateError


class BackupError(StateError):
    """A backup cannot be made, found or read. The state itself is unaffected."""


class BackupDamaged(BackupError):
    """A backup differs from what was saved: use an earlier one."""


class BackupFenced(BackupError):
    """A newer owner makes the shard's backups: stop making them."""


class BackupCanceled(BackupError):
    """The backup or restore was canceled. Files stored so far are not a backup."""
