"""JSON messages of flat records as Arrow columns, decoded and encoded by `flat_json.c` without an object for each value.

lines --flat_json.c--> buffers --> columns; None where it refuses a message, which the codec then decodes as a record
columns --flat_json.c--> lines
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ...processors import library_obstacle
from ...processors.declare import FlatField, FlatType, flags_of, numbers_of, text_bytes_of

if TYPE_CHECKING:
    import pyarrow as pa

LIBRARY = Path(__file__).with_name("flat_json.so")
"""The compiled `flat_json.c`; built at the installation if there is a C compiler."""
MOST_FIELDS = 64
MOST_BYTES = 2**31 - 1 - 8
"""The largest size of a text column."""
_WORD = 8
"""The number of bytes that `flat_json.c` copies at once, also at the end of a text."""

_Array = npt.NDArray[Any]


class JoinedValues(NamedTuple):
    """The values of messages, with a newline between two of them.

    Args:
        text: the lines.
        starts: where each value begins.
        ends: where each value ends.
    """

    text: bytes | memoryview
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]

    @property
    def are_objects(self) -> bool:
        """Whether each line is one message that opens and closes an object.

        Then the decoder cannot join two broken messages: between the `}` at the end of a line and the `{` at the start of the next,
        both records are complete. An equal number of records and messages then means one record for each message.
        """
        characters = np.frombuffer(self.text, np.uint8)
        return (
            bool((self.ends > self.starts).all())
            and np.count_nonzero(characters == ord("\n")) == len(self.starts) - 1
            and bool((characters[self.starts] == ord("{")).all())
            and bool((characters[self.ends - 1] == ord("}")).all())
        )


class _Field(ctypes.Structure):
    """field_t of `flat_json.c`."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("name_size", ctypes.c_int64),
        ("kind", ctypes.c_int32),
        ("is_optional", ctypes.c_int32),
        ("is_null_if_missing", ctypes.c_int32),
        ("integers", ctypes.c_void_p),
        ("reals", ctypes.c_void_p),
        ("booleans", ctypes.c_void_p),
        ("is_valid", ctypes.c_void_p),
        ("text_ends", ctypes.c_void_p),
        ("text", ctypes.c_void_p),
        ("text_size", ctypes.c_int64),
    ]


_VALUES = {
    FlatType.TEXT: "text",
    FlatType.INTEGER: "integers",
    FlatType.REAL: "reals",
    FlatType.BOOLEAN: "booleans",
}
"""The values of each type in `_Field`."""


@cache
def load_library() -> ctypes.CDLL | None:
    """Return the compiled library; None where it was not compiled."""
    try:
        library = ctypes.CDLL(str(LIBRARY))
    except OSError:
        return None
    decode = library.penstock_decode_columns
    decode.restype = ctypes.c_int64
    decode.argtypes = [*[ctypes.c_void_p] * 3, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64]
    encode = library.penstock_encode_columns
    encode.restype = ctypes.c_int64
    encode.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    return library


def json_obstacle() -> str | None:
    """Return why JSON is decoded and encoded without columns; None if C code does it."""
    if importlib.util.find_spec("pyarrow") is None:
        return "pyarrow is not installed"
    return library_obstacle(LIBRARY)


class ColumnsOfJson:
    """Decodes some fields of flat records, and encodes all of them.

    Args:
        library: the compiled library.
        fields: all fields of the record.
    """

    def __init__(self, library: ctypes.CDLL, fields: Sequence[FlatField]) -> None:
        import pyarrow as pa  # noqa: PLC0415 - missing in penstock-core, and slow to import

        self._library = library
        self._fields = {field.name: field for field in fields}
        self._names_on_bus = [field.name.encode() for field in fields]  # the library has their addresses
        self._described = (_Field * len(fields))(
            *(
                _Field(name, len(name), field.type, field.is_optional, field.is_null_if_missing)
                for name, field in zip(self._names_on_bus, fields, strict=True)
            )
        )
        self._types: dict[FlatType, Any] = {
            FlatType.TEXT: pa.string(),
            FlatType.INTEGER: pa.int64(),
            FlatType.REAL: pa.float64(),
            FlatType.BOOLEAN: pa.bool_(),
        }
        self._pa = pa
        self._encode_lines = msgspec.json.Encoder().encode_lines

    def _new_description(self) -> Any:
        return type(self._described).from_buffer_copy(self._described)

    def decode(self, lines: JoinedValues, names: Sequence[str]) -> pa.RecordBatch | None:
        """Return columns, and validate the other fields; None unless each line is certainly a valid record with these values."""
        count, size = len(lines.starts), len(lines.text)
        if size > MOST_BYTES:
            return None
        text = np.frombuffer(lines.text, np.uint8)
        found = {name: _Column(self._fields[name], count, size) for name in names}
        described = self._new_description()
        for name, field in zip(self._fields, described, strict=True):
            if name in found:
                found[name].fill(field)
        starts, ends = np.ascontiguousarray(lines.starts), np.ascontiguousarray(lines.ends)
        done = self._library.penstock_decode_columns(
            text.ctypes.data, starts.ctypes.data, ends.ctypes.data, count, described, len(described)
        )
        if done < count:
            return None
        types = {name: self._types[self._fields[name].type] for name in names}
        arrays = [self._pa.Array.from_buffers(types[name], count, found[name].buffers(self._pa)) for name in names]
        batch: pa.RecordBatch = self._pa.RecordBatch.from_arrays(arrays, names=list(names))
        return batch

    def encode(self, columns: pa.RecordBatch) -> bytes:
        """Return a line of JSON for each row.

        Args:
            columns: all fields, with values that fit them.
        """
        described = self._new_description()
        size = columns.num_rows * (2 + sum(len(name) + _AROUND_VALUE for name in self._names_on_bus))
        inputs = []
        for field, column, target in zip(self._fields.values(), columns.columns, described, strict=True):
            given = self._given(field, column)
            given.fill(field, target)
            inputs.append(given)  # the library has its addresses
            size += given.text_bytes * _ESCAPED_BYTES
        line_bytes = np.empty(size, np.uint8)
        written = self._library.penstock_encode_columns(
            described, len(described), columns.num_rows, line_bytes.ctypes.data
        )
        return line_bytes[:written].tobytes()

    def _given(self, field: FlatField, column: pa.Array[Any]) -> _Given:
        valid = None if not column.null_count else _flags(column.is_valid())
        match field.type:
            case FlatType.TEXT:
                return _Given(*text_bytes_of(column), valid)
            case FlatType.REAL:
                encoded = np.frombuffer(self._encode_lines(column.to_pylist()), np.uint8)
                ends = np.concatenate(([0], np.flatnonzero(encoded == ord("\n")) + 1)).astype(np.int32)
                return _Given(encoded, ends, None)
            case FlatType.INTEGER:
                return _Given(numbers_of(column.fill_null(0) if column.null_count else column), None, valid)
            case FlatType.BOOLEAN:
                filled = column.fill_null(False)
                return _Given(_flags(filled), None, valid)


_AROUND_VALUE = 32
"""At least the size of a number with the punctuation of its field."""
_ESCAPED_BYTES = 6
"""The size of an escape in a text."""


class _Given(NamedTuple):
    """The values of a column to encode.

    Args:
        values: the values; of texts, their bytes.
        ends: where each text begins, and where the last one ends; None for other values.
        valid: whether each value exists; None if all do.
    """

    values: _Array
    ends: _Array | None
    valid: _Array | None

    @property
    def text_bytes(self) -> int:
        """The size of the texts."""
        return 0 if self.ends is None else int(self.ends[-1] - self.ends[0])

    def fill(self, field: FlatField, described: _Field) -> None:
        """Set the addresses of the values."""
        setattr(described, _VALUES[field.type] if self.ends is None else "text", self.values.ctypes.data)
        if self.ends is not None:
            described.text_ends = self.ends.ctypes.data
        if self.valid is not None:
            described.is_valid = self.valid.ctypes.data


class _Column:
    """The memory of one decoded column."""

    def __init__(self, field: FlatField, count: int, size_bytes: int) -> None:
        self._field = field
        self._valid: _Array | None = np.empty(count, np.uint8) if field.is_optional else None
        self._ends: _Array | None = None
        match field.type:
            case FlatType.TEXT:
                self._ends = np.zeros(count + 1, np.int32)
                self._values: _Array = np.empty(size_bytes + _WORD, np.uint8)
            case FlatType.INTEGER:
                self._values = np.empty(count, np.int64)
            case FlatType.REAL:
                self._values = np.empty(count, np.float64)
            case FlatType.BOOLEAN:
                self._values = np.empty(count, np.uint8)

    def fill(self, described: _Field) -> None:
        """Set the addresses of the memory."""
        _Given(self._values, self._ends, self._valid).fill(self._field, described)

    def buffers(self, pa: Any) -> list[Any]:
        """Return the Arrow buffers of the filled column."""
        valid = None if self._valid is None else pa.py_buffer(_bits(self._valid))
        if self._ends is not None:
            return [valid, pa.py_buffer(self._ends), pa.py_buffer(self._values)]
        return [valid, pa.py_buffer(_bits(self._values) if self._field.type is FlatType.BOOLEAN else self._values)]


def _bits(flags: _Array) -> _Array:
    return np.packbits(flags, bitorder="little")


def _flags(column: pa.Array[Any]) -> _Array:
    return flags_of(column).view(np.uint8)


def columns_of_json(fields: Sequence[FlatField] | None) -> ColumnsOfJson | None:
    """Return the decoder and encoder of a record type; None where columns are not available.

    Args:
        fields: the fields of a flat record; None for another record.
    """
    library = load_library()
    if library is None or fields is None or len(fields) > MOST_FIELDS or not all(_is_plain(one.name) for one in fields):
        return None
    try:
        return ColumnsOfJson(library, fields)
    except ImportError:
        return None


def _is_plain(name: str) -> bool:
    """Return whether every encoder writes a name as it is."""
    return name.isascii() and name.isprintable() and not {'"', "\\"} & set(name)
