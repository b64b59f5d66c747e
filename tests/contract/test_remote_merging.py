"""Remote state merges partials like the monoid does, whatever the store merges by itself."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.stores import (
    APPENDING,
    OVERWRITING,
    A,
    B,
    C,
    Log,
    StateOpener,
    aggregator,
    fold,
    identity_of,
    lifted,
    values,
)

import penstock as ps
from penstock.processors.declare import WriteMode
from penstock.processors.keyed_state import Changes
from penstock.state import RemoteState
from penstock.state.remote import compactor_of, remote_states
from penstock.state.remote.sort_keys import order_key, reverse_order_key

_whole = st.integers(-(2**200), 2**200) | st.integers(-(2**63) - 2, 2**63 + 2) | st.integers(-9, 9)
_carried = st.integers(-(2**63), 2**64 - 1) | st.integers(-9, 9)
_float = st.floats(-1e300, 1e300) | st.sampled_from([math.inf, -math.inf, 1e-20, 5e-324, -0.0, 0.5])
_key = st.sampled_from("xyz")
MONOIDS: dict[str, tuple[ps.monoids.Monoid[Any], st.SearchStrategy[Any]]] = {
    "count": (ps.monoids.Count(), st.none()),
    "sum of ints": (ps.monoids.Sum(), _whole),
    "sum of floats": (ps.monoids.Sum(), _float | st.just(math.nan)),
    "sum of both": (ps.monoids.Sum(), _whole | _float),
    "mean": (ps.monoids.Mean(), _whole | _float),
    "min": (ps.monoids.Min(), _carried | _float | st.just(math.nan)),
    "max": (ps.monoids.Max(), _carried | _float | st.just(math.nan)),
    "max of text": (ps.monoids.Max(), st.text(st.characters(exclude_categories=["Cs"]), max_size=3)),
    "min of bytes": (ps.monoids.Min(), st.binary(max_size=3)),
    "max of tuples": (ps.monoids.Max(), st.tuples(st.sampled_from([1, 1.5, -2]), st.text("ab\0", max_size=2))),
    "first": (ps.monoids.FirstArrived(), st.integers(0, 99)),
    "last": (ps.monoids.LastArrived(), st.integers(0, 99)),
    "log": (Log(), st.integers(0, 99)),
    "distinct": (ps.monoids.Distinct(7), st.integers(0, 999)),
    "map of count": (ps.monoids.MapOf(ps.monoids.Count()), st.dictionaries(_key, st.none(), min_size=1)),
}


def same(monoid: ps.monoids.Monoid[Any], found: Any, expected: Any, scale: float) -> bool:
    """Return whether two partials are equal: sums up to the rounding of their largest number."""
    if isinstance(monoid, ps.monoids.Mean):
        return bool(found[1] == expected[1]) and same(ps.monoids.Sum(), found[0], expected[0], scale)
    if isinstance(monoid, ps.monoids.Sum) and isinstance(expected, float) and math.isfinite(expected):
        return isinstance(found, float) and math.isclose(found, expected, rel_tol=1e-12, abs_tol=1e-12 * scale)
    return type(found) is type(expected) and monoid.same(found, expected)


def scale_of(observations: list[Any]) -> float:
    return sum(abs(seen) for seen in observations if isinstance(seen, (int, float)) and math.isfinite(seen))


def save_like_the_operator(
    state: RemoteState, monoid: ps.monoids.Monoid[Any], partials: Changes, writing: WriteMode
) -> None:
    """Save partials: unmerged if the store merges, otherwise merged with the fetched values."""
    if writing is not APPENDING:
        saved = state.fetch(list(partials))
        partials = {
            slot: monoid.encode(monoid.combine(monoid.decode(old), monoid.decode(new))) if old and new else new
            for old, (slot, new) in zip(saved, partials.items(), strict=True)
        }
    state.save(partials)


@pytest.mark.parametrize("name", MONOIDS)
@given(drawn=st.data())
@settings(max_examples=12, deadline=None)
def test_any_series_of_saves_folds_as_the_monoid_does(url: str, name: str, drawn: st.DataObject) -> None:
    """In any write mode, with changes of mode between runs and with a compactor, the result equals the fold in Python."""
    monoid, observation = MONOIDS[name]
    save = st.tuples(
        st.sampled_from([OVERWRITING, APPENDING, APPENDING]),
        st.dictionaries(st.sampled_from([A, B]), st.lists(observation, min_size=1, max_size=3), min_size=1),
        st.booleans(),
    )
    processor = aggregator(monoid)
    truth: dict[bytes, list[Any]] = {A: [], B: []}
    compactor = compactor_of(url, processor, lambda: [0], partial_limit=1)
    folders = {writing: remote_states(url, processor, write_mode=writing) for writing in (OVERWRITING, APPENDING)}
    try:
        for writing, observed, compacts in drawn.draw(st.lists(save, max_size=6)):
            state = folders[writing].open(identity_of(processor))
            partials: Changes = {}
            for slot, seen in observed.items():
                truth[slot] += seen
                partials[slot] = monoid.encode(fold(monoid, seen))
            save_like_the_operator(state, monoid, partials, writing)
            if compacts:
                compactor.compact()
        found = folders[OVERWRITING].open(identity_of(processor)).fetch([A, B])
    finally:
        compactor.close()
        for states in folders.values():
            states.close()

    for encoded, seen in zip(found, truth.values(), strict=True):
        assert (encoded is None) == (not seen)
        if encoded is not None:
            assert same(monoid, monoid.decode(encoded), fold(monoid, seen), scale_of(seen))


def test_sums_stay_exact_beyond_the_databases_number_types(url: str, opened: StateOpener) -> None:
    """Integers grow past 64 bits, partial by partial, and floats as small as 1e-20 are kept."""
    monoid = ps.monoids.Sum()
    state = opened(url, aggregator(monoid))
    for _ in range(6):
        state.save(lifted(monoid, a=2**61 + 1, b=1e-20, c=2**70))
    state.save(lifted(monoid, a=-1))

    whole, tiny, huge = values(state, monoid, A, B, C)
    assert whole == 6 * 2**61 + 5
    assert tiny == pytest.approx(6e-20, rel=1e-12)
    assert huge == 6 * 2**70


def test_floats_overflow_to_infinity(url: str, opened: StateOpener) -> None:
    """Python does the same; a database would refuse the sum, and with it the save."""
    monoid = ps.monoids.Sum()
    state = opened(url, aggregator(monoid))
    for _ in range(2):
        state.save(lifted(monoid, a=1.7e308, b=-1.7e308, c=math.inf))
        state.save(lifted(monoid, a=1.0, b=1.0, c=-math.inf))

    up, down, unknown = values(state, monoid, A, B, C)
    assert (up, down) == (math.inf, -math.inf)
    assert math.isnan(unknown)


def test_a_removed_slot_starts_empty(url: str, opened: StateOpener) -> None:
    """Values that the store merged and partials that it has not merged yet do not reappear."""
    monoids: list[ps.monoids.Monoid[Any]] = [ps.monoids.Count(), ps.monoids.Mean(), ps.monoids.Max(), Log()]
    for monoid in monoids:
        state = opened(url, aggregator(monoid))
        state.save(lifted(monoid, a=1, b=1))
        state.save({A: None})
        state.save(lifted(monoid, a=7))

        assert values(state, monoid, A, B) == [monoid.lift(7), monoid.lift(1)]


_scalar = _whole | _float | st.floats(allow_nan=False)
_ordered = st.tuples(_scalar, _scalar) | st.tuples(*[st.tuples(_scalar, st.text("a\0\xff", max_size=2))] * 2)
_ordered |= st.tuples(*[st.lists(st.integers(-3, 3), max_size=3).map(tuple)] * 2)


@given(pair=_ordered)
def test_keys_sort_like_their_values(pair: tuple[Any, Any]) -> None:
    """Encoded keys compare like the Python values; reversed keys compare the opposite way."""
    assume(all(order_key(value) is not None for value in pair))
    left, right = pair
    keys: list[Any] = [order_key(value) for value in pair]
    reversed_keys: list[Any] = [reverse_order_key(value) for value in pair]

    assert (left < right, left == right) == (keys[0] < keys[1], keys[0] == keys[1])
    assert (left < right) == (reversed_keys[0] > reversed_keys[1])


@pytest.mark.parametrize("value", [None, math.nan, (1, math.nan), (None,), [1], {"a": 1}])
def test_values_without_an_order_have_no_key(value: Any) -> None:
    """Python merges them."""
    assert order_key(value) is None
    assert reverse_order_key(value) is None
