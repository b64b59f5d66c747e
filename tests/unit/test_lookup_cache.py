"""What the cache of a lookup promises: no row older than declared, no more keys than declared, the least used gone first."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import penstock as ps
from penstock.processors.errors import DeclarationError
from penstock.processors.lookups.cache import Cache

LIMITS = ps.lookups.Cached(max_keys=3, ttl=timedelta(seconds=10), missing_ttl=timedelta(seconds=4))
KEYS = st.lists(st.sampled_from("abcdef"), unique=True, max_size=5)


class CacheAsAList(RuleBasedStateMachine):
    """The cache does as a list of (key, row, since when) that is kept in order of use."""

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
        """As a batch does: what is lacking is fetched and remembered, found or not."""
        known = self.cache.get(keys)
        remembered = {key: row for key, row, since_s in self.model if key in keys and self.is_fresh(row, since_s)}
        assert known.rows == remembered
        assert known.missing == [key for key in keys if key not in remembered]
        used = sorted((one for one in self.model if one[0] in remembered), key=lambda one: keys.index(one[0]))
        self.model = [one for one in self.model if one[0] not in keys] + used

        self.cache.put(known.missing, found)
        self.model += [(key, found.get(key), self.now_s) for key in known.missing]
        self.model = self.model[-3:]

    @invariant()
    def it_is_bounded(self) -> None:
        assert len(self.cache._entries) <= LIMITS.max_keys


TestCacheAsAList = CacheAsAList.TestCase
TestCacheAsAList.settings = settings(max_examples=50, stateful_step_count=15, deadline=None)


def test_a_row_that_does_not_fit_is_entries_as_briefly_as_none() -> None:
    """It is as likely to be mended."""
    now_s = 0.0
    cache = Cache(LIMITS, lambda: now_s)
    cache.put(["a"], {"a": ps.lookups.InvalidRow("a is no row")})
    now_s = 4.0

    assert cache.get(["a"]).missing == ["a"]


@pytest.mark.parametrize("limit", [{"max_keys": 0}, {"ttl": timedelta()}, {"missing_ttl": timedelta(seconds=-1)}])
def test_a_cache_of_nothing_is_refused(limit: dict[str, Any]) -> None:
    """With what to declare instead."""
    with pytest.raises(DeclarationError, match="cache = None"):
        ps.lookups.Cached(**limit)
