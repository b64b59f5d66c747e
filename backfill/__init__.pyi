from .errors import ArchiveGap as ArchiveGap
from .errors import ArchiveRefused as ArchiveRefused
from .errors import BackfillFailed as BackfillFailed
from .errors import BackfillRefused as BackfillRefused
from .errors import WarehouseError as WarehouseError
