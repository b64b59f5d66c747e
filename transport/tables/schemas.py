"""Where the schemas of Avro messages are kept: on the bus itself, in a compacted category.

A message carries its schema's fingerprint; whoever reads it finds the schema under that key in `penstock.schemas`.
"""

from __future__ import annotations

import json
from typing import Any

from ...processors.errors import PenstockError
from ..bus import Bucket, Bus, CategorySpec, Outgoing, Position
from ..errors import MissingCategory
from ..internal_topics import ensure

SCHEMAS = CategorySpec("penstock.schemas", buckets=1, compacted=True)

Schema = dict[str, Any]


class UnknownSchema(PenstockError):
    """A message names a schema that is not in the schema category."""


class Schemas:
    """Avro schemas by fingerprint, on a bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._known: dict[bytes, Schema] = {}

    def add(self, fingerprint: bytes, schema: Schema) -> None:
        """Publish a schema, unless it is there already; durable on return."""
        if fingerprint in self._known:
            return
        self._read()
        if fingerprint in self._known:
            return
        ensure(self._bus, SCHEMAS)
        writer = self._bus.writer()
        writer.send(SCHEMAS.name, [Outgoing(fingerprint, json.dumps(schema).encode())])
        writer.flush()
        writer.close()
        self._known[fingerprint] = schema

    def find(self, fingerprint: bytes) -> Schema:
        """Return the schema of a fingerprint.

        Raises:
            UnknownSchema: nobody has published it on this bus.
        """
        if fingerprint not in self._known:
            self._read()
        try:
            return self._known[fingerprint]
        except KeyError:
            raise UnknownSchema(
                f"A message was written with schema {fingerprint.hex()}, which is not in the category {SCHEMAS.name} of "
                "this bus. If the category was copied from another cluster, copy that one too."
            ) from None

    def _read(self) -> None:
        """Read all that has been published."""
        try:
            end = self._bus.catalog.describe(SCHEMAS.name).ends[0]
        except MissingCategory:
            return
        reader = self._bus.scanner([Position(Bucket(SCHEMAS.name, 0), None)])
        read = 0
        while read < end:
            polled = reader.poll(1.0)
            for batch in polled.batches:
                read = batch.next_offset
                for message in batch.messages:
                    key, value = message.key(), message.value()
                    if key is not None and value is not None:
                        self._known[key] = json.loads(value)
            if polled.ended:
                break
        reader.close()
