"""Encoding and decoding of records, a batch at a time.

A message that fails to decode is reported by its index; the rest of the batch is processed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ...processors.shard.batches import Decoded


class Codec(Protocol):
    """Encodes and decodes one category's records."""

    def encode(self, records: Sequence[Any]) -> list[bytes]:
        """Return the bytes of each record.

        Raises:
            InvalidRecord: a value violates the record's type, or a number is infinite, NaN or beyond 64 bits.
        """
        ...

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Decode a batch; undecodable messages are part of the result."""
        ...
