"""Writes to remote state: saved data is there, in every store and write mode."""

from __future__ import annotations

from typing import Any

import pytest
from support.stores import (
    APPENDING,
    EVER,
    OUTBOX,
    OVERWRITING,
    A,
    B,
    C,
    StateOpener,
    aggregator,
    identity_of,
    lifted,
    values,
)

import penstock as ps
from penstock.processors.declare import WriteMode
from penstock.processors.keyed_state import Changes, encode_window_key
from penstock.processors.shard import StatePosition
from penstock.state import ShardIdentity, StateError
from penstock.state.errors import ForeignState
from penstock.state.remote import remote_states


def test_a_new_shard_is_empty(url: str, opened: StateOpener) -> None:
    """It has no values, no position and no outbox."""
    state = opened(url, aggregator(ps.monoids.Count()))

    assert state.fetch([A, B]) == [None, None]
    assert state.fetch([]) == []
    assert state.position() == StatePosition()
    assert state.outbox() is None


@pytest.mark.parametrize("writing", [WriteMode.READ_MODIFY_WRITE, WriteMode.READ_MERGE_WRITE])
def test_saved_values_are_there_after_reopening(url: str, opened: StateOpener, writing: WriteMode) -> None:
    """Values and positions persist; a removed slot is absent; positions of other categories are unchanged."""
    processor = aggregator(ps.monoids.FirstArrived())
    state = opened(url, processor, writing)
    state.save({A: b"\xa11", B: b"\xa12", b"": b"\x00"})
    state.save({A: None, B: b"\xa13"})
    state.save({})
    state.save_position(StatePosition({"flights": 17, "planes": 2}))
    state.save_together({C: b"\xa14"}, StatePosition({"flights": 18}))
    state.close()

    state = opened(url, processor, writing)

    assert state.fetch([B, A, b"", C, b"zz"]) == [b"\xa13", None, b"\x00", b"\xa14", None]
    assert state.position() == StatePosition({"flights": 18, "planes": 2})


def test_an_outbox_is_kept_until_it_is_cleared(url: str, opened: StateOpener) -> None:
    """An outbox is saved with the position at its end, survives other saves and reopening, and is cleared once."""
    monoid = ps.monoids.Count()
    processor = aggregator(monoid)
    opened(url, processor).save_with_outbox(lifted(monoid, a=1), OUTBOX)
    state = opened(url, processor)
    state.save(lifted(monoid, a=1))

    assert state.outbox() == OUTBOX
    assert state.position() == StatePosition({"hits": 9})
    assert values(state, monoid, A) == [2]

    state.clear_outbox()

    assert state.outbox() is None
    assert opened(url, processor).outbox() is None


def test_shards_are_isolated(url: str, opened: StateOpener) -> None:
    """Buckets and processors do not see one another's state."""
    processor, other = aggregator(ps.monoids.Count()), aggregator(ps.monoids.Count())
    states = opened.folder(remote_states(url, processor))
    states.open(identity_of(processor, 1)).save({A: b"\x01"})

    assert states.open(identity_of(processor, 11)).fetch([A]) == [None]
    assert opened(url, other).fetch([A]) == [None]
    assert states.open(identity_of(processor, 1)).fetch([A]) == [b"\x01"]


def test_a_closed_state_cannot_be_used(url: str, opened: StateOpener) -> None:
    """Calls fail, and nothing is written."""
    state = opened(url, aggregator(ps.monoids.Count()))
    state.close()
    state.close()

    with pytest.raises(StateError, match="closed already"):
        state.save({A: b"\x01"})
    with pytest.raises(StateError, match="closed already"):
        state.fetch([A])


def test_a_different_state_layout_is_refused_and_the_state_kept(url: str, opened: StateOpener) -> None:
    """A changed monoid or window is not given bytes that it would misread, and the owner stays the owner."""
    monoid = ps.monoids.Count()
    processor = aggregator(monoid)
    states = opened.folder(remote_states(url, processor))
    state = states.open(identity_of(processor))
    state.save(lifted(monoid, a=1))

    with pytest.raises(ForeignState, match=r"Count\(\) in GlobalWindow\(\) by page.*expected Sum") as refused:
        states.open(ShardIdentity(processor.name, 0, "Sum"))

    assert "Nothing was changed" in str(refused.value)
    state.save_position(StatePosition({"hits": 1}))
    assert values(state, monoid, A) == [1]


@pytest.mark.parametrize("writing", [OVERWRITING, APPENDING])
@pytest.mark.parametrize(
    "monoid", [ps.monoids.Count(), ps.monoids.Sum(), ps.monoids.Max(), ps.monoids.LastArrived()], ids=repr
)
def test_a_save_of_many_slots_is_atomic(
    url: str, opened: StateOpener, monoid: ps.monoids.Monoid[Any], writing: WriteMode
) -> None:
    """Twenty thousand slots, more than Lua unpacks at once, are saved and fetched in the requested order."""
    state = opened(url, aggregator(monoid), writing)
    changes: Changes = {encode_window_key(f"key-{n}", EVER): monoid.encode(monoid.lift(n)) for n in range(20_000)}
    state.save_together(changes, StatePosition({"hits": 20_000}))
    asked = [*reversed(changes), A]

    assert state.fetch(asked) == [*reversed(changes.values()), None]
