"""What is said of stored files that cannot be read: those that are no Parquet, are gone, or have another record's columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from ..errors import BackfillFailed, WarehouseFileMissing
from .schema_evolution import OtherType


@contextmanager
def naming(place: str) -> Iterator[None]:
    """Say which file it is that does not read within the block.

    Raises:
        BackfillFailed: it does not.
    """
    try:
        yield
    except WarehouseFileMissing as error:
        raise BackfillFailed(gone(place)) from error
    except OtherType as other:
        raise BackfillFailed(other_type(place, other)) from other
    except (pa.ArrowException, OSError) as error:
        raise BackfillFailed(unreadable(place, str(error))) from error


def unreadable(place: str, reason: str) -> str:
    """Return what is said of a file that does not read.

    Args:
        place: where it is, with the folder of its day.
        reason: what the reader says.
    """
    return (
        f"{place} does not read as Parquet: {' '.join(reason.split()).rstrip('.')}. It was cut off, damaged, or written by something else; nothing was "
        "changed. Put it back from a copy, or move it out of the folder: what it held is then missing from its day, until it is archived "
        "again from its bucket's first offset there or computed again."
    )


def gone(place: str) -> str:
    """Return what is said of a file that was there when its folder was listed."""
    return (
        f"{place} was there when its folder was listed, and is not any more: a compaction has taken its place, or somebody removed it. Nothing "
        "was changed; run this again."
    )


def other_type(place: str, other: OtherType) -> str:
    """Return what is said of a column that holds something else than the record does."""
    return (
        f"{place}: column {other.column} holds {other.stored}, and the record has {other.wanted} there, which does not hold it. "
        "Nothing was changed. Use the record type that the category was archived with, or one with fields more, fields fewer, "
        "optional ones, and float for int."
    )
