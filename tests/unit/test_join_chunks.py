"""The saved form of joins with many buffered events: what a checkpoint writes, and what is read of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.ops.change.maintenance.state_conversion import fits, own_entries
from penstock.processors.declare import join_buffers, plan_of
from penstock.processors.keyed_state import ENGINE_PREFIX
from penstock.processors.keyed_state.key_layout import CHUNKS, CHUNKS_OF
from penstock.processors.operators import Operator, entry_key_reader, open_operator
from penstock.processors.shard import Overlay
from penstock.state import MemoryShardState, ShardIdentity
from penstock.state.backups import decoded_values, state_inspector
from penstock.state.local import RocksStateFolder

WITHIN, BOUND = 300, 400


class Ask(ps.Record, frozen=True):
    """An ask."""

    key: str
    at: ps.EventTime
    number: int


class Bid(Ask, frozen=True):
    """A bid."""


class Deal(ps.Record, frozen=True):
    """An ask with a bid, or one of them alone."""

    key: str
    at: ps.EventTime
    ask: int | None
    bid: int | None


asks = ps.Category("asks", Ask, key="key", event_time="at", buckets=1)
bids = ps.Category("bids", Bid, key="key", event_time="at", buckets=1)


class Deals(ps.Join):
    """An ask with each bid of about the same time whose number has the same remainder."""

    left, right = asks, bids
    writes = ps.Category("deals", Deal, key="key", event_time="at", buckets=1)
    before = after = timedelta(milliseconds=WITHIN)
    join_type = ps.JoinType.OUTER
    watermark = ps.watermarks.BoundedOutOfOrderness(timedelta(milliseconds=BOUND))

    def matches(self, left: Ask, right: Bid) -> bool:
        return left.number % 7 == right.number % 7

    def join(self, left: Ask | None, right: Bid | None, context: ps.Context) -> Iterable[Deal]:
        yield Deal(context.key, 0, left.number if left else None, right.number if right else None)


END = [Ask("end", 10**6, 0), Bid("end", 10**6, 1)]


def expected(events: Sequence[Ask]) -> Counter[tuple[int | None, int | None]]:
    """Return the numbers of all pairs, by looking at every pair."""
    left = [event for event in events if type(event) is Ask]
    right = [event for event in events if type(event) is Bid]
    pairs = [
        (ask.number, bid.number)
        for ask in left
        for bid in right
        if ask.key == bid.key and abs(ask.at - bid.at) <= WITHIN and ask.number % 7 == bid.number % 7
    ]
    asked, bid_for = {ask for ask, _ in pairs}, {bid for _, bid in pairs}
    return Counter(
        [
            *pairs,
            *((ask.number, None) for ask in left if ask.number not in asked),
            *((None, bid.number) for bid in right if bid.number not in bid_for),
        ]
    )


def arrived(random: Random, count: int) -> list[Ask]:
    """Return events of two keys, each late by less than the bound."""
    events = [
        random.choice([Ask, Bid])(random.choice("aab"), random.randrange(10 * count), number) for number in range(count)
    ]
    return sorted(events, key=lambda event: event.at + random.randrange(BOUND))


def batches(random: Random, events: Sequence[Ask]) -> Iterator[list[Ask]]:
    """Yield runs of one category, of random lengths."""
    begin = 0
    while begin < len(events):
        end = begin + 1
        longest = random.choice([1, 30, 200])
        while end < len(events) and type(events[end]) is type(events[begin]) and end - begin < longest:
            end += 1
        yield list(events[begin:end])
        begin = end


@pytest.mark.parametrize("chunk_events", [1, 3, 32])
@given(st.integers(0, 2**32), st.integers(100, 500))
@settings(deadline=None, max_examples=40)
def test_pairs_do_not_depend_on_how_their_events_are_saved(chunk_events: int, seed: int, count: int) -> None:
    """Checkpoints and restarts come between any two batches. The state is empty when all pairs are complete."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(join_buffers, "CHUNK_EVENTS", chunk_events)
        expect_each_pair_once(Random(seed), count)


def expect_each_pair_once(random: Random, count: int) -> None:
    """Join random events, and compare all pairs."""
    events = arrived(random, count)
    saved, found = MemoryShardState(), list[Deal]()
    overlay = Overlay(saved, lambda _, later: later)
    operator = open_operator(Deals(), overlay)
    for batch in batches(random, [*events, *END]):
        found += operator.feed(category_of(batch[0]), batch, stop_at_error=True).outputs
        if random.random() < 0.3:
            checkpoint(operator, overlay, saved)
            operator = open_operator(Deals(), overlay) if random.random() < 0.5 else operator
    checkpoint(operator, overlay, saved)

    assert Counter((deal.ask, deal.bid) for deal in found if deal.key != "end") == expected(events)
    assert {key for key, _ in saved.scan(b"", ENGINE_PREFIX, 10)} <= {b"end"}
    assert not [entry for prefix in (CHUNKS, CHUNKS_OF) for entry in saved.scan(prefix, prefix + b"\xff" * 9, 10)]


def category_of(event: Ask) -> Any:
    """Return the category of an event."""
    return bids if type(event) is Bid else asks


def checkpoint(operator: Operator, overlay: Overlay, saved: MemoryShardState) -> int:
    """Save the changes since the last checkpoint; return their size in bytes."""
    overlay.add(operator.drain().changes)
    changes = overlay.snapshot()
    saved.save(changes)
    overlay.finish({})
    return sum(len(key) + len(value or b"") for key, value in changes.items())


def test_a_checkpoint_writes_what_changed() -> None:
    """A large buffer adds nothing for an event in time or late, with a match far back, or at the end of the oldest."""

    def sizes_with(buffered: int) -> list[int]:
        class Long(Deals):
            before = after = timedelta(hours=1)

        saved = MemoryShardState()
        overlay = Overlay(saved, lambda _, later: later)
        operator = open_operator(Long(), overlay)
        operator.feed(asks, [Ask("a", at, 7 * at) for at in range(buffered)], stop_at_error=True)
        operator.feed(bids, [Bid("a", at, 7 * at + 1) for at in range(buffered)], stop_at_error=True)
        sizes = [checkpoint(operator, overlay, saved)]
        operator.feed(asks, [Ask("a", buffered // 2, 7 * buffered + 3)], stop_at_error=True)
        sizes.append(checkpoint(operator, overlay, saved))
        operator = open_operator(Long(), overlay)
        operator.feed(bids, [Bid("a", buffered, 7 * buffered + 3)], stop_at_error=True)
        sizes.append(checkpoint(operator, overlay, saved))
        hour, last = 3_600_000, [Ask("b", 0, 0), Bid("b", 0, 1)]
        for event in last:
            operator.feed(category_of(event), [msgspec.structs.replace(event, at=hour + BOUND + 3)], stop_at_error=True)
        sizes.append(checkpoint(operator, overlay, saved))
        return sizes

    all_of_few, *few = sizes_with(200)
    all_of_many, *many = sizes_with(2_000)

    assert all_of_many > 8 * all_of_few
    assert max(many) < min(1.5 * max(few), all_of_many / 10)


def test_all_buffered_events_of_a_key_are_shown_and_converted(tmp_path: Path) -> None:
    """They appear as one state, as if there were no chunks, also in a prepared checkpoint."""
    events: list[list[Ask]] = [
        [Ask("a", at, 7 * at) for at in range(100)],
        [Bid("a", at, 7 * at + 1) for at in range(100)],
    ]
    state = RocksStateFolder(tmp_path).open(ShardIdentity("deals", 0, plan_of(Deals).state_shape or ""))
    with closing(state):
        operator = open_operator(Deals(), state)
        for of_category in events:
            operator.feed(category_of(of_category[0]), of_category, stop_at_error=True)
        changes = operator.drain().changes
        [before] = decoded_values(Deals, overlaid(changes), changes.items())
        state.save(changes)
        [shown] = state_inspector(Deals, "a", 10)(state).entries
        [(_, whole)] = own_entries(Deals, state)

        assert fits(Deals, state)

    truth = [[[event.at, False, msgspec.to_builtins(event)] for event in of_category] for of_category in events]
    assert plain(shown.value) == plain(before.value) == truth
    assert [[one[2]["number"] for one in side] for side in msgspec.msgpack.decode(whole)] == [
        [event.number for event in of_category] for of_category in events
    ]


def overlaid(changes: Any) -> Overlay:
    """Return the state after these changes."""
    overlay = Overlay(MemoryShardState(), lambda _, later: later)
    overlay.add(changes)
    return overlay


def plain(value: Any) -> Any:
    """Return a value as JSON shows it."""
    return msgspec.json.decode(msgspec.json.encode(value))


def test_a_chunk_belongs_to_its_key() -> None:
    """A resize moves it together with its key."""
    operator = open_operator(Deals(), MemoryShardState())
    operator.feed(asks, [Ask("ab"[at % 2], at, 7 * at) for at in range(200)], stop_at_error=True)
    changes = operator.drain().changes
    owners = {
        key: entry_key_reader(Deals)(key, value or b"")
        for key, value in changes.items()
        if key.startswith((CHUNKS, CHUNKS_OF))
    }

    assert Counter(owners.values()) == {b"a": 4, b"b": 4}
    assert all(owner is not None and key.endswith(owner) for key, owner in owners.items())
