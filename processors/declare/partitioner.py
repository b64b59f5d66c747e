"""The bucket of a key, compatible with Kafka's clients."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
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
def bucket_of(key: bytes, buckets: int) -> int:
    """Return the bucket of a key, as Kafka's Java producer chooses it."""
    return (murmur2(key) & 0x7FFFFFFF) % buckets


def buckets_of(keys: Sequence[bytes], buckets: int) -> list[int]:
    """Return the bucket of each key, as `bucket_of` does, vectorised over the keys."""
    if len(keys) < _FEW or max(map(len, keys)) > _LONG:
        return [bucket_of(key, buckets) for key in keys]
    lengths = np.fromiter(map(len, keys), np.uint32, len(keys))
    width = (int(lengths.max()) // 4 + 1) * 4
    words = np.frombuffer(b"".join(key.ljust(width, b"\0") for key in keys), "<u4").reshape(len(keys), -1)
    hashed = np.uint32(_SEED) ^ lengths
    for at in range(width // 4):
        word = words[:, at] * np.uint32(_M)
        word = (word ^ (word >> np.uint32(24))) * np.uint32(_M)
        hashed = np.where(lengths // 4 > at, (hashed * np.uint32(_M)) ^ word, hashed)
    rest = words[np.arange(len(keys)), lengths // 4]
    hashed = np.where(lengths % 4 > 0, (hashed ^ rest) * np.uint32(_M), hashed)
    hashed = (hashed ^ (hashed >> np.uint32(13))) * np.uint32(_M)
    hashed ^= hashed >> np.uint32(15)
    found: list[int] = ((hashed & np.uint32(0x7FFFFFFF)) % np.uint32(buckets)).tolist()
    return found
