"""Decoding without a record type: what a message says by itself, for people who look into a category."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import msgspec
from fastavro import parse_schema, schemaless_reader

from .avro import BODY_AT, MARKER
from .schemas import Schemas


def decode_any(value: bytes | None, schemas: Schemas) -> Any:
    """Return a message's content: Avro by the schema it names, JSON, text, or the bytes as they are."""
    if value is None:
        return None
    if value.startswith(MARKER) and len(value) >= BODY_AT:
        schema = parse_schema(schemas.find(value[len(MARKER) : BODY_AT]))
        return schemaless_reader(BytesIO(value[BODY_AT:]), schema, None)
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return value.decode(errors="backslashreplace")
