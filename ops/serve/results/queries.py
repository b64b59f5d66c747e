"""Queries over the results of processors: by key, by rank, and lists of keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from itertools import islice
from operator import attrgetter
from typing import Any

from ....processors import counted
from ....processors.declare import fields_of
from ....processors.time import GlobalWindow
from .answers import AsOf, Keys, ProcessorInfo, Row, Rows, WindowBounds
from .follower import ResultFollower
from .parameters import MAX_KEYS, BadQuery, Parameters, TimeSpan
from .result_table import Result, ResultTable
from .served import ServedProcessor

DEFAULT_TOP = 10
_WHEN = ("at", "from", "to", "last")
RESULT_PARAMETERS = ("key", *_WHEN, "limit")
TOP_PARAMETERS = ("by", "count", *_WHEN)
KEY_PARAMETERS = ("after", "prefix", "limit", *_WHEN)


class UnknownProcessor(BadQuery):
    """The server serves no processor of this name."""


@dataclass(frozen=True)
class Queries:
    """Answers queries. Thread-safe.

    Args:
        follower: has the results.
        as_of: returns how far the answers of a processor are behind.
        now_ms: the wall clock (milliseconds since 1970, UTC).
        on_read: called with the name of the processor for each answered query of results.
    """

    follower: ResultFollower
    as_of: Callable[[str], AsOf]
    now_ms: Callable[[], int]
    on_read: Callable[[str], None] = lambda _: None

    @property
    def served(self) -> Mapping[str, ServedProcessor]:
        """The processors by name."""
        return self.follower.served

    def expect_ready(self) -> None:
        """Check that queries have an answer.

        Raises:
            NotReady: the server has not read all earlier results, or not measured the lag.
        """
        for name in self.served:
            self.follower.table(name)
            self.as_of(name)

    def processor(self, name: str) -> ServedProcessor:
        """Return a served processor.

        Raises:
            UnknownProcessor: there is none of this name.
        """
        found = self.served.get(name)
        if found is None:
            raise UnknownProcessor(
                f"This server does not serve {name!r}. It serves: {', '.join(self.served)}. Start another one with `penstock serve results APP`."
            )
        return found

    def info(self, name: str) -> ProcessorInfo:
        """Return facts about a processor and its results."""
        served, table = self.processor(name), self.follower.table(name)
        with self.follower.lock:
            bounds = table.bounds if served.is_windowed else None
            results, keys = len(table), table.key_count
        return ProcessorInfo(
            name,
            served.category.name,
            _declared(getattr(served.source, "window", None)),
            list(fields_of(served.category.record)),
            list(served.numbers),
            results,
            keys,
            None if bounds is None else bounds[0],
            None if bounds is None else bounds[1],
            self.follower.skipped(name),
            self.as_of(name),
        )

    def results(self, name: str, parameters: Parameters) -> Rows:
        """Return the results of keys.

        Raises:
            BadQuery: a parameter is invalid.
            NotReady: the server has not read all earlier results.
        """
        parameters.expect_only(*RESULT_PARAMETERS)
        served, keys = self.processor(name), parameters.all("key")
        if not 1 <= len(keys) <= MAX_KEYS:
            raise BadQuery(
                f"The query names {counted(len(keys), 'key')}. Pass from 1 to {MAX_KEYS:,}, as key=…; /keys lists them."
            )
        when, limit = parameters.when(self.now_ms()), parameters.limit("limit")
        slots = served.slots_at(when) if isinstance(when, int) else ()
        span = when if isinstance(when, TimeSpan) and served.is_windowed else None
        table = self.follower.table(name)
        with self.follower.lock:
            found = [
                result
                for key in dict.fromkeys(table.known(served.spellings(key)) for key in keys)
                for result in _of_key(table, key, slots if isinstance(when, int) else span, limit)
            ]
        rows = Rows(name, [row for result in found for row in rows_of(result)], self.as_of(name))
        self.on_read(name)
        return rows

    def top(self, name: str, parameters: Parameters) -> Rows:
        """Return the records with the largest values of a field, over all keys.

        Raises:
            BadQuery: a parameter is invalid.
            NotReady: the server has not read all earlier results.
        """
        parameters.expect_only(*TOP_PARAMETERS)
        served = self.processor(name)
        by, count = parameters.one("by"), parameters.limit("count", DEFAULT_TOP)
        weight = _ranking(served.weight(by))
        when, table = parameters.when(self.now_ms()), self.follower.table(name)
        with self.follower.lock:
            ranked = table.top(_slots(served, table, when), by or "", weight, count)
        rows = [Row(each.result.key, _bounds(each.result), each.result.event_time, each.record) for each in ranked]
        answer = Rows(name, rows, self.as_of(name))
        self.on_read(name)
        return answer

    def keys(self, name: str, parameters: Parameters) -> Keys:
        """Return a page of the keys, in order.

        Raises:
            BadQuery: a parameter is invalid.
            NotReady: the server has not read all earlier results.
        """
        parameters.expect_only(*KEY_PARAMETERS)
        served, limit, when = self.processor(name), parameters.limit("limit"), parameters.when(self.now_ms())
        after, prefix = parameters.one("after") or "", parameters.one("prefix") or ""
        table = self.follower.table(name)
        with self.follower.lock:
            slots = None if when is None else _slots(served, table, when)
            found = table.keys(after, prefix, limit + 1, slots)
        answer = Keys(name, found[:limit], found[limit - 1] if len(found) > limit else None, self.as_of(name))
        self.on_read(name)
        return answer


def _of_key(table: ResultTable, key: str, when: Sequence[int] | TimeSpan | None, limit: int) -> Sequence[Result]:
    """Return the results of a key in slots, in a time span, or the latest one; in order of time."""
    if when is None:
        latest = table.latest(key)
        return [] if latest is None else [latest]
    if isinstance(when, TimeSpan):
        return list(islice(table.overlapping(key, when.begin_ms, when.end_ms), limit))[::-1]
    return table.in_slots(key, when)


def _slots(served: ServedProcessor, table: ResultTable, when: int | TimeSpan | None) -> Sequence[int]:
    """Return the slots that a query covers."""
    if isinstance(when, int):
        return served.slots_at(when)
    if when is None or not served.is_windowed:
        return table.last_slots(1)
    return table.slots_overlapping(when.begin_ms, when.end_ms)


def _ranking(field: attrgetter[Any]) -> Callable[[Any], float]:
    """Return a function that ranks a missing number last."""

    def weight(record: Any) -> float:
        value = field(record)
        return float("-inf") if value is None else value

    return weight


def rows_of(result: Result) -> list[Row]:
    """Return the rows of a result: one for each record."""
    return [Row(result.key, _bounds(result), result.event_time, record) for record in result.records]


def _declared(window: object) -> str | None:
    """Return windows as declared, such as `Tumbling(size=0:05:00)`; None for one window."""
    if window is None or isinstance(window, GlobalWindow):
        return None
    if not is_dataclass(window):
        return type(window).__name__
    return (
        f"{type(window).__name__}({', '.join(f'{each.name}={getattr(window, each.name)}' for each in fields(window))})"
    )


def _bounds(result: Result) -> WindowBounds | None:
    return None if result.window is None else WindowBounds(*result.window)
