"""Partitioners: the bucket of a message key, as Kafka's clients choose it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from enum import Enum
from functools import cache, lru_cache
from pathlib import Path
from zlib import crc32

import numpy as np
import numpy.typing as npt

from ..compiled import library_obstacle
from ..errors import DeclarationError
from ..user_code import error_in_words
from ..wording import as_code, counted


class Partitioner(Enum):
    """How the producers of a category choose the bucket of a message key. They agree only with producers of the same kind."""

    MURMUR2 = "murmur2"
    """Kafka's Java clients and Penstock, by default; clients on librdkafka with `partitioner=murmur2_random` or `murmur2`."""
    CONSISTENT = "consistent"
    """CRC32: clients on librdkafka (Python, Go, .NET, C++, Ruby, PHP, Rust, kcat), by default, `consistent_random` or `consistent`."""
    FNV1A = "fnv1a"
    """FNV-1a: Sarama (Go), by default; clients on librdkafka with `partitioner=fnv1a_random` or `fnv1a`."""


PartitionFunction = Callable[[bytes, int], int]
"""Returns the bucket of a message key among a number of buckets."""

AnyPartitioner = Partitioner | PartitionFunction

UInt32s = npt.NDArray[np.uint32]

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_FNV_OFFSET = 0x811C9DC5
_FNV_PRIME = 0x01000193
_FEW = 8
"""Fewer keys are hashed one by one."""
LIBRARY = Path(__file__).with_name("key_hashes.so")
"""The compiled `key_hashes.c`; built at the installation if there is a C compiler."""


def murmur2(data: bytes) -> int:
    """Return the 32-bit murmur2 hash of `data`, unsigned, with the seed of Kafka's partitioner.

    Source: Austin Appleby's MurmurHash2; seed and byte order as in Kafka's ``Utils.murmur2``.
    """
    length = len(data)
    hashed = (_SEED ^ length) & _MASK
    whole = length - length % 4
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        word = (word ^ (word >> 24)) * _M & _MASK
        hashed = (hashed * _M & _MASK) ^ word
    if length % 4:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    hashed = (hashed ^ (hashed >> 13)) * _M & _MASK
    return hashed ^ (hashed >> 15)


LONGEST_CACHED = 200
"""The size of the longest key whose hash is remembered, in bytes; a cache of longer ones would fill the memory."""


def _remembered(hash_of: Callable[[bytes], int]) -> Callable[[bytes], int]:
    """Return a hash function that remembers the hashes of short keys."""
    cached = lru_cache(maxsize=65_536)(hash_of)
    return lambda key: cached(key) if len(key) <= LONGEST_CACHED else hash_of(key)


def _murmur2_hash(key: bytes) -> int:
    return murmur2(key) & 0x7FFFFFFF


def _fnv1a_hash(key: bytes) -> int:
    """Return the absolute value of the signed 32-bit FNV-1a hash, as Sarama and librdkafka do."""
    hashed = _FNV_OFFSET
    for byte in key:
        hashed = (hashed ^ byte) * _FNV_PRIME & _MASK
    return min(hashed, _MASK + 1 - hashed)


_HASHES: dict[Partitioner, Callable[[bytes], int]] = {
    Partitioner.MURMUR2: _remembered(_murmur2_hash),
    Partitioner.CONSISTENT: crc32,
    Partitioner.FNV1A: _remembered(_fnv1a_hash),
}


def bucket_of(key: bytes, buckets: int, partitioner: AnyPartitioner = Partitioner.MURMUR2) -> int:
    """Return the bucket of a message key.

    Raises:
        DeclarationError: a partitioner function raised, or returned no bucket.
    """
    if isinstance(partitioner, Partitioner):
        return _HASHES[partitioner](key) % buckets
    try:
        bucket = partitioner(key, buckets)
    except Exception as error:
        raise DeclarationError(
            f"The partitioner {as_code(partitioner)} raised {error_in_words(error)}, for the key {key!r} and {counted(buckets, 'bucket')}. The bucket of the "
            "key is unknown. Correct the function."
        ) from error
    if type(bucket) is not int or not 0 <= bucket < buckets:
        raise DeclarationError(
            f"The partitioner {as_code(partitioner)} returned {bucket!r} for the key {key!r}. It must return an int from 0 to {buckets - 1}. Correct the "
            "function."
        )
    return bucket


def buckets_of(keys: Sequence[bytes], buckets: int, partitioner: AnyPartitioner = Partitioner.MURMUR2) -> list[int]:
    """Return the bucket of each message key, as `bucket_of` does.

    Raises:
        DeclarationError: a partitioner function raised, or returned no bucket.
    """
    if not isinstance(partitioner, Partitioner):
        return [bucket_of(key, buckets, partitioner) for key in keys]
    if len(keys) >= _FEW and partitioner in (compiled := _compiled_hashes()):
        found: list[int] = (_hashes_of(keys, compiled[partitioner]) % np.uint32(buckets)).tolist()
        return found
    hash_of = _HASHES[partitioner]
    return [hash_of(key) % buckets for key in keys]


def _hashes_of(keys: Sequence[bytes], compiled: Callable[..., None]) -> UInt32s:
    sizes, found = np.fromiter(map(len, keys), np.int64, len(keys)), np.empty(len(keys), np.uint32)
    compiled(b"".join(keys), sizes.ctypes.data, len(keys), found.ctypes.data)
    return found


def keys_obstacle() -> str | None:
    """Return why keys are hashed without C code; None if C code hashes them."""
    return library_obstacle(LIBRARY)


@cache
def _compiled_hashes() -> dict[Partitioner, Callable[..., None]]:
    """Return the compiled hash functions; none where they were not compiled."""
    try:
        # It keeps the lock of the interpreter: the calls are short, and to get the lock again can take milliseconds.
        library = ctypes.PyDLL(str(LIBRARY))
    except OSError:
        return {}
    found = {Partitioner.MURMUR2: library.penstock_murmur2, Partitioner.FNV1A: library.penstock_fnv1a}
    for function in found.values():
        function.restype = None
        function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
    return dict(found)
