"""Conversions between SQL types, as Python code."""

from __future__ import annotations

from .types import SqlType

_T, _I, _D, _N = SqlType.TEXT, SqlType.BIGINT, SqlType.DOUBLE, SqlType.NUMERIC
FROM_TEXT = {
    SqlType.BOOLEAN: "text_to_boolean",
    SqlType.BIGINT: "text_to_bigint",
    SqlType.DOUBLE: "text_to_double",
    SqlType.NUMERIC: "text_to_numeric",
    SqlType.TIMESTAMP: "text_to_timestamp",
    SqlType.DATE: "text_to_date",
    SqlType.UUID: "text_to_uuid",
    SqlType.JSON: "text_to_json",
}
"""The functions of texts, by the type to which they convert."""
CASTS = {
    **{(SqlType.TEXT, kind): f"{name}({{0}})" for kind, name in FROM_TEXT.items()},
    (_I, _D): "float({0})",
    (_I, _N): "Decimal({0})",
    (_I, _T): "str({0})",
    (_I, SqlType.BOOLEAN): "({0} != 0)",
    (_D, _I): "double_to_bigint({0})",
    (_D, _N): "double_to_numeric({0})",
    (_D, _T): "double_to_text({0})",
    (_N, _I): "numeric_to_bigint({0})",
    (_N, _D): "numeric_to_double({0})",
    (_N, _T): "numeric_to_text({0})",
    (SqlType.BOOLEAN, _I): "int({0})",
    (SqlType.BOOLEAN, _T): "boolean_to_text({0})",
    (SqlType.TIMESTAMP, SqlType.DATE): "{0}.date()",
    (SqlType.TIMESTAMP, _T): "timestamp_to_text({0})",
    (SqlType.LOCAL, SqlType.DATE): "{0}.date()",
    (SqlType.LOCAL, _T): "local_to_text({0})",
    (SqlType.DATE, SqlType.TIMESTAMP): "date_to_timestamp({0})",
    (SqlType.DATE, _T): "{0}.isoformat()",
    (SqlType.UUID, _T): "str({0})",
    (SqlType.JSON, _T): "json_document({0})",
    (SqlType.JSON, _I): "numeric_to_bigint(json_number({0}))",
    (SqlType.JSON, _D): "numeric_to_double(json_number({0}))",
    (SqlType.JSON, _N): "json_number({0})",
    (SqlType.JSON, SqlType.BOOLEAN): "json_boolean({0})",
}
"""The code of conversions, by the types from and to."""
CONVERTING_CALLS = {
    (_I, SqlType.TIMESTAMP): "Write to_timestamp_ms(…) for milliseconds since 1970, and to_timestamp(…) for seconds.",
    (SqlType.TIMESTAMP, _I): "Write epoch_ms(…) for the milliseconds since 1970.",
    (SqlType.INTERVAL, _D): "Write extract(epoch FROM …) for its seconds.",
    (SqlType.INTERVAL, _I): "Write cast(extract(epoch FROM …) AS bigint) for its seconds.",
}
"""What to write for a conversion without a cast, by the types from and to."""
CANONICAL = {_D: "({0} + 0.0)", _N: "shortest_numeric({0})"}
"""The code of the one form of equal values, by type, where equal values have several: 1.5 and 1.50, 0 and -0."""
IMPLICIT = frozenset({(_I, _D), (_I, _N), (_N, _D), (SqlType.DATE, SqlType.TIMESTAMP)})
"""The conversions that need no cast."""
