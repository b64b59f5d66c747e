"""Errors of the warehouse and of batch runs, by the user's next step."""

from ..processors import PenstockError


class WarehouseError(PenstockError):
    """The warehouse failed: correct the location, its permissions or the service, and run again."""


class WarehouseFileMissing(WarehouseError):
    """A file is not in the warehouse."""


class ArchiveRefused(PenstockError):
    """The requested settings differ from those of the existing archive: nothing was changed."""


class ArchiveGap(PenstockError):
    """The next events to archive have expired on the bus: the user must choose how to continue."""


class BackfillRefused(PenstockError):
    """A batch run cannot produce the stream's result, or would overwrite output: nothing was started."""


class BackfillFailed(PenstockError):
    """A batch run failed: no output of the current category was published."""
