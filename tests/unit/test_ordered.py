"""Ordered delivery: outputs depend on the events alone, not on their order of arrival."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.ops.kernel import Crash, Driver
from penstock.processors import DeclarationError, ProcessorFailed
from penstock.processors.declare import plan_of
from penstock.processors.operators import open_operator
from penstock.processors.shard import Overlay, Step
from penstock.state import MemoryShardState

BOUND = 20


class Move(ps.Record, frozen=True):
    """A move of a piece."""

    piece: str
    at: ps.EventTime
    to: int


class Other(Move, frozen=True):
    """Another record."""


class Path(ps.Record, frozen=True):
    """The moves of a piece so far."""

    piece: str
    at: ps.EventTime
    moves: list[int]


moves = ps.Category("moves", Move, key="piece", event_time="at", buckets=1)
late_moves = ps.Category("late_moves", Move, key="piece", event_time="at", buckets=1)
others = ps.Category("others", Other, key="piece", event_time="at", buckets=1)
paths = ps.Category("paths", Path, key="piece", event_time="at", buckets=1)


class Paths(ps.Stateful):
    """Collects the moves of each piece; a pause deletes them."""

    reads, writes, state = moves, paths, tuple[int, ...]
    ordered = True
    watermark: ClassVar[ps.watermarks.Watermark] = ps.watermarks.BoundedOutOfOrderness(timedelta(milliseconds=BOUND))
    output_semantics = ps.Semantics.EXACTLY_ONCE

    def process(
        self, event: Move, state: tuple[int, ...] | None, context: ps.Context
    ) -> tuple[tuple[int, ...], list[Path]]:
        if event.to < 0:
            raise ValueError(event.to)
        after = (*(state or ()), event.to)
        context.timer(event.at + 30)
        return after, [Path(event.piece, event.at, list(after))]

    def on_timer(self, timer: ps.Timer, state: Any, context: ps.Context) -> tuple[None, list[Path]]:
        return None, [Path(context.key, timer.at, [])]


MOVES = st.lists(st.builds(Move, st.sampled_from("ab"), st.integers(0, 100), st.integers(0, 2)), max_size=40)
END = Move("end", 1_000, 0)


def expected(sent_moves: Sequence[Move]) -> dict[str, list[Path]]:
    """Return the outputs of each piece, computed from moves in delivery order."""
    found: dict[str, list[Path]] = defaultdict(list)
    for piece in "ab":
        done: list[int] = []
        last = None
        for move in (move for move in sent_moves if move.piece == piece):
            if last is not None and last + 30 <= move.at:
                found[piece].append(Path(piece, last + 30, []))
                done = []
            done.append(move.to)
            last = move.at
            found[piece].append(Path(piece, move.at, list(done)))
        if last is not None:
            found[piece].append(Path(piece, last + 30, []))
    return found


def paths_of(arrived: Sequence[Move], cuts: Sequence[tuple[int, bool]]) -> dict[str, list[Path]]:
    """Return the outputs of each piece, with a checkpoint and an optional restart at each cut."""
    saved, outputs = MemoryShardState(), list[Any]()
    overlay = Overlay(saved, lambda _, later: later)
    operator = open_operator(Paths(), overlay)
    for (begin, restarts), (end, _) in pairwise([(0, False), *sorted(cuts), (len(arrived), False)]):
        operator = open_operator(Paths(), overlay) if restarts else operator
        outputs += operator.feed(moves, arrived[begin:end], stop_at_error=True).outputs
        overlay.add(operator.drain().changes)
        saved.save(overlay.snapshot())
        overlay.finish({})
    found: dict[str, list[Path]] = defaultdict(list)
    for path in outputs:
        found[path.piece].append(path)
    found.pop("end", None)
    return found


@given(sent_moves=MOVES, data=st.data(), cuts=st.lists(st.tuples(st.integers(0, 41), st.booleans()), max_size=4))
def test_any_arrival_order_within_the_bound_produces_the_same_outputs(
    sent_moves: list[Move], data: st.DataObject, cuts: list[tuple[int, bool]]
) -> None:
    """Delays, batches and restarts change neither the outputs of a key nor their order."""
    delays = data.draw(st.lists(st.integers(0, BOUND), min_size=len(sent_moves), max_size=len(sent_moves)))
    delayed = sorted(zip(sent_moves, delays, strict=True), key=lambda pair: pair[0].at + pair[1])
    in_time = paths_of([*sorted(sent_moves, key=lambda move: move.at), END], [])

    assert paths_of([*(move for move, _ in delayed), END], cuts) == in_time


@given(sent_moves=st.lists(st.builds(Move, st.sampled_from("ab"), st.integers(0, 100), st.just(1)), max_size=40))
def test_events_and_timers_are_delivered_in_event_time_order(sent_moves: list[Move]) -> None:
    """Equal events are delivered as often as they arrive."""
    arrived = sorted(sent_moves, key=lambda move: move.at)

    assert paths_of([*arrived, END], []) == expected(arrived)


def test_late_events_are_counted_and_dropped_or_written_to_the_late_category() -> None:
    """Their delivery would break the order."""

    class WithLateCategory(Paths):
        late = late_moves

    for processor, late in ((Paths, []), (WithLateCategory, [Move("a", 5, 2)])):
        driver = Driver(processor)
        if late:
            driver.send(moves, [Move("a", 0, 1), Move("a", 50, 1), *late, END])
            assert driver.read(late_moves) == late
        else:
            driver.send(moves, [Move("a", 0, 1), Move("a", 50, 1), Move("a", 5, 2), END])
        assert (driver.metrics(processor).late, driver.metrics(processor).dropped) == (1, 1)
        assert [path.moves for path in driver.read(paths)] == [[1], [], [1], []]


@pytest.mark.parametrize(
    "step", [Step.FLUSH_OUTPUTS, Step.PREPARE_STATE, Step.COMMIT_TRANSACTION, Step.APPLY_STATE, None]
)
def test_held_events_survive_a_crash(step: Step | None) -> None:
    """Each held event is delivered once."""
    arrived = [Move("ab"[n % 2], n * 7 - (n % 3) * 6, n % 3) for n in range(30)] + [END]
    whole = Driver(Paths)
    whole.send(moves, arrived)
    for at in range(1, len(arrived), 5):
        driver = Driver(Paths)
        driver.send(moves, [*arrived[:at], Crash(before=step), *arrived[at:]])

        assert driver.read(paths) == whole.read(paths)


def test_an_exception_for_a_held_event_stops_the_worker() -> None:
    """The error names the event, which stays in the buffer."""
    with pytest.raises(ProcessorFailed, match=r"ValueError: -1, for the buffered event Move.*stays in the buffer"):
        Driver(Paths).send(moves, [Move("a", 0, -1), END])


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"late": ps.OnLate.INTO_WINDOW}, "no windows"),
        ({"late": others}, "the record type of the input"),
        ({"late": late_moves, "ordered": False}, "order of arrival"),
        ({"on_error": ps.ErrorPolicy.DEAD_LETTER}, "long after its message was read"),
    ],
)
def test_declarations_that_contradict_ordered_delivery_are_refused(attributes: dict[str, Any], message: str) -> None:
    """The error names the setting to change."""
    wrong: type[ps.Stateful] = type("Wrong", (Paths,), attributes)

    with pytest.raises(DeclarationError, match=message):
        plan_of(wrong).check()
