"""Errors of states and their files, by the caller's next step."""

from ..processors import PenstockError


class StateError(PenstockError):
    """A state cannot be opened, read or written. Earlier checkpoints are intact."""


class StateInUse(StateError):
    """Another process has opened the state: stop it, or wait."""


class ForeignState(StateError):
    """The folder contains the state of another processor, bucket, type or format. Nothing was changed."""


class StateUnwritable(StateError):
    """The disk or folder refuses access: do what the message says, then start again."""


class StateDamaged(StateError):
    """Checksums do not match: move the folder away, then restore a backup or rebuild the state from Kafka."""


class FileStoreUnreachable(StateError):
    """A file store does not answer or refuses a request: retry later."""


class FileStoreRefuses(FileStoreUnreachable):
    """The path or its rights do not allow a request: a person must change them, and a repetition does not help."""


class FileMissing(StateError):
    """A file is not in its file store."""


class BadStoreAddress(StateError):
    """The address is not one of a supported store: change it."""
