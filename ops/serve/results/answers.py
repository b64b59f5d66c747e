"""The answers of the query server, which its clients decode."""

from __future__ import annotations

from typing import Any

import msgspec


class AsOf(msgspec.Struct, frozen=True):
    """How far answers are behind. A figure that is unknown is None.

    Args:
        measured_at: when this was measured (milliseconds since 1970, UTC).
        state: the state of the processor, as in `penstock status`.
        lag_events: input events that the processor, or one before it, has not processed and saved.
        lag_s: the time since the oldest of them arrived, in seconds; 0 without one.
        unread_results: offsets with results that this server has not read.
        watermark: the low watermark of the processor that computes the results (milliseconds since 1970, UTC).
        problem: why the figures or the results are not current; empty while they are.
    """

    measured_at: int
    state: str | None = None
    lag_events: int | None = None
    lag_s: float | None = None
    unread_results: int | None = None
    watermark: int | None = None
    problem: str = ""


class WindowBounds(msgspec.Struct, frozen=True):
    """A window: `start` is inside, `end` is not (milliseconds since 1970, UTC)."""

    start: int
    end: int


class Row(msgspec.Struct, frozen=True):
    """One record of an answer.

    Args:
        key: its key.
        window: its window; None without one.
        event_time: its event time (milliseconds since 1970, UTC).
        result: the record.
    """

    key: str
    window: WindowBounds | None
    event_time: int
    result: Any


class Rows(msgspec.Struct, frozen=True):
    """The answer to a query for results."""

    processor: str
    results: list[Row]
    as_of: AsOf


class Keys(msgspec.Struct, frozen=True):
    """A page of keys.

    Args:
        processor: the processor.
        keys: the keys, in order.
        next: pass it as `after` for the next page; None on the last page.
        as_of: how far the answer is behind.
    """

    processor: str
    keys: list[str]
    next: str | None
    as_of: AsOf


class ProcessorInfo(msgspec.Struct, frozen=True):
    """A served processor.

    Args:
        processor: its name.
        category: the category of its records.
        windows: its windows, as declared; None for one result per key.
        fields: the fields of its records.
        rank_by: the fields that can rank records.
        results: the number of results in memory.
        keys: the number of keys.
        first: the start of the first window (milliseconds since 1970, UTC); None without results.
        last: the start of the last window.
        skipped_messages: messages that are in no answer, because they do not decode or a processor rejects them.
        as_of: how far answers are behind.
    """

    processor: str
    category: str
    windows: str | None
    fields: list[str]
    rank_by: list[str]
    results: int
    keys: int
    first: int | None
    last: int | None
    skipped_messages: int
    as_of: AsOf
