"""Errors of the warehouse and of batch runs, by the user's next step."""

from ..processors.errors import PenstockError


class WarehouseError(PenstockError):
    """The warehouse failed: check its location, permissions and service, then run again."""


class WarehouseFileMissing(WarehouseError):
    """A file is not in the warehouse."""


class ArchiveRefused(PenstockError):
    """The archive has other settings than requested. Nothing was changed."""


class ArchiveGap(PenstockError):
    """Events expired in Kafka before they were archived: decide whether to continue without them."""


class BackfillRefused(PenstockError):
    """A batch run would differ from the stream, or would overwrite its output: nothing was started."""


class BackfillFailed(PenstockError):
    """A batch run failed: nothing of the current category was published."""
