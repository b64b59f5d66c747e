"""Decimals in rows that Kafka Connect writes as bytes: the schema beside a row names them, the row does not."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

_DECIMAL = "org.apache.kafka.connect.data.Decimal"


class _Field(msgspec.Struct):
    """A field of a schema of Kafka Connect."""

    field: str = ""
    name: str | None = None
    parameters: dict[str, str] = {}
    fields: list[_Field] = []


def decimal_notes(schema: object) -> Mapping[str, str]:
    """Return a comment for each decimal column of the rows of a table, by name.

    Args:
        schema: the schema of a change of Debezium.
    """
    try:
        envelope = msgspec.convert(schema, _Field)
    except msgspec.ValidationError:
        return {}
    return {
        column.field: (
            f"a decimal as bytes in base64, with scale {column.parameters.get('scale', '0')}; for a Decimal, set decimal.handling.mode=string "
            "on the connector"
        )
        for part in envelope.fields
        if part.field == "after"
        for column in part.fields
        if column.name == _DECIMAL
    }
