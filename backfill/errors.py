"""Errors of the warehouse and of batch runs, by what the reader does next."""

from ..processors.errors import PenstockError


class WarehouseError(PenstockError):
    """The warehouse did not do what was asked: mend the location, its rights or the service, and run again."""


class WarehouseFileMissing(WarehouseError):
    """A file is not in the warehouse."""


class ArchiveRefused(PenstockError):
    """A category is archived in another way than is asked for: nothing was changed."""


class ArchiveGap(PenstockError):
    """The bus no longer keeps what the archiver would read next: a person must choose."""


class BackfillRefused(PenstockError):
    """A batch run that cannot give what the stream gives, or would overwrite: nothing was started."""


class BackfillFailed(PenstockError):
    """A batch run ended early: nothing of the category at hand was published."""
