"""Footers of Parquet files: the number of rows and their offsets, without reading the rest of the file."""

from __future__ import annotations

from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import WarehouseError
from .layout import EventFile
from .read_errors import unreadable_message
from .warehouse import Warehouse

_FOOTER_BYTES = 65_536
_TAIL = 8  # the length of the footer, and the letters PAR1


def footer_of(warehouse: Warehouse, file: EventFile, size_bytes: int) -> pq.FileMetaData:
    """Return the metadata of a file.

    Args:
        warehouse: the warehouse.
        file: the file.
        size_bytes: its size.

    Raises:
        WarehouseError: the warehouse failed, or the file is not Parquet.
    """
    end = warehouse.read(file, max(size_bytes - _FOOTER_BYTES, 0))
    footer_bytes = int.from_bytes(end[-_TAIL : -_TAIL + 4], "little") + _TAIL
    if footer_bytes > len(end):
        end = warehouse.read(file)
    try:
        return pq.read_metadata(BytesIO(end))
    except (OSError, pa.ArrowException) as error:
        raise WarehouseError(unreadable_message(f"{warehouse.location}/{file.path}", str(error))) from error


def offsets_of(footer: pq.FileMetaData) -> range | None:
    """Return the range of offsets of a file's events; None if its footer lacks them."""
    names = [footer.schema.column(number).path for number in range(footer.num_columns)]
    if "_offset" not in names or not footer.num_row_groups:
        return None
    at = names.index("_offset")
    ends: list[int] = []
    for group in range(footer.num_row_groups):
        statistics = footer.row_group(group).column(at).statistics
        if statistics is None or not statistics.has_min_max:
            return None
        ends += [statistics.min, statistics.max]  # type: ignore[list-item]  # a column of whole numbers
    return range(min(ends), max(ends) + 1)
