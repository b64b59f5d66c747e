"""Partitioners: the bucket of a message key, as Kafka's clients choose it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from functools import lru_cache
from zlib import crc32

import numpy as np
import numpy.typing as npt

from ..errors import DeclarationError


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
_FEW = 16
"""Fewer keys are hashed one by one."""
_LONG = 256
"""Batches with a longer key (bytes) are hashed one by one."""


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


@lru_cache(maxsize=65_536)
def _murmur2_hash(key: bytes) -> int:
    return murmur2(key) & 0x7FFFFFFF


@lru_cache(maxsize=65_536)
def _fnv1a_hash(key: bytes) -> int:
    """Return the absolute value of the signed 32-bit FNV-1a hash, as Sarama and librdkafka do."""
    hashed = _FNV_OFFSET
    for byte in key:
        hashed = (hashed ^ byte) * _FNV_PRIME & _MASK
    return min(hashed, _MASK + 1 - hashed)


_HASHES: dict[Partitioner, Callable[[bytes], int]] = {
    Partitioner.MURMUR2: _murmur2_hash,
    Partitioner.CONSISTENT: crc32,
    Partitioner.FNV1A: _fnv1a_hash,
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
            f"The partitioner {partitioner!r} raised {type(error).__name__}: {error}, for the key {key!r} and {buckets} buckets. The bucket of the "
            "key is unknown. Correct the function."
        ) from error
    if type(bucket) is not int or not 0 <= bucket < buckets:
        raise DeclarationError(
            f"The partitioner {partitioner!r} returned {bucket!r} for the key {key!r}. It must return an int from 0 to {buckets - 1}. Correct the "
            "function."
        )
    return bucket


def buckets_of(keys: Sequence[bytes], buckets: int, partitioner: AnyPartitioner = Partitioner.MURMUR2) -> list[int]:
    """Return the bucket of each message key, as `bucket_of` does; vectorised where that is faster.

    Raises:
        DeclarationError: a partitioner function raised, or returned no bucket.
    """
    vectorised = _VECTORISED.get(partitioner) if isinstance(partitioner, Partitioner) else None
    if vectorised is None or len(keys) < _FEW or max(map(len, keys)) > _LONG:
        return [bucket_of(key, buckets, partitioner) for key in keys]
    found: list[int] = (vectorised(keys) % np.uint32(buckets)).tolist()
    return found


def _murmur2_hashes(keys: Sequence[bytes]) -> UInt32s:
    lengths = np.fromiter(map(len, keys), np.uint32, len(keys))
    words = _padded(keys, lengths, 4).view("<u4")
    hashed = np.uint32(_SEED) ^ lengths
    for at in range(words.shape[1]):
        word = words[:, at] * np.uint32(_M)
        word = (word ^ (word >> np.uint32(24))) * np.uint32(_M)
        hashed = np.where(lengths // 4 > at, (hashed * np.uint32(_M)) ^ word, hashed)
    rest = words[np.arange(len(keys)), lengths // 4]
    hashed = np.where(lengths % 4 > 0, (hashed ^ rest) * np.uint32(_M), hashed)
    hashed = (hashed ^ (hashed >> np.uint32(13))) * np.uint32(_M)
    hashed ^= hashed >> np.uint32(15)
    positive: UInt32s = hashed & np.uint32(0x7FFFFFFF)
    return positive


def _fnv1a_hashes(keys: Sequence[bytes]) -> UInt32s:
    lengths = np.fromiter(map(len, keys), np.uint32, len(keys))
    columns = _padded(keys, lengths, 1)
    hashed = np.full(len(keys), _FNV_OFFSET, np.uint32)
    for at in range(int(lengths.max())):
        hashed = np.where(lengths > at, (hashed ^ columns[:, at]) * np.uint32(_FNV_PRIME), hashed)
    absolute: UInt32s = np.minimum(hashed, ~hashed + np.uint32(1))
    return absolute


def _padded(keys: Sequence[bytes], lengths: UInt32s, unit: int) -> npt.NDArray[np.uint8]:
    """Return the bytes of each key in one row, with zeros after them up to more than the longest key and a multiple of `unit`."""
    width = (int(lengths.max()) // unit + 1) * unit
    return np.frombuffer(b"".join(key.ljust(width, b"\0") for key in keys), np.uint8).reshape(len(keys), width)


_VECTORISED: dict[Partitioner, Callable[[Sequence[bytes]], UInt32s]] = {
    Partitioner.MURMUR2: _murmur2_hashes,
    Partitioner.FNV1A: _fnv1a_hashes,
}
