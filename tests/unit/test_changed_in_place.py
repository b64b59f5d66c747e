"""Values that user code changes in place: what an event changed before it failed counts nothing, and nothing changes after it was returned."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Any, ClassVar

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.processors import PenstockError
from penstock.processors.declare import is_mutable, unshared
from penstock.processors.monoids import BrokenLaw, check_rejection
from penstock.processors.monoids.laws import REJECTION
from penstock.testing import Crash, Driver

START = 1_700_000_000_000
MS = timedelta(milliseconds=1)
FAILS = -1


class Item(ps.Record, frozen=True):
    """An item of a list."""

    user: str
    at: ps.EventTime
    number: int
    tags: list[int]


class Listed(ps.Record, frozen=True):
    """The numbers so far."""

    user: str
    at: ps.EventTime
    numbers: list[int]


class Row(ps.Record, frozen=True):
    """A row of a table."""

    user: str
    at: ps.EventTime
    numbers: list[int]


class Numbers(ps.Record, frozen=True):
    """A frozen state with a list."""

    numbers: list[int]


@dataclass
class Changeable:
    """A state that is no frozen record."""

    numbers: list[int]


class Model(pydantic.BaseModel):
    """A state of pydantic."""

    numbers: list[int]


items = ps.Category("items", Item, key="user", event_time="at", buckets=1)
rows = ps.Category("rows", Row, key="user", event_time="at", buckets=1)
listed = ps.Category("listed", Listed, key="user", event_time="at", buckets=1)

STATES: list[tuple[Any, Callable[[], Any], Callable[[Any], list[int]]]] = [
    (Numbers, lambda: Numbers([]), lambda state: state.numbers),
    (Changeable, lambda: Changeable([]), lambda state: state.numbers),
    (Model, lambda: Model(numbers=[]), lambda state: state.numbers),
    (list[int], list, lambda state: state),
    (dict[str, list[int]], dict, lambda state: state.setdefault("all", [])),
    (tuple[int, list[int]], lambda: (0, []), lambda state: state[1]),
]


def appending(state: Any, new: Callable[[], Any], numbers_in: Callable[[Any], list[int]]) -> type[ps.Stateful]:
    """Return a processor that appends to its state in place, fails after that, and returns the list itself in its output."""

    class Appends(ps.Stateful):
        reads, writes = items, listed
        watermark = ps.watermarks.BoundedOutOfOrderness(timedelta())
        output_semantics = ps.Semantics.EXACTLY_ONCE

        def process(self, event: Item, state: Any, context: ps.Context) -> Any:
            state = new() if state is None else state
            numbers = numbers_in(state)
            numbers.append(event.number)
            if event.number == FAILS:
                raise ValueError("fails after the change")
            return state, [Listed(event.user, event.at, numbers)]

    Appends.state = state
    return Appends


def sent(numbers: Iterable[int]) -> list[Item]:
    return [Item("ann", START + at, number, [number]) for at, number in enumerate(numbers)]


def written(driver: Driver) -> list[list[int]]:
    return [record.numbers for record in driver.read(listed)]


@pytest.mark.parametrize(("state", "new", "numbers_in"), STATES)
def test_an_event_that_fails_after_it_changed_the_state_counts_once_or_not_at_all(
    state: Any, new: Callable[[], Any], numbers_in: Callable[[Any], list[int]]
) -> None:
    """With STOP, the failed event counts once after the correction; with DEAD_LETTER, it never counts."""
    kind = appending(state, new, numbers_in)
    stops: Any = type("Appends", (kind,), {"on_error": ps.ErrorPolicy.STOP})
    continues: Any = type("Appends", (kind,), {"on_error": ps.ErrorPolicy.DEAD_LETTER})
    stopped, continued = Driver(stops), Driver(continues)
    with pytest.raises(PenstockError, match="fails after the change"):
        stopped.send(items, sent([1, 2, FAILS]))
    failing = stops.process
    stops.process = lambda self, event, state, context: failing(
        self, Item(event.user, event.at, abs(event.number), event.tags), state, context
    )
    stopped.send(items, sent([3]))
    continued.send(items, sent([1, 2, FAILS, 3]))

    assert written(stopped) == [[1], [1, 2], [1, 2, 1], [1, 2, 1, 3]]
    assert written(continued) == [[1], [1, 2], [1, 2, 3]]


@given(numbers=st.lists(st.sampled_from([1, 2, 3, FAILS]), max_size=12), cuts=st.lists(st.integers(0, 12), max_size=4))
@settings(max_examples=25, deadline=None)
def test_a_state_that_is_changed_in_place_equals_one_that_is_replaced(numbers: list[int], cuts: list[int]) -> None:
    """Outputs depend on the events alone: not on batches, crashes, failed events, or later changes of the state."""
    driver = Driver(type("Appends", (appending(*STATES[0]),), {"on_error": ps.ErrorPolicy.DEAD_LETTER}))
    for begin, end in zip([0, *sorted(cuts)], [*sorted(cuts), 12], strict=True):
        driver.send(items, [*sent(numbers[begin:end]), Crash()])
    valid = [number for number in numbers if number != FAILS]

    assert written(driver) == [valid[: end + 1] for end in range(len(valid))]


def test_code_that_reads_a_state_cannot_change_it() -> None:
    """What a timer that returns another state, a schedule and a window's results do to a state stays with them."""

    class Reads(ps.Stateful):
        reads, writes, state = items, listed, list[int]
        watermark = ps.watermarks.BoundedOutOfOrderness(timedelta())
        deterministic = False
        schedules = MappingProxyType({"minutely": ps.Interval(timedelta(minutes=1))})

        def process(self, event: Item, state: list[int] | None, context: ps.Context) -> Any:
            context.timer(event.at + 1)
            return [*(state or ()), event.number], []

        def on_timer(self, timer: ps.Timer, state: list[int], context: ps.Context) -> Any:
            kept = list(state)
            state.clear()
            return kept, []

        def on_schedule(self, firing: ps.Firing, states: Iterable[tuple[str, list[int]]]) -> Iterable[Listed]:
            for key, state in states:
                state.append(FAILS)
                yield Listed(key, START, state)

    driver = Driver(Reads)
    driver.send(items, sent([1, 2, 3]))
    driver.advance(61)
    driver.advance(60)

    assert written(driver) == [[1, 2, 3, FAILS]] * 2


def test_each_window_gets_its_own_event_and_keeps_its_state_from_its_results() -> None:
    """Windows of one event share nothing, and `complete` may change its argument."""

    class Windows(ps.Windowed):
        reads, writes, state = items, listed, list[int]
        window = ps.windows.Hopping(2 * MS, step=MS)
        watermark = ps.watermarks.BoundedOutOfOrderness(timedelta())
        allowed_lateness = 10 * MS

        def fold(self, event: Item, state: list[int] | None, window: ps.Window, context: ps.Context) -> Any:
            event.tags.append(0)
            return event.tags if state is None else state + event.tags, []

        def complete(self, state: list[int], window: ps.Window, context: ps.Context) -> Iterable[Listed]:
            state.append(FAILS)
            return [Listed(context.key, window.start, state)]

    driver = Driver(Windows)
    driver.send(items, [Item("ann", START + at, at, [at]) for at in (1, 2, 4, 1)])
    found = [(record.at - START, record.numbers) for record in driver.read(listed)]

    assert found == [
        (0, [1, 0, FAILS]),
        (1, [1, 0, 2, 0, FAILS]),
        (2, [2, 0, FAILS]),
        (0, [1, 0, 1, 0, FAILS]),
        (1, [1, 0, 2, 0, 1, 0, FAILS]),
    ]


class Lists(ps.monoids.Monoid[list[int]]):
    """All observations; refuses more than three of a window."""

    def identity(self) -> list[int]:
        return []

    def combine(self, left: list[int], right: list[int], /) -> list[int]:
        if len(left) + len(right) > 3:
            raise ValueError("more than three")
        return left + right


class Collects(ps.Aggregator):
    """Changes what it gets."""

    reads, writes, monoid = items, listed, Lists()
    window: ClassVar[ps.windows.WindowAssigner] = ps.windows.Tumbling(10 * MS)
    watermark = ps.watermarks.BoundedOutOfOrderness(timedelta())
    on_error = ps.ErrorPolicy.DEAD_LETTER

    def observe(self, event: Item) -> list[int]:
        event.tags.append(0)
        return event.tags[:-1] if event.tags == [event.number, 0] else [FAILS]

    def result(self, key: str, window: ps.Window, value: list[int]) -> Listed:
        value.append(FAILS)
        return Listed(key, window.start, value)


@pytest.mark.parametrize(
    "attributes",
    [
        {"emit": ps.AtCheckpoint()},
        {"emit": ps.AtWatermark(early=timedelta(seconds=1))},
        {"emit": ps.AtWatermark(), "late": ps.OnLate.DROP, "window": ps.windows.Sliding(10 * MS)},
        {"emit": ps.AtWatermark(), "late": ps.OnLate.DROP, "window": ps.windows.Session(5 * MS)},
    ],
)
def test_results_and_observations_are_not_the_values_of_windows(attributes: dict[str, Any]) -> None:
    """`observe` and `result` may change what they get, and a window's next result contains only its observations."""
    driver = Driver(type("Collects", (Collects,), attributes))
    for item in [*sent([1, 2, 3]), Item("ann", START + 1_000, 9, [9])]:
        driver.send(items, [item])
        driver.advance(2)
    of_window = [record.numbers for record in driver.read(listed) if record.numbers[0] == 1]

    assert of_window
    assert all(numbers == [*range(1, len(numbers)), FAILS] for numbers in of_window)
    assert of_window[-1] == [1, 2, 3, FAILS]


def test_an_event_that_one_of_its_windows_rejects_counts_in_none() -> None:
    """A dead letter is in no window, and the windows of earlier events stay as they were."""
    hopping = {"window": ps.windows.Hopping(4 * MS, step=2 * MS), "emit": ps.AtWatermark(), "late": ps.OnLate.DROP}
    kind = type("Collects", (Collects,), {**hopping, "watermark": ps.watermarks.BoundedOutOfOrderness(8 * MS)})
    driver = Driver(kind)
    times = [
        4,
        4,
        4,
        2,
        100,
    ]  # the windows from 2 and from 4 are full when the event of 2 arrives, the window from 0 is not
    driver.send(items, [Item("ann", START + at, number, [number]) for number, at in enumerate(times)])
    found = [(record.at - START, record.numbers) for record in driver.read(listed)]

    assert [letter.offset for letter in driver.dead_letters(kind)] == [3]
    assert found == [(2, [0, 1, 2, FAILS]), (4, [0, 1, 2, FAILS])]


def test_a_monoid_that_keeps_a_part_of_what_it_rejects_is_refused() -> None:
    """A `fold` that raises after it changed its accumulator breaks a law, which the error names."""

    class Keeps(Lists):
        def lift(self, observation: list[int], /) -> list[int]:
            return list(observation)

        def fold(self, accumulator: list[int], observation: list[int], /) -> list[int]:
            accumulator += observation
            if FAILS in observation:
                raise ValueError("negative")
            return accumulator

    class Total(Collects):
        monoid = Keeps()

        def observe(self, event: Item) -> list[int]:
            return list(event.tags)

    with pytest.raises(BrokenLaw) as broken:
        check_rejection(Keeps(), [1], [FAILS])
    with pytest.raises(PenstockError, match="rejected an event after it had counted a part of it"):
        Driver(Total).send(items, [*sent([1]), Item("ann", START + 2, 0, [FAILS])])

    assert broken.value.law is REJECTION


def test_rows_belong_to_one_event_each() -> None:
    """A join that changes its row changes neither the table nor the row of the next event."""

    class Lookup(ps.LookupJoin):
        reads, writes, source = items, listed, ps.lookups.MemoryTable({"ann": [0]})

        def key_of(self, event: Item) -> str:
            return event.user

        def join(self, event: Item, row: list[int]) -> Iterable[Listed]:
            row.append(event.number)
            yield Listed(event.user, event.at, row)

    class Table(ps.TableJoin):
        stream, table, writes = items, rows, listed

        def join(self, event: Item, row: Row, context: ps.Context) -> Iterable[Listed]:
            row.numbers.append(event.number)
            yield Listed(event.user, event.at, row.numbers)

    lookup, table = Driver(Lookup), Driver(Table)
    lookup.send(items, sent([1, 2]))
    table.send(rows, [Row("ann", START, [0])])
    table.send(items, sent([1, 2]))

    assert written(lookup) == written(table) == [[0, 1], [0, 2]]


def test_equal_events_in_order_are_not_shared() -> None:
    """An ordered processor that changes its event does not change an equal one."""

    class Ordered(ps.Stateful):
        reads, writes, state, ordered = items, listed, int, True
        watermark = ps.watermarks.BoundedOutOfOrderness(timedelta())

        def process(self, event: Item, state: int | None, context: ps.Context) -> Any:
            event.tags.append(0)
            return 1, [Listed(event.user, event.at, event.tags)]

    driver = Driver(Ordered)
    driver.send(items, [Item("ann", START, 1, [1]), Item("ann", START, 1, [1]), Item("ann", START + 1, 1, [1])])

    assert written(driver) == [[1, 0], [1, 0]]


@pytest.mark.parametrize(
    ("value", "can_change"),
    [
        (1, False),
        ((1, ("a", None)), False),
        ((1, [2]), True),
        (frozenset({1}), False),
        (Numbers([1]), True),
        (Changeable([1]), True),
        (Model(numbers=[1]), True),
        (timedelta(1), False),
        (ps.ErrorPolicy.STOP, False),
    ],
)
def test_only_values_that_can_change_are_copied(value: Any, can_change: bool) -> None:
    """Immutable values cost no copy; a copy is equal."""
    copy = unshared(value)

    assert copy == value
    assert (copy is not value) is can_change


@pytest.mark.parametrize(
    ("kind", "can_change"),
    [
        (int, False),
        (tuple[int, ...], False),
        (tuple[str, frozenset[int]], False),
        (tuple[str, list[int]], True),
        (dict[str, int], True),
        (Numbers, True),
        (Numbers | None, True),
        (Any, True),
    ],
)
def test_a_type_can_change_if_a_part_of_it_can(kind: Any, can_change: bool) -> None:
    """The type of a state determines whether it is kept encoded."""
    assert is_mutable(kind) is can_change


def test_events_of_a_join_belong_to_one_call_each() -> None:
    """A join that changes its events changes no buffered event."""

    class Changes(ps.Join):
        left, right, writes = items, rows, listed
        before = after = timedelta(seconds=1)

        def matches(self, left: Item, right: Row) -> bool:
            right.numbers.append(FAILS)
            return len(left.tags) == 1

        def join(self, left: Item, right: Row, context: ps.Context) -> Iterable[Listed]:
            left.tags.append(0)
            right.numbers.append(left.number)
            yield Listed(left.user, left.at, right.numbers)

    driver = Driver(Changes)
    driver.send(items, sent([1]))
    driver.send(rows, [Row("ann", START, [0]), Row("ann", START, [5])])
    driver.send(items, sent([2]))

    assert written(driver) == [[0, 1], [5, 1], [0, 2], [5, 2]]


@dataclass
class Counted:
    """An output that is no frozen record."""

    user: str
    at: int
    count: int


counted = ps.Category("counted", Counted, key="user", event_time="at", buckets=1)


def counting_in_place(user: str) -> Iterable[Any]:
    """Yield outputs, and change each of them after that, also through `ps.To` and in a list."""
    record, numbers = Counted(user, START, 0), list[int]()
    for number in range(3):
        record.count = number
        numbers.append(number)
        yield record
        yield ps.To(listed, Listed(user, START, numbers))


class YieldsInStateless(ps.Stateless):
    """Yields from `process`."""

    reads, writes = items, (counted, listed)

    def process(self, event: Item) -> Iterable[Any]:
        return counting_in_place(event.user)


class YieldsInCalls(ps.Stateless):
    """Yields from an async generator."""

    reads, writes = items, (counted, listed)

    async def process(self, event: Item) -> Any:
        for output in counting_in_place(event.user):
            yield output


class YieldsInStateful(ps.Stateful):
    """Yields from a second value."""

    reads, writes, state = items, (counted, listed), int

    def process(self, event: Item, state: int | None, context: ps.Context) -> Any:
        return 1, counting_in_place(event.user)


class YieldsInTimer(ps.Stateful):
    """Yields when a timer fires."""

    reads, writes, state = items, (counted, listed), int
    watermark = ps.watermarks.BoundedOutOfOrderness(timedelta())

    def process(self, event: Item, state: int | None, context: ps.Context) -> Any:
        context.timer(event.at)
        return 1, []

    def on_timer(self, timer: ps.Timer, state: int, context: ps.Context) -> Any:
        return None, counting_in_place(context.key)


class YieldsInWindow(ps.Windowed):
    """Yields when an event changes a window, and nothing when the window is complete."""

    reads, writes, state = items, (counted, listed), int
    window = ps.windows.Tumbling(10 * MS)

    def fold(self, event: Item, state: int | None, window: ps.Window, context: ps.Context) -> Any:
        return 1, counting_in_place(event.user)

    def complete(self, state: int, window: ps.Window, context: ps.Context) -> Iterable[Any]:
        return ()


class YieldsInJoin(ps.LookupJoin):
    """Yields from `join`."""

    reads, writes, source = items, (counted, listed), ps.lookups.MemoryTable({"ann": [0]})

    def key_of(self, event: Item) -> str:
        return event.user

    def join(self, event: Item, row: list[int]) -> Iterable[Any]:
        return counting_in_place(event.user)


@pytest.mark.parametrize(
    "kind", [YieldsInStateless, YieldsInCalls, YieldsInStateful, YieldsInTimer, YieldsInWindow, YieldsInJoin]
)
def test_an_output_is_written_as_it_was_when_it_was_yielded(kind: Any) -> None:
    """Code that continues after a `yield` can change its record for the next output."""
    driver = Driver(kind)
    driver.send(items, [*sent([1]), Item("bob", START + 1, 1, [])])
    of_ann = [record for record in driver.read(counted) if record.user == "ann"]

    assert [record.count for record in of_ann] == [0, 1, 2]
    assert [record.numbers for record in driver.read(listed) if record.user == "ann"] == [[0], [0, 1], [0, 1, 2]]


class Kept(ps.Record, frozen=True):
    """A state that cannot change, if its values have the declared types."""

    numbers: tuple[int, ...]
    below: tuple[Kept, ...] = ()


def numbers_below(state: Kept) -> Any:
    return state.below[0].numbers


@pytest.mark.parametrize(
    ("declared", "new", "numbers_in"),
    [
        (tuple[int, ...], list, lambda state: state),
        (tuple[int, ...] | None, list, lambda state: state),
        (frozenset[int], set, lambda state: state),
        (bytes, bytearray, lambda state: state),
        (Kept, lambda: Kept([]), lambda state: state.numbers),  # type: ignore[arg-type]  # what the test is about
        (Kept, lambda: Kept((), [Kept([])]), numbers_below),  # type: ignore[arg-type]
        (Kept, lambda: Kept((), (Kept([]),)), numbers_below),  # type: ignore[arg-type]
        (tuple[int, tuple[bytes, ...]], lambda: (0, (bytearray(),)), lambda state: state[1][0]),
    ],
)
def test_a_list_in_the_place_of_a_tuple_is_a_tuple_at_the_next_event(
    declared: Any, new: Callable[[], Any], numbers_in: Callable[[Any], Any]
) -> None:
    """A state has its declared types from the next event on, not only after a restart: an event that fails cannot change it."""

    class Appends(ps.Stateful):
        reads, writes, state = items, listed, declared
        on_error = ps.ErrorPolicy.DEAD_LETTER

        def process(self, event: Item, state: Any, context: ps.Context) -> Any:
            found = numbers_in(new()) if state is None else numbers_in(state)
            if isinstance(found, list | bytearray):
                found.append(event.number)
            elif isinstance(found, set):
                found.add(event.number)
            if event.number == 2:
                raise ValueError("fails after the change")
            return new() if state is None else state, [Listed(event.user, event.at, list(found))]

    driver = Driver(Appends)
    driver.send(items, sent([1, 2, 3]))

    assert written(driver) == [[1], []]
