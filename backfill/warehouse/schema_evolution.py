"""Changes of a category's columns: fields may be added, removed or made optional, and integers may become floats.

All files of a category have one type for each column, so the folder reads as one table. When a column becomes wider, the owner of the
buckets rewrites existing files before it archives the first event of the wider type.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import WarehouseError
from .layout import ArchivedFile, EventFile
from .warehouse import Warehouse

CANNOT_CAST = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)


class ColumnTypeMismatch(Exception):
    """A column has two incompatible types.

    Args:
        column: its name, with the enclosing columns.
        stored: its type in the warehouse.
        wanted: its type in the record.
    """

    def __init__(self, column: str, stored: pa.DataType, wanted: pa.DataType) -> None:
        super().__init__(f"column {column} has type {stored}, but the record has {wanted}")
        self.column = column
        self.stored = stored
        self.wanted = wanted


def merged(stored: pa.Schema, wanted: pa.Schema) -> pa.Schema:
    """Return columns that fit both the stored files and a record type: the record's columns first, then removed ones.

    Raises:
        ColumnTypeMismatch: a column has incompatible types.
    """
    both = [_fields(stored.field(field.name), field, "") if field.name in stored.names else field for field in wanted]
    return pa.schema([*both, *(field.with_nullable(True) for field in stored if field.name not in wanted.names)])


def _fields(stored: pa.Field[Any], wanted: pa.Field[Any], around: str) -> pa.Field[Any]:
    name = around + wanted.name
    nullable = stored.nullable or wanted.nullable
    return pa.field(wanted.name, _types(stored.type, wanted.type, name), nullable=nullable)


def _types(stored: pa.DataType, wanted: pa.DataType, name: str) -> pa.DataType:
    if pa.types.is_struct(stored) and pa.types.is_struct(wanted):
        before, now = pa.schema(list(stored)), pa.schema(list(wanted))
        both = [
            _fields(before.field(field.name), field, f"{name}.") if field.name in before.names else field
            for field in now
        ]
        return pa.struct([*both, *(field.with_nullable(True) for field in before if field.name not in now.names)])
    if pa.types.is_list(stored) and pa.types.is_list(wanted):
        return pa.list_(_types(stored.value_type, wanted.value_type, f"{name}[]"))
    if pa.types.is_map(stored) and pa.types.is_map(wanted):
        return pa.map_(pa.string(), _types(stored.item_type, wanted.item_type, f"{name}[]"))
    if stored == wanted or (pa.types.is_integer(stored) and pa.types.is_floating(wanted)):
        return wanted
    raise ColumnTypeMismatch(name, stored, wanted)


def is_same(left: pa.DataType, right: pa.DataType) -> bool:
    """Return whether values of one type read as the other without conversion. Missing and optional fields do not matter."""
    if pa.types.is_struct(left) and pa.types.is_struct(right):
        here, there = {field.name: field.type for field in left}, {field.name: field.type for field in right}
        return all(is_same(here[name], there[name]) for name in here.keys() & there.keys())
    if pa.types.is_list(left) and pa.types.is_list(right):
        return is_same(left.value_type, right.value_type)
    if pa.types.is_map(left) and pa.types.is_map(right):
        return is_same(left.item_type, right.item_type)
    return left == right


def stored_as(wanted: pa.Schema, stored: pa.Schema) -> pa.Schema:
    """Return wanted columns with the types of the stored files, which are compatible."""
    return pa.schema([_stored_field(field, stored) for field in wanted])


def _stored_field(wanted: pa.Field[Any], stored: pa.Schema) -> pa.Field[Any]:
    if wanted.name not in stored.names:
        return wanted
    return wanted.with_type(_stored_type(wanted.type, stored.field(wanted.name).type))


def _stored_type(wanted: pa.DataType, stored: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(wanted) and pa.types.is_struct(stored):
        within = pa.schema(list(stored))
        return pa.struct([_stored_field(field, within) for field in wanted])
    if pa.types.is_list(wanted) and pa.types.is_list(stored):
        return pa.list_(_stored_type(wanted.value_type, stored.value_type))
    if pa.types.is_map(wanted) and pa.types.is_map(stored):
        return pa.map_(pa.string(), _stored_type(wanted.item_type, stored.item_type))
    return stored


def relaxed(kind: pa.DataType) -> pa.DataType:
    """Return a type with every part nullable. Spark reads files as such types, and cannot cast them to narrower ones."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(relaxed(field.type)).with_nullable(True) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(relaxed(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, relaxed(kind.item_type))
    return kind


def relaxed_schema(schema: pa.Schema) -> pa.Schema:
    """Return columns of which every part is nullable; see `relaxed`."""
    return pa.schema([field.with_type(relaxed(field.type)).with_nullable(True) for field in schema])


def is_widened(stored: pa.Schema, wider: pa.Schema) -> bool:
    """Return whether files must be rewritten before they read as the wider columns."""
    return not all(is_same(field.type, wider.field(field.name).type) for field in stored if field.name in wider.names)


def fitted(table: pa.Table, schema: pa.Schema, file: EventFile) -> pa.Table:
    """Convert the events of a file to other columns.

    Raises:
        WarehouseError: a column cannot be converted.
    """
    return pa.Table.from_arrays([_cast(table, field, file) for field in schema], schema=schema)


def _cast(table: pa.Table, field: pa.Field[Any], file: EventFile) -> pa.ChunkedArray[Any]:
    if field.name not in table.column_names:
        return pa.chunked_array([pa.nulls(table.num_rows, field.type)])
    column = table.column(field.name)
    try:
        return column.cast(field.type)
    except CANNOT_CAST as error:
        raise WarehouseError(
            f"{file.path}: column {field.name} has type {column.type} and cannot be converted to {field.type}: {error}. "
            "The file was not changed. Archive the new record type as another category."
        ) from error


def table_of(content: bytes) -> pa.Table:
    """Return the events of a file."""
    return pq.read_table(BytesIO(content), partitioning=None)


def content_of(table: pa.Table) -> bytes:
    """Return the file of a table of events."""
    content = BytesIO()
    pq.write_table(table, content, compression="zstd")
    return content.getvalue()


def widen(warehouse: Warehouse, file: ArchivedFile, schema: pa.Schema, epoch: int) -> bool:
    """Rewrite a file under an owner's epoch if its columns are narrower. Return whether they were. May be repeated."""
    table = table_of(warehouse.read(file))
    own = pa.schema([field for field in schema if field.name in table.column_names])
    if not is_widened(table.schema, own):
        return False
    warehouse.write(file._replace(epoch=epoch), content_of(fitted(table, own, file)))
    if file.epoch != epoch:
        warehouse.delete(file)
    return True
