"""Errors that a program can catch. Each message says what happened, what it means for the data, and what to do."""

from .backfill import ArchiveGap, ArchiveRefused, BackfillFailed, BackfillRefused, WarehouseError
from .processors import AppFileError, DeclarationError, PenstockError, ProcessorFailed
from .state import BadStoreAddress, FileStoreUnreachable, StateDamaged, StateError, StateInUse
from .state.backups import BackupDamaged, BackupError
from .state.remote import StoreRefused, StoreUnreachable
from .transport import (
    BusError,
    BusUnreachable,
    CategoryExists,
    ForeignMessage,
    GroupInUse,
    MessageRefused,
    MissingCategory,
    NoTransactions,
    SettingsRefused,
)

__all__ = [
    "AppFileError",
    "ArchiveGap",
    "ArchiveRefused",
    "BackfillFailed",
    "BackfillRefused",
    "BackupDamaged",
    "BackupError",
    "BadStoreAddress",
    "BusError",
    "BusUnreachable",
    "CategoryExists",
    "DeclarationError",
    "FileStoreUnreachable",
    "ForeignMessage",
    "GroupInUse",
    "MessageRefused",
    "MissingCategory",
    "NoTransactions",
    "PenstockError",
    "ProcessorFailed",
    "SettingsRefused",
    "StateDamaged",
    "StateError",
    "StateInUse",
    "StoreRefused",
    "StoreUnreachable",
    "WarehouseError",
]
