"""Decoding without a record type, for the inspection of a category."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import msgspec
from fastavro import parse_schema, schemaless_reader

from ..tables import Schemas
from .avro import BODY_AT, MARKER
from .dead_letters import DEAD_LETTER_MARKER, decode_dead_letter
from .decoded import MALFORMED

_REGISTRY_ID_BYTES = 5
"""A zero, then four bytes of the id."""


def decode_any(value: bytes | None, schemas: Schemas) -> Any:
    """Return a message's content: Avro by the schema of its fingerprint, JSON, text, or the bytes as they are.

    Bytes that only begin like a format are shown as text.
    """
    try:
        return _decoded(value, schemas)
    except Exception:  # noqa: BLE001 - any bytes of other programs
        return _as_text(value)


def is_of_registry(value: bytes | None) -> bool:
    """Return whether a value probably begins with the id of its schema in a registry."""
    return value is not None and len(value) > _REGISTRY_ID_BYTES and value[0] == 0 and value[1] == 0


def _decoded(value: bytes | None, schemas: Schemas) -> Any:
    if value is None:
        return None
    if value.startswith(DEAD_LETTER_MARKER):
        letter = decode_dead_letter(value)
        headers = {header.name: _as_text(header.value) for header in letter.headers}
        return {
            **msgspec.structs.asdict(letter),
            "key": _as_text(letter.key),
            "value": decode_any(letter.value, schemas),
            "headers": headers,
        }
    if value.startswith(MARKER) and len(value) >= BODY_AT:
        schema = parse_schema(schemas.find(value[len(MARKER) : BODY_AT]))
        return schemaless_reader(BytesIO(value[BODY_AT:]), schema, None)
    try:
        return msgspec.json.decode(value)
    except MALFORMED:
        return _as_text(value)


def _as_text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="backslashreplace")
