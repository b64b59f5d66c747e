"""Avro schemas on the bus: `penstock.schemas`, compacted, with a schema's fingerprint as key and the schema's JSON as value.

Each Avro message carries the fingerprint of its schema.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...processors import PenstockError
from ..bus import Bus
from ..category_spec import CategorySpec
from .bus_table import BYTES_KEY, BusTable

SCHEMAS = CategorySpec("penstock.schemas", buckets=1, compacted=True)
"""The category of schemas."""

Schema = dict[str, Any]

_TABLE: BusTable[bytes, Schema] = BusTable(SCHEMAS, BYTES_KEY, msgspec.json.Decoder(Schema).decode)


class UnknownSchema(PenstockError):
    """The schema of a message is missing on the bus."""


class Schemas:
    """A cache of the schemas on a bus, by fingerprint."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._cached: dict[bytes, Schema] = {}

    def add(self, fingerprint: bytes, schema: Schema) -> None:
        """Publish a schema unless the bus has it; durable on return."""
        if self._get(fingerprint) is None:
            _TABLE.write(self._bus, [_TABLE.put(fingerprint, schema)])
            self._cached[fingerprint] = schema

    def find(self, fingerprint: bytes) -> Schema:
        """Return the schema of a fingerprint.

        Raises:
            UnknownSchema: the schema is missing on this bus.
        """
        schema = self._get(fingerprint)
        if schema is None:
            raise UnknownSchema(
                f"A message was written with schema {fingerprint.hex()}, which is not in the category {SCHEMAS.name} of "
                "this bus. If the category was copied from another cluster, copy that one too."
            )
        return schema

    def _get(self, fingerprint: bytes) -> Schema | None:
        if fingerprint not in self._cached:
            self._cached.update(_TABLE.read(self._bus))
        return self._cached.get(fingerprint)
