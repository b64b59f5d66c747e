"""Lookup joins: stateless processors that enrich events with rows from outside the bus.

events of a batch --key_of--> keys --one request--> rows
event, row --join--> outputs
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar, Generic, final

from ..declare import (
    AnyCategory,
    ErrorAction,
    Event,
    Method,
    Output,
    Row,
    Stateless,
    StatelessPlan,
    check_methods,
    engine_method,
    unshared,
)
from ..errors import DeclarationError, PenstockError, UserCodeError
from ..validation import type_in_words
from ..wording import as_code, is_encodable
from .cache import Cached
from .category_table import CategoryTable
from .lookup import Lookup, LookupEnvironment, LookupMetrics, OnUnreachable, valid_row
from .protocols import LookupSource

_SOURCE_INSTEAD = (
    "The rows come from `source`, with one request per batch. For other calls to a service, derive from penstock.Stateless, whose `process` may "
    "be `async def`."
)


class OnMiss(Enum):
    """What a lookup join does with an event whose key has no row."""

    JOIN_NONE = "join with None"
    """Join the event with None."""
    DROP = "drop"
    """Drop the event and count it."""
    DEAD_LETTER = "dead letter"
    """Write the event, its origin and the reason to the processor's dead letters, and continue."""
    STOP = "stop"
    """Save everything before the event, then stop."""


class MissingRow(PenstockError):
    """An event's key has no row, and the processor does not accept None."""


class LookupJoin(Stateless[Event, Output], Generic[Event, Row, Output]):
    """Enriches each event with a row of a table: a category, a file, PostgreSQL, Redis or a source of your own.

    The rows of a batch are fetched in one request. A row is as current as its batch, or as its cache entry. A repeated event may
    therefore be joined with a newer row.

    `LookupJoin[Event, Row | None, Output]` names the types of `join` for type checkers.

    Class attributes:
        source: where the rows are.
        cache: the limits of the cache in each process; None (the default) for no cache. Tables that are loaded as a whole ignore it.
        on_miss: what to do with an event whose key has no row. Default: join it with None.
        on_unreachable: what to do when the source does not answer. Default: stop.

    Examples:
        >>> import penstock as ps
        >>> class Departure(ps.Record, frozen=True):
        ...     airport: str
        ...     at: int
        >>> class Departed(Departure, frozen=True):
        ...     city: str | None
        >>> class Cities(ps.LookupJoin):
        ...     reads = ps.Category("departures", Departure, key="airport", event_time="at")
        ...     writes = ps.Category("departed", Departed, key="airport", event_time="at")
        ...     source = ps.lookups.MemoryTable({"JFK": "New York"})
        ...
        ...     def key_of(self, event):
        ...         return event.airport
        ...
        ...     def join(self, event, row):
        ...         yield Departed(event.airport, event.at, city=row)
        >>> list(Cities().process(Departure("JFK", 0)))
        [Departed(airport='JFK', at=0, city='New York')]
    """

    source: ClassVar[LookupSource]
    cache: ClassVar[Cached | None] = None
    on_miss: ClassVar[OnMiss] = OnMiss.JOIN_NONE
    on_unreachable: ClassVar[OnUnreachable] = OnUnreachable.STOP
    _environment = LookupEnvironment()

    def key_of(self, event: Event) -> str | None:
        """Return the key of the event's row, or None if the event has no row."""
        raise DeclarationError(
            f"LookupJoin {type(self).__name__} does not define `key_of(self, event)`; it was called for {event!r}."
        )

    @abstractmethod
    def join(self, event: Event, row: Row) -> Iterable[Output]:
        """Return or yield the outputs of an event.

        Args:
            event: the event.
            row: the row of its key; None if the key has no row and `on_miss` is `OnMiss.JOIN_NONE`.
        """

    @engine_method
    def use_environment(self, environment: LookupEnvironment) -> None:
        """Replace the source and the clock. Call it before `open`."""
        self._environment = environment

    @engine_method
    def use_source(self, source: LookupSource) -> None:
        """Replace the source only. Call it before `open`."""
        self._environment = replace(self._environment, source=source)

    def open(self) -> None:
        """Open the source. An override must call `super().open()`."""
        self._lookup.check_source()

    def close(self) -> None:
        """Close the source. An override must call `super().close()`."""
        if "_lookup" in vars(self):
            self._lookup.close()
            del self._lookup

    @engine_method
    def metrics(self) -> LookupMetrics:
        """Return the live counters of this process."""
        return self._lookup.metrics

    @cached_property
    def _lookup(self) -> Lookup:
        source = self._environment.source or self.source
        return Lookup(source, source.open(), self.cache, self.on_unreachable, self._environment)

    @final
    def process(self, event: Event) -> Iterable[Output]:
        """Look up one event. The engine processes whole batches."""
        return self._joined([event])(event)

    @final
    def for_batch(self, category: AnyCategory, events: Sequence[Event]) -> Callable[[Event], Iterable[Output]]:  # noqa: ARG002 - the rows have keys of their own
        """Fetch the rows of a batch, and return the function that joins its events in order."""
        return self._joined(events)

    def _joined(self, events: Sequence[Event]) -> Callable[[Event], Iterable[Output]]:
        keys = self._keys_of(events)
        rows = self._lookup.rows({key for key in keys if type(key) is str})
        remaining = iter(keys)

        def joined(event: Event) -> Iterable[Output]:
            key = next(remaining)
            if isinstance(key, Exception):
                raise key
            row = None if key is None else rows.get(key)
            if row is None and self.on_miss is not OnMiss.JOIN_NONE:
                raise MissingRow(f"there is no row for key {key!r} in {self._environment.source or self.source}")
            joined_row: Any = unshared(valid_row(row))  # other events get the same row
            return self.join(event, joined_row)

        return joined

    def _keys_of(self, events: Sequence[Any]) -> list[str | Exception | None]:
        """Return the key of each event's row, or the exception to raise when the event is processed."""
        keys: list[str | Exception | None] = []
        for event in events:
            try:
                key = self.key_of(event)
            except Exception as error:  # noqa: BLE001 - user code may raise anything
                keys.append(error)
                continue
            if key is None or (type(key) is str and is_encodable(key)):
                keys.append(key)
            else:
                keys.append(
                    TypeError(
                        f"key_of returned {key!a} for {event!r}; it must return a str of whole characters, or None"
                    )
                )
        return keys


class LookupJoinPlan(StatelessPlan, of=LookupJoin):
    """The plan of a `LookupJoin`."""

    declaration: type[LookupJoin[Any, Any, Any]]

    def error_action(self, error: UserCodeError) -> ErrorAction:
        """Return how to handle an event without a row, or an error of `key_of` or `join`."""
        if not isinstance(error, MissingRow):
            return super().error_action(error)
        return ErrorAction(
            str(error),
            self.declaration.on_miss is OnMiss.STOP,
            dropped=self.declaration.on_miss is OnMiss.DROP,
            alternative="on_miss = OnMiss.DEAD_LETTER",
        )

    @property
    def side_inputs(self) -> tuple[AnyCategory, ...]:
        """The category of the source, if it is a `CategoryTable`."""
        cls = self.declaration
        return (cls.source.category,) if isinstance(cls.source, CategoryTable) else ()

    def check(self) -> None:
        """Also check the source, `key_of`, `join` and the options."""
        cls = self.declaration
        source: object = getattr(cls, "source", None)
        if isinstance(source, type) or not callable(getattr(source, "open", None)):
            found = "no source of rows" if source is None else f"`source = {as_code(source)}` is no source of rows"
            raise DeclarationError(
                f"LookupJoin {cls.__name__}: {found}. Nothing was read. Declare `source = …`: a CategoryTable, CsvTable, ParquetTable, PostgresTable, "
                "RedisTable or MemoryTable, or any LookupSource."
            )
        super().check()
        check_methods(
            cls,
            {
                "key_of": Method(("event",), "key", instead=_SOURCE_INSTEAD),
                "join": Method(("event", "row"), "[…]", may_yield=True, instead=_SOURCE_INSTEAD),
            },
        )
        if cls.key_of is LookupJoin.key_of:
            raise DeclarationError(
                f"LookupJoin {cls.__name__}: no lookup key. Define `key_of(self, event)`; it returns the key of the event's row."
            )
        for name, kind in (("cache", Cached | None), ("on_miss", OnMiss), ("on_unreachable", OnUnreachable)):
            if not isinstance(getattr(cls, name), kind):
                raise DeclarationError(
                    f"LookupJoin {cls.__name__}: `{name} = {as_code(getattr(cls, name))}` has the wrong type. Nothing was read. Declare {type_in_words(kind)}."
                )
