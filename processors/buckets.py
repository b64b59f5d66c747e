"""Which bucket a key lives in: the same answer as Kafka's own clients give."""

from __future__ import annotations

from functools import lru_cache

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


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
    """Return the bucket of a key among `buckets`, as Kafka's Java producer and our own choose it."""
    return (murmur2(key) & 0x7FFFFFFF) % buckets
