"""The declaration of a Laser table, and the processor that keeps its pairs.

record --key columns--> key of the pair
       --value columns-> value of the pair, as bytes that clients receive
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import inspect as shapes

from ....processors import DeclarationError
from ....processors.declare import AnyCategory, Context, FieldPath, Stateful, StatefulPlan, Tombstone, find_field
from ....processors.models import encode_model
from ....processors.time import MILLISECOND, Timer

SEPARATOR = ":"
"""Between the columns of a key."""
_ESCAPE = "\\"
_NAME_PREFIX = "laser."


class Pair(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The value of a key.

    Args:
        value: the bytes that clients receive.
        at: the event time of its record (milliseconds since 1970, UTC).
    """

    value: bytes
    at: int


@dataclass(frozen=True)
class LatestTable:
    """A table of pairs from a category.

    Args:
        name: its name. Its processor is called `laser.NAME`.
        category: its source.
        key: the columns of the key, in order.
        value: the columns of the value, in order.
        lifetime: how long after its event time a pair is served; None forever.

    Raises:
        DeclarationError: a column is unknown, occurs twice or cannot be part of a key, or the lifetime is not above zero.
    """

    name: str
    category: AnyCategory
    key: tuple[str, ...]
    value: tuple[str, ...]
    lifetime: timedelta | None = None

    def __post_init__(self) -> None:
        if not self.key or not self.value:
            raise DeclarationError(f"Laser table {self.name} needs at least one column for --key and one for --value.")
        for column in self.key:
            _expect_key_column(self.category, column)
        for column in self.value:
            _column(self.category, "value", column)
        twice = [column for columns in (self.key, self.value) for column in columns if columns.count(column) > 1]
        if twice:
            raise DeclarationError(
                f"Laser table {self.name} names the column {twice[0]} twice. Nothing was started. Name it once."
            )
        if self.lifetime is not None and self.lifetime <= timedelta():
            raise DeclarationError(
                f"Laser table {self.name}: a lifetime of {self.lifetime} must be greater than zero. Nothing was started. Write 7d, or leave "
                "--keep out to keep pairs forever."
            )

    @cached_property
    def uses_category_key(self) -> bool:
        """Whether the key is the category's key, so that its bucket follows from it and tombstones delete the pair."""
        return len(self.key) == 1 and _column(self.category, "key", self.key[0]).name == self.category.key

    @property
    def lifetime_ms(self) -> int | None:
        """The lifetime in milliseconds; None forever."""
        return None if self.lifetime is None else self.lifetime // MILLISECOND

    @property
    def has_text_values(self) -> bool:
        """Whether values are texts; otherwise they are JSON."""
        if len(self.value) > 1:
            return False
        shape = _column(self.category, "value", self.value[0]).shape
        members = shape.types if isinstance(shape, shapes.UnionType) else (shape,)
        return any(isinstance(member, shapes.StrType) for member in members)

    def source(self) -> AnyCategory:
        """Return the category, keyed by the table's key."""
        if self.uses_category_key:
            return self.category
        return replace(self.category, key=_key_function(self.category, self.key))

    def processor(self) -> type[Stateful]:
        """Return the processor that keeps the pairs."""
        base = _Pairs if self.lifetime is None else _ExpiringPairs
        attributes = {
            "__doc__": f"Keeps the pairs of the Laser table {self.name}.",
            "name": _NAME_PREFIX + self.name,
            "reads": self.source(),
            "key_check": self.uses_category_key,
            "tombstones": self.uses_category_key,
            # Compaction may delete the last record of another key, if it has the same message key as a later record.
            "compaction_safe": self.uses_category_key,
            "is_ordered_by_time": not self.uses_category_key,
            "lifetime_ms": self.lifetime_ms,
            "value_of": staticmethod(_value_function(self.category, self.value)),
            "value_columns": self.value,
        }
        return type("LaserPairs", (base,), attributes)


class _Pairs(Stateful):
    """Keeps the last pair of each key: by arrival, or by event time if the events of a key are in several buckets."""

    state = Pair
    is_ordered_by_time: bool
    value_of: Callable[[Any], bytes]
    value_columns: tuple[str, ...]
    lifetime_ms: int | None

    def process(self, event: Any, state: Pair | None, context: Context) -> tuple[Pair | None, Sequence[Any]]:
        if isinstance(event, Tombstone):
            return None, ()
        if self.is_ordered_by_time and state is not None and state.at > context.event_time:
            return state, ()
        return Pair(self.value_of(event), context.event_time), ()


class _PairsPlan(StatefulPlan, of=_Pairs):
    """The plan of a processor of pairs."""

    declaration: type[_Pairs]

    @property
    def state_shape(self) -> str:
        """The type of a state, and the columns of the pairs: saved values of other columns would be wrong."""
        cls = self.declaration
        return f"{','.join(cls.value_columns)} as {super().state_shape}"


class _ExpiringPairs(_Pairs):
    """Keeps the last pair of each key for its lifetime in event time."""

    def process(self, event: Any, state: Pair | None, context: Context) -> tuple[Pair | None, Sequence[Any]]:
        pair, outputs = super().process(event, state, context)
        if pair is None:
            context.cancel()
        else:
            context.timer(pair.at + (self.lifetime_ms or 0))
        return pair, outputs

    def on_timer(self, timer: Timer, state: Pair, context: Context) -> tuple[None, Sequence[Any]]:  # noqa: ARG002 - the only timer of a key
        return None, ()


def join_key(columns: Sequence[str]) -> str:
    r"""Return the key of several columns. A colon or backslash within a column follows a backslash.

    Examples:
        >>> join_key(["UA", "EWR"])
        'UA:EWR'
        >>> join_key(["a:b", "c"])
        'a\\:b:c'
    """
    escaped = (column.replace(_ESCAPE, _ESCAPE * 2).replace(SEPARATOR, _ESCAPE + SEPARATOR) for column in columns)
    return SEPARATOR.join(escaped)


def _column(category: AnyCategory, role: str, column: str) -> FieldPath:
    found, *_ = [find_field(category.name, role, record, column) for record in category.record_types]
    if len(found.names) > 1:
        raise DeclarationError(
            f"Category {category.name}: `{role}={column!r}` is a field of a nested record. Nothing was started. Name the outer column, whose value "
            "is then JSON."
        )
    return found


def _expect_key_column(category: AnyCategory, column: str) -> None:
    field = _column(category, "key", column)
    if field.optional or not isinstance(field.shape, (shapes.StrType, shapes.IntType)):
        raise DeclarationError(
            f"Category {category.name}: column {column!r} cannot be part of a key, because it is not a str or an int without None. Nothing was "
            "started. Name other columns with --key."
        )


def _key_function(category: AnyCategory, columns: Sequence[str]) -> Callable[[Any], str]:
    getters = [attrgetter(_column(category, "key", column).attribute) for column in columns]

    def key(record: Any) -> str:
        found = [str(getter(record)) for getter in getters]
        return found[0] if len(found) == 1 else join_key(found)

    key.__qualname__ = ",".join(columns)  # the description of the state names it, so another key is another state
    return key


def _value_function(category: AnyCategory, columns: Sequence[str]) -> Callable[[Any], bytes]:
    fields = [_column(category, "value", column) for column in columns]
    getters = [(field.name, attrgetter(field.attribute)) for field in fields]
    encode = msgspec.json.Encoder(enc_hook=encode_model).encode
    if len(getters) > 1:
        return lambda record: encode({name: getter(record) for name, getter in getters})
    [(_, only)] = getters

    def value(record: Any) -> bytes:
        found = only(record)
        return found.encode() if isinstance(found, str) else encode(found)

    return value
