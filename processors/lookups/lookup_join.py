"""The kind that gives each event a row from outside.

events of a batch --key_of--> keys --one request--> rows
event, row --join--> outputs
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar, final

from ..declare.processor import ErrorAction
from ..declare.records import Record
from ..declare.stateless import Stateless
from ..errors import DeclarationError, PenstockError
from .cache import Cached
from .lookup import LookedUp, Lookup, OnUnreachable, Outside, fitting
from .protocols import LookupSource


class OnMiss(Enum):
    """What becomes of an event whose key has no row."""

    WITHOUT = "without"
    """It is joined with None."""
    DROP = "dropped"
    """It is counted and left out."""
    DEAD_LETTER = "dead letter"
    """It goes, with its origin and the reason, to the processor's dead letters; the rest goes on."""
    STOP = "stop"
    """The worker saves what came before it and stops there."""


class Missed(PenstockError):
    """An event's key has no row, and the processor does not want it without one."""


class LookupJoin(Stateless):
    """Gives each event the row that its key has in a table outside: a file, a store, or any other source.

    Rows are as they are when the batch is processed, or as they were when the cache took them: an event that is read again may meet
    a newer row. The rows of a batch are fetched in one request.

    Class attributes:
        source: where the rows are.
        cache: what is remembered of them, by each process; None for nothing. Tables that are held whole need none, and have none.
        on_miss: what becomes of an event whose key has no row.
        unreachable: what becomes of a batch whose rows cannot be had.
    """

    source: ClassVar[LookupSource]
    cache: ClassVar[Cached | None] = None
    on_miss: ClassVar[OnMiss] = OnMiss.WITHOUT
    unreachable: ClassVar[OnUnreachable] = OnUnreachable.STOP
    _outside = Outside()

    def key_of(self, event: Any) -> str | None:
        """Return the key of the event's row; None for an event that can have none."""
        raise DeclarationError(f"{type(self).__name__} has no key_of (asked for {event!r}).")

    @abstractmethod
    def join(self, event: Any, row: Any) -> Iterable[Record]:
        """Return, or yield, what an event gives with its row; None where it has none and is joined all the same."""

    def surround(self, outside: Outside) -> None:
        """Take the rows and the time from elsewhere; before `open`."""
        self._outside = outside

    def open(self) -> None:
        """Open the source. Who loads more here calls `super().open()`."""
        self._lookup.look()

    def close(self) -> None:
        """Let go of the source."""
        if "_lookup" in vars(self):
            self._lookup.close()
            del self._lookup

    def counts(self) -> LookedUp:
        """Return what was counted so far, which goes on being counted there."""
        return self._lookup.counts

    @cached_property
    def _lookup(self) -> Lookup:
        source = self._outside.source or self.source
        return Lookup(source, source.open(), self.cache, self.unreachable, self._outside)

    @final
    def process(self, event: Any) -> Iterable[Record]:
        """Join one event; the engine does it by the batch."""
        return self.for_batch([event])(event)

    @final
    def for_batch(self, events: Sequence[Any]) -> Callable[[Any], Iterable[Record]]:
        """Fetch the rows of a batch."""
        keys = self._keys_of(events)
        rows = self._lookup.rows({key for key in keys if type(key) is str})
        turn = iter(keys)

        def joined(event: Any) -> Iterable[Record]:
            key = next(turn)
            if isinstance(key, Exception):
                raise key
            row = None if key is None else rows.get(key)
            if row is None and self.on_miss is not OnMiss.WITHOUT:
                raise Missed(f"there is no row for key {key!r} in {self._outside.source or self.source}")
            return self.join(event, fitting(row))

        return joined

    def _keys_of(self, events: Sequence[Any]) -> list[str | Exception | None]:
        """Return the key of each event's row, or what was raised instead, which is the event's fate when its turn comes."""
        keys: list[str | Exception | None] = []
        for event in events:
            try:
                key = self.key_of(event)
            except Exception as error:  # noqa: BLE001 - whatever a user's code raises
                keys.append(error)
                continue
            if key is None or type(key) is str:
                keys.append(key)
            else:
                keys.append(TypeError(f"its key_of gave {key!r} for {event!r}: a key is a str, or None"))
        return keys

    @classmethod
    def fate_of(cls, error: Exception) -> ErrorAction:
        """Return what becomes of an event that found no row, or for which it raised."""
        if not isinstance(error, Missed):
            return super().fate_of(error)
        return ErrorAction(
            str(error),
            cls.on_miss is OnMiss.STOP,
            dropped=cls.on_miss is OnMiss.DROP,
            otherwise="on_miss = OnMiss.DEAD_LETTER",
        )

    @classmethod
    def check(cls) -> None:
        """Also: a source, a key, and choices that are some."""
        super().check()
        if not callable(getattr(getattr(cls, "source", None), "open", None)):
            raise DeclarationError(
                f"LookupJoin {cls.__name__}: declare `source = …`, where its rows are: a CsvTable, ParquetTable, PostgresTable, "
                "RedisTable, MemoryTable, or anything with an `open()` that returns rows to fetch."
            )
        if cls.key_of is LookupJoin.key_of:
            raise DeclarationError(
                f"LookupJoin {cls.__name__}: define `key_of(self, event)`, which says whose row an event is to be given."
            )
        for name, kind in (("cache", Cached | None), ("on_miss", OnMiss), ("unreachable", OnUnreachable)):
            if not isinstance(getattr(cls, name), kind):
                raise DeclarationError(
                    f"LookupJoin {cls.__name__}: `{name}` is {getattr(cls, name)!r}, which is none of what it can be: {kind}."
                )
