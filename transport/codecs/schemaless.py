"""Decoding without a record type, for the inspection of a category."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import msgspec
from fastavro import parse_schema, schemaless_reader

from ..tables.schemas import Schemas
from .avro import BODY_AT, MARKER
from .dead_letters import DEAD_LETTER_MARKER, decode_dead_letter
from .decoded import MALFORMED


def decode_any(value: bytes | None, schemas: Schemas) -> Any:
    """Return a message's content: Avro by the schema of its fingerprint, JSON, text, or the bytes as they are."""
    if value is None:
        return None
    if value.startswith(DEAD_LETTER_MARKER):
        letter = decode_dead_letter(value)
        headers = {header.name: _as_text(header.value) for header in letter.headers}
        return {
            **msgspec.structs.asdict(letter),
            "key": _as_text(letter.key),
            "value": _content(letter.value, schemas),
            "headers": headers,
        }
    if value.startswith(MARKER) and len(value) >= BODY_AT:
        schema = parse_schema(schemas.find(value[len(MARKER) : BODY_AT]))
        return schemaless_reader(BytesIO(value[BODY_AT:]), schema, None)
    try:
        return msgspec.json.decode(value)
    except MALFORMED:
        return _as_text(value)


def _content(value: bytes | None, schemas: Schemas) -> Any:
    """Return the content of a dead letter's event, or text if decoding fails, which may be the reason for the dead letter."""
    try:
        return decode_any(value, schemas)
    except Exception:  # noqa: BLE001 - any failure
        return _as_text(value)


def _as_text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="backslashreplace")
