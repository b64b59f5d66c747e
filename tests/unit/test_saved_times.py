"""Event times as the groups of processors without state commit them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.processors.keyed_state import EmptyState
from penstock.processors.time import FOREVER_MS, NEVER_MS, BucketProgress, CommittedTimes, ShardTime
from penstock.processors.time.saved_times import MAX_TEXT, progress_of, text_of

TIMES = st.lists(st.integers(NEVER_MS, FOREVER_MS), max_size=300)
STRATEGIES = st.sampled_from(
    [ps.watermarks.Confidence(warm_up=2), ps.watermarks.BoundedOutOfOrderness(), ps.watermarks.UpstreamWatermark()]
)


@given(
    st.fixed_dictionaries({"left": STRATEGIES, "right": STRATEGIES}),
    st.lists(st.tuples(st.sampled_from(["left", "right"]), TIMES), max_size=8),
)
def test_an_owner_that_continues_from_committed_times_reaches_the_same_watermarks(
    strategies: dict[str, ps.watermarks.Watermark], batches: list[tuple[str, list[int]]]
) -> None:
    """They equal the watermarks of an owner that never stopped, after each event."""
    whole, restarted = (ShardTime(strategies, EmptyState()) for _ in range(2))
    for category, times in batches:
        expected = whole.observe(category, times)
        found = restarted.observe(category, times)
        restarted = ShardTime(strategies, CommittedTimes(restarted.saved()))

        assert np.array_equal(found, expected)
        assert restarted.progress == whole.progress


def test_the_longest_histogram_leaves_the_watermark_and_fits_into_kafka() -> None:
    """Beyond the limit, an input's histogram is left out, and its estimate begins again from its last watermark."""
    counts = {bin_: 1 + bin_ * 7919 % 130_000 for bin_ in range(3_700)}
    progress = BucketProgress(10**12, 5, 7, -2, counts)
    text = text_of(progress)

    assert len(text) <= MAX_TEXT
    assert progress_of(text) == BucketProgress(10**12, 5, 7, -2, {})
