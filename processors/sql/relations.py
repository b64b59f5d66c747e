"""Tables of an SQL file: categories, and the columns of their records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from keyword import iskeyword
from typing import Any
from unicodedata import normalize

import msgspec
from sqlglot import exp

from ..declare import AnyCategory, Category, Processor, Record, Stateless
from ..errors import DeclarationError
from ..validation import did_you_mean
from .columns import ARROW_TYPES, named_column
from .errors import SqlRefused, SqlText
from .expression_compiler import Compiled
from .statements import ColumnDefinition, CreateInput, Setting, Settings
from .time_functions import interval_of
from .types import PYTHON_TYPES, ColumnType, SqlType

CATEGORY_SETTINGS = ("category", "key", "time", "buckets", "retention", "codec", "compacted", "replicas")
"""The settings of WITH that describe a category."""

_JSON = msgspec.json.Encoder(order="deterministic")


@dataclass(frozen=True)
class TableDeclaration:
    """The description of a table.

    Args:
        name: its name in queries; without the setting `category`, also the name of its category.
        columns: the types of its columns, by name.
        time: the column with the event time.
        settings: the values of WITH. Without `key`, the buckets of events are unknown.
        position: the position of the statement in the file.
        group: the columns that are the key together, unless a setting names one.
    """

    name: str
    columns: Mapping[str, ColumnType]
    time: str
    settings: Settings
    position: int
    group: tuple[str, ...] = ()


class Updates(Enum):
    """Why a row of a table replaces the earlier rows of its key."""

    LATEST_ROWS = "compacted"
    """The category retains the latest row of each key."""
    RESULTS = "results"
    """Its query writes the result of a group again when it changes."""


@dataclass(frozen=True)
class RowStep:
    """A kind of processor, and its method that receives each row.

    Args:
        kind: the kind of processor.
        members: its attributes besides the method: its inputs and options.
        method: the name of the method.
        parameters: its parameters, as code.
        before: the lines of the method before the code of the query.
    """

    kind: type[Processor]
    members: Mapping[str, Any]
    method: str
    parameters: str
    before: tuple[str, ...] = ()


@dataclass(frozen=True)
class Relation:
    """A table that queries can read: the events of a category.

    Args:
        name: its name in queries.
        category: its category.
        columns: the types of its columns, by name.
        attributes: the Python names of the fields of its record, by column.
        time: the column with the event time.
        has_watermarks: whether processors write it, in this file or elsewhere, with watermarks of this event time.
        updates: why a row replaces the earlier rows of its key; None if each row is an event of its own.
    """

    name: str
    category: AnyCategory
    columns: Mapping[str, ColumnType]
    attributes: Mapping[str, str]
    time: str
    has_watermarks: bool = False
    updates: Updates | None = None

    @property
    def key(self) -> str | None:
        """The column with the key; None without one."""
        return self.category.key if isinstance(self.category.key, str) else None

    def is_keyed_by(self, column: str) -> bool:
        """Return whether a column is the key, so that an aggregator can read its groups directly."""
        return self.key == column and self.category.partitioner is not None

    @property
    def step(self) -> RowStep:
        """How a processor without state reads the rows."""
        return RowStep(Stateless, {"reads": self.category}, "process", "self, event")

    @staticmethod
    def of_input(text: SqlText, statement: CreateInput) -> Relation:
        """Return the table of a category that the file declares.

        Raises:
            SqlRefused: a column has no type, or the declaration is invalid.
        """
        if statement.time is None:
            raise text.refusal(
                statement.position, f"{statement.name} has no event time.", "Name its column: WITH (time = 'at')."
            )
        key = _value(statement.settings, "key")
        needed = {statement.time} if key is None else {statement.time, str(key)}
        columns = column_types(text, statement.columns, needed)
        settings = {"category": Setting(statement.category, statement.position), **statement.settings}
        watermark = settings.pop("watermark", None)
        if watermark is not None and watermark.value != "upstream":
            raise text.refusal(
                watermark.position,
                f"There is no watermark {watermark.value!r}.",
                "Write 'upstream' if processors of Penstock write the category, or omit the setting.",
            )
        declared = TableDeclaration(statement.name, columns, statement.time, settings, statement.position)
        return replace(Relation.of(text, declared), has_watermarks=watermark is not None)

    @staticmethod
    def of(text: SqlText, declared: TableDeclaration) -> Relation:
        """Return the table of a declaration.

        Raises:
            SqlRefused: a setting is unknown or invalid.
        """
        _check_settings(text, declared)
        attributes = attributes_of(declared.columns)
        category = _category(text, declared, record_of(declared.name, declared.columns, attributes))
        updates = Updates.LATEST_ROWS if category.compacted else None
        return Relation(declared.name, category, declared.columns, attributes, declared.time, updates=updates)

    def column(self, table: str | None, name: str) -> Compiled | None:
        """Return the code of a column; None if there is none of this name."""
        found = self.columns.get(name)
        if found is None or table not in (None, self.name):
            return None
        columns = named_column(name) if found.type in ARROW_TYPES else None
        return Compiled(f"event.{self.attributes[name]}", found.type, nullable=found.nullable, columns=columns)

    def names(self) -> Sequence[str]:
        """Return the names of all columns."""
        return list(self.columns)


def column_types(text: SqlText, declared: Sequence[ColumnDefinition], needed: Collection[str]) -> dict[str, ColumnType]:
    """Return the types of declared columns, by name.

    Args:
        text: the file.
        declared: the columns.
        needed: the columns that are never NULL.

    Raises:
        SqlRefused: a column has no type, or one that fields do not have.
    """
    columns: dict[str, ColumnType] = {}
    for column in declared:
        expect_name(text, column.position, column.name)
        if column.type not in PYTHON_TYPES:
            problem = "has no type" if column.type is None else f"has the type {column.type.value}"
            advice = f"Write one of: {', '.join(kind.value for kind in PYTHON_TYPES)}."
            if column.type is None:
                advice += f" `penstock category infer {text.name}` writes the types of the topic's messages."
            raise text.refusal(column.position, f"Column {column.name} {problem}.", advice)
        if column.type is SqlType.JSON and (column.name in needed or not column.nullable):
            raise text.refusal(
                column.position,
                f"Column {column.name} has the type jsonb, so it can be NULL, and cannot be a key or an event time.",
            )
        columns[column.name] = ColumnType(column.type, nullable=column.nullable and column.name not in needed)
    return columns


def expect_name(text: SqlText, position: int, name: str) -> None:
    """Raise SqlRefused for the name of a column that no field of a message can have."""
    if any(character in '"\\' or character < " " for character in name):
        raise text.refusal(
            position,
            f"The name {name!r} contains a double quote, a backslash or a control character, which fields of messages do not have.",
            "Choose another name.",
        )


def no_key(_: Record) -> str:
    """Return the key of every record of a category without a declared key."""
    return ""


def key_of_group(declared: TableDeclaration) -> Callable[[Record], str]:
    """Return the function from a record to its key: the JSON of the columns of its group."""
    attributes = attributes_of(declared.columns)
    values = [attributes[name] for name in declared.group]

    def key(record: Record) -> str:
        return _JSON.encode([getattr(record, name) for name in values]).decode()

    key.__qualname__ = ", ".join(declared.group)  # as explanations and descriptions of state name it
    return key


def unknown_setting(text: SqlText, name: str, setting: Setting, known: Sequence[str]) -> SqlRefused:
    """Return the error of an unknown setting of WITH."""
    return text.refusal(
        setting.position,
        f"There is no setting {name}.",
        f"The settings are {', '.join(known)}.{did_you_mean(name, known)}",
    )


def _check_settings(text: SqlText, declared: TableDeclaration) -> None:
    for name, setting in declared.settings.items():
        if name not in CATEGORY_SETTINGS:
            raise unknown_setting(text, name, setting, CATEGORY_SETTINGS)
    for role, column in (("time", declared.time), ("key", _value(declared.settings, "key"))):
        if column is not None and column not in declared.columns:
            place = declared.settings[role].position if role in declared.settings else declared.position
            raise text.refusal(
                place,
                f"The {role} of {declared.name}, {column}, is not one of its columns: {', '.join(declared.columns)}.",
                did_you_mean(str(column), declared.columns).strip(),
            )


def _category(text: SqlText, declared: TableDeclaration, record: type[Record]) -> AnyCategory:
    settings = declared.settings
    options: dict[str, Any] = {
        name: settings[name].value for name in ("buckets", "codec", "compacted", "replicas") if name in settings
    }
    if "retention" in settings:
        retention = settings["retention"]
        options["retention"] = None if retention.value == "forever" else duration(text, retention)
    named = _value(settings, "key")
    if named is None and not declared.group:
        options["partitioner"] = None
    key = key_of_group(declared) if declared.group else no_key
    name = str(_value(settings, "category") or declared.name)
    try:
        return Category(name, record, key=key if named is None else str(named), event_time=declared.time, **options)
    except DeclarationError as error:
        raise text.refusal(declared.position, str(error)) from error


def duration(text: SqlText, setting: Setting) -> timedelta:
    """Return the value of a setting such as '7 days'.

    Raises:
        SqlRefused: it is no interval, or a negative one.
    """
    amount, _, unit = str(setting.value).partition(" ")
    node = exp.Interval(this=exp.Literal.string(amount), unit=exp.Var(this=unit))
    node.meta["start"] = setting.position
    length = interval_of(text, node)
    if length < timedelta():
        raise text.refusal(setting.position, f"The length {setting.value!r} is negative.", "Write '5 seconds'.")
    return length


def _value(settings: Settings, name: str) -> str | int | bool | None:
    return settings[name].value if name in settings else None


def attributes_of(columns: Iterable[str]) -> dict[str, str]:
    """Return the Python name of each column: its own name where Python allows it."""
    names = list(columns)
    usable = {column for column in names if _is_usable(column)}
    attributes: dict[str, str] = {}
    for index, column in enumerate(names):
        attribute = column if column in usable else f"column_{index}"
        while attribute in usable and attribute != column:
            attribute += "_"
        attributes[column] = attribute
    return attributes


def _is_usable(column: str) -> bool:
    """Return whether a column can be an attribute. Python's code names an attribute in its normal form only."""
    is_normal = normalize("NFKC", column) == column
    return column.isidentifier() and is_normal and not iskeyword(column) and not column.startswith("_")


def record_of(name: str, columns: Mapping[str, ColumnType], attributes: Mapping[str, str]) -> type[Record]:
    """Return the type of the records of a table.

    Args:
        name: the name of the type.
        columns: the types of the columns, by name.
        attributes: the names of their fields.
    """
    fields: list[Any] = [
        (attributes[column], kind.annotation(), None) if kind.nullable else (attributes[column], kind.annotation())
        for column, kind in columns.items()
    ]
    renamed = {attribute: column for column, attribute in attributes.items() if column != attribute}
    made: Any = msgspec.defstruct(
        name, fields, bases=(Record,), frozen=True, kw_only=True, rename=renamed or None, module=__name__
    )
    record: type[Record] = made
    return record
