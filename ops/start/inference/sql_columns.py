"""The types of columns of an SQL file, inferred from the topics that it reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ....processors.sql import ColumnDefinition, CreateInput, SqlText, SqlType, parse_statements
from .formats import recognise
from .registries import NamedRegistry
from .shape import Shape
from .topic_sample import TopicSample

_TYPES = {
    frozenset({"bool"}): SqlType.BOOLEAN,
    frozenset({"int"}): SqlType.BIGINT,
    frozenset({"float"}): SqlType.DOUBLE,
    frozenset({"int", "float"}): SqlType.DOUBLE,
    frozenset({"decimal"}): SqlType.NUMERIC,
    frozenset({"datetime"}): SqlType.TIMESTAMP,
    frozenset({"date"}): SqlType.DATE,
    frozenset({"uuid"}): SqlType.UUID,
    frozenset({"bytes"}): SqlType.BYTES,
}
_TEXTS = {"str", "datetime", "naive", "uuid"}
DEFAULT_BUCKETS = 8
"""The number of buckets of a category that declares none."""
_NAME = re.compile(r'"(?:[^"]|"")*"|\w+')


def with_types(text: SqlText, read: Callable[[str], TopicSample], registry: NamedRegistry | None = None) -> str:
    """Return an SQL file with a type after each column of an input that has none, and with the number of buckets of its topic.

    The rest stays as it is.

    Args:
        text: the file.
        read: returns a sample of a topic.
        registry: the schema registry of the topics, if there is one.

    Raises:
        SqlRefused: the file is invalid, or a column has no type in the messages.
        TopicNotInferable: a topic is empty, or its messages have a format that cannot be recognised.
    """
    insertions: list[tuple[int, str]] = []
    for statement in parse_statements(text):
        if isinstance(statement, CreateInput):
            insertions += _missing(text, statement, read, registry)
    typed = text.text
    for at, inserted in sorted(insertions, reverse=True):
        typed = f"{typed[:at]}{inserted}{typed[at:]}"
    return typed


def _missing(
    text: SqlText, statement: CreateInput, read: Callable[[str], TopicSample], registry: NamedRegistry | None
) -> Iterator[tuple[int, str]]:
    """Yield what an input lacks, with the offsets in the file; nothing if all its columns have types."""
    untyped = [column for column in statement.columns if column.type is None]
    if not untyped:
        return
    sample = read(statement.category)
    shape = recognise(sample, registry).shape
    for column in untyped:
        name = _NAME.match(text.text, column.position)
        kind = _type(text, statement.category, column, shape)
        yield (name.end() if name else column.position), f" {kind.value}"
    buckets = sample.spec.buckets
    if "buckets" not in statement.settings and buckets != DEFAULT_BUCKETS:
        if text.text[statement.end - 1] == ")":
            yield statement.end - 1, f", buckets = {buckets}"
        else:
            yield statement.end, f" WITH (buckets = {buckets})"


def _type(text: SqlText, topic: str, column: ColumnDefinition, shape: Shape) -> SqlType:
    field = shape.fields.get(column.name)
    if field is None:
        names = ", ".join(shape.fields) or "no fields"
        raise text.refusal(
            column.position,
            f"The messages of {topic} have no field {column.name}.",
            f'They have: {names}. Names in quotes keep their case: "eventTime".',
        )
    kinds = field.not_null
    kind = _TYPES.get(kinds) or (SqlType.TEXT if kinds and kinds <= _TEXTS else None)
    if kind is None:
        seen = " and ".join(sorted(kinds)) or "only null"
        raise text.refusal(
            column.position,
            f"The field {column.name} of {topic} has no type of SQL ({seen}).",
            "Write its type, or leave it out.",
        )
    return kind
