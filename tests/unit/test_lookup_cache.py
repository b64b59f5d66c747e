"""The cache of a lookup: limits of age and number of keys, and eviction of the least recently used key."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import penstock as ps
from penstock.processors import DeclarationError
from penstock.processors.lookups.cache import Cache

LIMITS = ps.lookups.Cached(max_keys=3, ttl=timedelta(seconds=10), missing_ttl=timedelta(seconds=4))
KEYS = st.lists(st.sampled_from("abcdef"), unique=True, max_size=5)


class CacheComparison(RuleBasedStateMachine):
    """Compares the cache with a list of (key, row, time of the fetch) in order of use."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.cache = Cache(LIMITS, lambda: self.now_s)
        self.model: list[tuple[str, int | None, float]] = []

    @rule(seconds=st.sampled_from([0.5, 4.0, 10.0]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    def is_fresh(self, row: int | None, since_s: float) -> bool:
        return self.now_s < since_s + (4 if row is None else 10)

    @rule(keys=KEYS, found=st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 9)))
    def look_up(self, keys: list[str], found: dict[str, int]) -> None:
        """Look up a batch: fetch missing keys and cache each result, found or not."""
        known = self.cache.get(keys)
        cached = {key: row for key, row, since_s in self.model if key in keys and self.is_fresh(row, since_s)}
        assert known.rows == cached
        assert known.missing == [key for key in keys if key not in cached]
        used = sorted((entry for entry in self.model if entry[0] in cached), key=lambda entry: keys.index(entry[0]))
        self.model = [entry for entry in self.model if entry[0] not in keys] + used

        self.cache.put(known.missing, found)
        self.model += [(key, found.get(key), self.now_s) for key in known.missing]
        self.model = self.model[-3:]

    @invariant()
    def has_at_most_max_keys(self) -> None:
        assert len(self.cache._entries) <= LIMITS.max_keys


TestCacheComparison = CacheComparison.TestCase
TestCacheComparison.settings = settings(max_examples=50, stateful_step_count=15, deadline=None)


def test_an_invalid_row_expires_as_early_as_a_missing_row() -> None:
    """`missing_ttl` applies, since the source may soon be corrected."""
    now_s = 0.0
    cache = Cache(LIMITS, lambda: now_s)
    cache.put(["a"], {"a": ps.lookups.InvalidRow("a is no row")})
    now_s = 4.0

    assert cache.get(["a"]).missing == ["a"]


@pytest.mark.parametrize("limit", [{"max_keys": 0}, {"ttl": timedelta()}, {"missing_ttl": timedelta(seconds=-1)}])
def test_cache_limits_must_be_greater_than_zero(limit: dict[str, Any]) -> None:
    """The error shows how to declare no cache."""
    with pytest.raises(DeclarationError, match="cache = None"):
        ps.lookups.Cached(**limit)
