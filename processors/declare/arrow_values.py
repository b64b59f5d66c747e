"""Values of Arrow arrays, from their buffers.

`Array.to_numpy` imports pandas: 43 MiB, and a tenth of a second before a worker's first output.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

_DTYPES = {"int32": np.int32, "int64": np.int64, "double": np.float64}


class TextBytes(NamedTuple):
    """The texts of an array.

    Args:
        encoded: their bytes in UTF-8, possibly among others.
        ends: where each begins; the last item is where the last one ends.
    """

    encoded: npt.NDArray[np.uint8]
    ends: npt.NDArray[np.int32]


def numbers_of(array: pa.Array[Any]) -> npt.NDArray[Any]:
    """Return numbers of 32 or 64 bits, without a copy. None of them may be null."""
    return _values(array.buffers()[1], _DTYPES[str(array.type)], len(array), array.offset)


def numbered(numbers: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the distinct numbers in the order of their first ones, and the index among them of each number.

    Arrow's hash table needs a half to a quarter of the time of `numpy.unique`, which sorts.
    """
    import pyarrow as pa  # noqa: PLC0415 - optional; the caller has columns, so it is there

    column = pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers.data)])
    encoded = column.dictionary_encode()
    return numbers_of(encoded.dictionary), numbers_of(encoded.indices).astype(np.int64)


def flags_of(array: pa.Array[Any]) -> npt.NDArray[np.bool_]:
    """Return booleans. None of them may be null."""
    end = array.offset + len(array)
    packed = _values(array.buffers()[1], np.uint8, -(-end // 8), 0)
    return np.unpackbits(packed, count=end, bitorder="little")[array.offset :].astype(np.bool_)


def text_bytes_of(array: pa.Array[Any]) -> TextBytes:
    """Return the bytes of texts, without a copy. A null has none."""
    _, ends, encoded = array.buffers()
    size = 0 if encoded is None else encoded.size
    offsets = _values(ends, np.int32, len(array) + 1, array.offset) if ends else np.zeros(1, np.int32)
    return TextBytes(_values(encoded, np.uint8, size, 0), offsets)


def texts_of(array: pa.Array[Any]) -> list[str]:
    """Return texts. None of them may be null."""
    encoded, ends = text_bytes_of(array)
    whole = encoded[ends[0] : ends[-1]].tobytes()
    if not whole.isascii():  # positions in bytes are not those of characters
        return cast("list[str]", array.to_pylist())
    text = whole.decode("ascii")
    return [text[begin:end] for begin, end in pairwise((ends - ends[0]).tolist())]


def _values(buffer: pa.Buffer | None, dtype: Any, count: int, offset: int) -> npt.NDArray[Any]:
    if not count or buffer is None:
        return np.empty(0, dtype)
    return np.frombuffer(cast("memoryview", buffer), dtype, count, offset * np.dtype(dtype).itemsize)
