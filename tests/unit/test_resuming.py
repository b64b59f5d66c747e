"""Where shards go on, and what their cores see of changes that are not saved: values in, values out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.subjects import EXACT, LEAST, MOST, Subject

from penstock.ops.resuming import Undecided, counts, first_kept, resume
from penstock.ops.shard import new_shard
from penstock.state.overlay import Overlay
from penstock.state.store import MemoryShardState, Offsets
from penstock.transport.bus import Bucket, Outgoing, RawBatch
from penstock.transport.errors import OffsetOutOfRange
from penstock.transport.memory import StoredMessage

OFFSETS = st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 50))
SOME_OFFSETS = st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 3), min_size=1)
CHANGES = st.dictionaries(st.binary(max_size=2), st.none() | st.binary(max_size=3), max_size=5)
BUCKET = Bucket("x.events", 0)


@given(saved=OFFSETS, committed=OFFSETS)
def test_state_decides_where_to_go_on_and_the_group_what_is_on_the_bus(saved: Offsets, committed: Offsets) -> None:
    """Reading begins where the state stands, and is silent up to where the group stands."""
    going_on = resume(Subject("stateful", EXACT, EXACT).make("x")(), saved, committed)

    assert going_on.position == saved
    assert going_on.muted_until == {name: end for name, end in committed.items() if end > saved.get(name, 0)}


@given(saved=OFFSETS, committed=OFFSETS)
def test_at_most_once_never_goes_back(saved: Offsets, committed: Offsets) -> None:
    """What either of the two has passed may have counted, so it is not read again."""
    going_on = resume(Subject("stateful", MOST, MOST).make("x")(), saved, committed)

    assert all(going_on.position[name] >= max(saved.get(name, 0), committed.get(name, 0)) for name in saved | committed)
    assert not going_on.muted_until


@given(committed=OFFSETS)
def test_without_state_the_group_decides(committed: Offsets) -> None:
    """A stateless processor goes on where its group stands."""
    assert resume(Subject("stateless", LEAST, LEAST).make("x")(), None, committed).position == committed


@given(before=OFFSETS, after=SOME_OFFSETS, committed=SOME_OFFSETS)
def test_a_checkpoint_counts_if_its_positions_were_committed(
    before: Offsets, after: Offsets, committed: Offsets
) -> None:
    """All of them, and exactly these."""
    assert counts(before, after, committed, "a checkpoint") == all(
        committed.get(name) == offset for name, offset in after.items()
    )


def test_a_checkpoint_that_nobody_can_decide_is_said_to_be_so() -> None:
    """Where the group had positions and has none any more, neither answer would be safe; where it never had any, nothing counts."""
    with pytest.raises(Undecided, match="gone from the bus"):
        counts({"a": 1}, {"a": 2}, {}, "a checkpoint")

    assert not counts({}, {"a": 2}, {}, "a checkpoint")


def test_events_that_are_gone_are_left_out_only_when_told_so() -> None:
    """Otherwise it is said how many there are."""
    assert first_kept("p", BUCKET, 7, 5, from_earliest=False) == 7
    assert first_kept("p", BUCKET, 5, 1005, from_earliest=True) == 1005
    with pytest.raises(OffsetOutOfRange, match="1,000 events are gone"):
        first_kept("p", BUCKET, 5, 1005, from_earliest=False)


@given(first=st.integers(0, 20), size=st.integers(1, 20), begin=st.integers(0, 40), border=st.integers(0, 40))
def test_a_batch_is_split_where_outputs_begin_to_count(first: int, size: int, begin: int, border: int) -> None:
    """Each unread message is in one part, in order; muted are those before the border."""
    going_on = resume(Subject("stateful", EXACT, EXACT).make("x")(), {"x.events": begin}, {"x.events": border})
    shard = new_shard(Subject("stateful", EXACT, EXACT).make("x")(), 0, MemoryShardState(), going_on, {})
    messages = [StoredMessage(at, Outgoing(None, b""), 0) for at in range(first, first + size)]
    parts = list(shard.parts(RawBatch(BUCKET, messages)))

    assert [m.offset() for part in parts for m in part.batch.messages] == [
        at for at in range(first, first + size) if at >= begin
    ]
    assert all((m.offset() < border) == part.muted for part in parts for m in part.batch.messages)


@given(saved=CHANGES, waiting=st.lists(CHANGES, max_size=4))
def test_an_overlay_reads_as_if_all_was_saved(saved: dict[bytes, Any], waiting: list[dict[bytes, Any]]) -> None:
    """What waits lies over what is saved, later changes over earlier ones."""
    below, above = MemoryShardState(), MemoryShardState()
    below.save(saved)
    above.save(saved)
    overlay = Overlay(below, lambda _, later: later)
    for changes in waiting:
        overlay.add(dict(changes))
        above.save(changes)
    keys = sorted({key for changes in (saved, *waiting) for key in changes})

    assert overlay.fetch(keys) == above.fetch(keys)
    below.save(overlay.changes)
    overlay.clear()
    assert overlay.fetch(keys) == above.fetch(keys)
