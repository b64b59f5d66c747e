"""States and partials that another version of the class saved: the error says which, and what to do."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import penstock as ps
from penstock.processors import ProcessorFailed
from penstock.processors.operators import open_operator
from penstock.processors.shard import Overlay
from penstock.state import MemoryShardState

START = 1_700_000_000_000


class Item(ps.Record, frozen=True):
    """An input and an output."""

    user: str
    at: ps.EventTime


class Before(ps.Record, frozen=True):
    """A state."""

    count: int


class After(ps.Record, frozen=True):
    """The state with a further field."""

    count: int
    last: str


class Compatible(ps.Record, frozen=True):
    """The state with a further field that has a default."""

    count: int
    last: str = ""


class ListBefore(ps.Record, frozen=True):
    """A state that stays encoded."""

    numbers: list[int]


class ListAfter(ps.Record, frozen=True):
    """The same with a further field."""

    numbers: list[int]
    last: str


items = ps.Category("items", Item, key="user", event_time="at", buckets=1)
copies = ps.Category("copies", Item, key="user", event_time="at", buckets=1)


def stateful(state: Any, *values: Any) -> ps.Stateful:
    class Keeps(ps.Stateful):
        reads, writes = items, copies

        def process(self, event: Item, state: Any, context: ps.Context) -> Any:
            return type(self).state(*values), []

    Keeps.state = state
    return Keeps()


def windowed(state: Any, *values: Any) -> ps.Windowed:
    class Keeps(ps.Windowed):
        reads, writes, window = items, copies, ps.windows.Tumbling(timedelta(hours=1))

        def fold(self, event: Item, state: Any, window: ps.Window, context: ps.Context) -> Any:
            return type(self).state(*values), []

        def complete(self, state: Any, window: ps.Window, context: ps.Context) -> Any:
            return []

    Keeps.state = state
    return Keeps()


class Sums(ps.monoids.Monoid[int]):
    """Counts."""

    def identity(self) -> int:
        return 0

    def combine(self, left: int, right: int, /) -> int:
        return left + right


class Boxed(Sums):
    """The same, saved in another form."""

    def dump(self, value: int) -> Any:
        return {"count": value}

    def load(self, dumped: Any) -> int:
        count: int = dumped["count"]
        return count


def aggregator(sums: Sums, **attributes: Any) -> ps.Aggregator:
    class Counts(ps.Aggregator):
        reads, writes, monoid = items, copies, sums

        def observe(self, event: Item) -> int:
            return 1

        def result(self, key: str, window: ps.Window, value: int) -> Item:
            return Item(key, value)

    kind: type[ps.Aggregator] = type("Counts", (Counts,), attributes)
    return kind()


AT_END = {"emit": ps.AtWatermark(), "late": ps.OnLate.DROP}


def continued(before: Any, after: Any) -> None:
    """Process an event with one version of a class, and an equal one with another one."""
    saved = MemoryShardState()
    overlay = Overlay(saved, lambda _, later: later)
    for processor in (before, after):
        operator = open_operator(processor, overlay)
        operator.feed(items, [Item("ann", START)], stop_at_error=True)
        overlay.add(operator.drain().changes)
        saved.save(overlay.snapshot())
        overlay.finish({})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (stateful(Before, 1), stateful(After, 1, "")),
        (windowed(Before, 1), windowed(After, 1, "")),
        (stateful(ListBefore, [1]), stateful(ListAfter, [1], "")),
        (windowed(ListBefore, [1]), windowed(ListAfter, [1], "")),
    ],
)
def test_a_saved_state_without_a_new_field_is_named_with_its_key(before: ps.Stateful, after: ps.Stateful) -> None:
    """The error comes before the first event, and says to give the field a default or to convert the states."""
    with pytest.raises(
        ProcessorFailed,
        match=r"Keeps cannot read the saved state of key 'ann' as (List)?After: .*`last`.*Give a new field a default.*penstock state migrate",
    ):
        continued(before, after)


def test_a_saved_state_is_read_with_the_default_of_a_new_field() -> None:
    """A field with a default needs no conversion."""
    continued(stateful(Before, 1), stateful(Compatible, 2))


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {**AT_END, "window": ps.windows.Tumbling(timedelta(hours=1))},
        {**AT_END, "window": ps.windows.Session(timedelta(hours=1))},
        {**AT_END, "window": ps.windows.Sliding(timedelta(hours=1))},
    ],
)
def test_a_saved_partial_of_another_monoid_is_refused_in_words(attributes: dict[str, Any]) -> None:
    """The monoid's own error is in the message, and the advice is about `load`."""
    with pytest.raises(
        ProcessorFailed, match=r"Counts cannot read a saved partial with Boxed.*TypeError.*Let `load` accept"
    ):
        continued(aggregator(Sums(), **attributes), aggregator(Boxed(), **attributes))
