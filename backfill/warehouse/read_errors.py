"""Error messages for unreadable files: not Parquet, deleted, or with columns of another record type."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from ..errors import BackfillFailed, WarehouseFileMissing
from .schema_evolution import ColumnTypeMismatch


@contextmanager
def naming_file(place: str) -> Iterator[None]:
    """Name the file that cannot be read within the block.

    Raises:
        BackfillFailed: it cannot be read.
    """
    try:
        yield
    except WarehouseFileMissing as error:
        raise BackfillFailed(deleted_message(place)) from error
    except ColumnTypeMismatch as other:
        raise BackfillFailed(type_mismatch_message(place, other)) from other
    except (pa.ArrowException, OSError) as error:
        raise BackfillFailed(unreadable_message(place, str(error))) from error


def unreadable_message(place: str, reason: str) -> str:
    """Return the message for a file that is not valid Parquet.

    Args:
        place: its path, with the folder of its day.
        reason: the reader's error.
    """
    return (
        f"{place} does not read as Parquet: {' '.join(reason.split()).rstrip('.')}. The file is truncated, damaged, or of another format. "
        "Nothing was changed. Restore it from a copy, or move it out of the folder. Its events are then missing from the day until they are "
        "archived again, from the first offset of its bucket there, or computed again."
    )


def deleted_message(place: str) -> str:
    """Return the message for a file that was deleted after its folder was listed."""
    return f"{place} was deleted after its folder was listed, by a compaction or by hand. Nothing was changed. Run the command again."


def type_mismatch_message(place: str, other: ColumnTypeMismatch) -> str:
    """Return the message for a column whose type differs from the record's."""
    return (
        f"{place}: column {other.column} has type {other.stored}, which does not fit the record's {other.wanted}. "
        "Nothing was changed. Use the record type of the archive, or one with added, removed or optional fields, or float for int."
    )
