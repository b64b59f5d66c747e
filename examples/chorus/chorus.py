"""The Python side of Chorus: posts get topics from Laser, are counted every five seconds, and unusual counts are found.

Source: Chen et al., "Realtime Data Processing at Facebook", 2016, section 5.2.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from math import sqrt

import penstock as ps

WINDOW = timedelta(seconds=5)
LEARNING = 4
"""The number of windows of a topic before one is compared."""
THRESHOLD = 5.0
"""The number of standard deviations above the mean that make a spike."""
WEIGHT = 0.2
"""The weight of the newest window in the mean."""


class TaggedPost(ps.Record, frozen=True):
    """A post with its first hashtag."""

    at: ps.EventTime
    author: str
    text: str
    tag: str


class Subject(ps.Record, frozen=True):
    """What Laser serves of a topic, by hashtag."""

    topic: str
    region: str


class TopicPost(ps.Record, frozen=True):
    """A post about a topic."""

    at: ps.EventTime
    author: str
    text: str
    topic: str
    region: str


class TopicCount(ps.Record, frozen=True):
    """The number of posts about a topic in a window."""

    topic: str
    at: ps.EventTime
    posts: int


class Spike(ps.Record, frozen=True):
    """A window with far more posts about a topic than expected."""

    topic: str
    at: ps.EventTime
    posts: int
    expected: float


class Usual(ps.Record, frozen=True):
    """The expected number of posts in a window: a moving mean over some windows."""

    mean: float
    windows: int


tagged_posts = ps.Category("tagged_posts", TaggedPost, key="tag", event_time="at", buckets=2)
topic_posts = ps.Category("topic_posts", TopicPost, key="topic", event_time="at", buckets=2)
topic_counts = ps.Category("topic_counts", TopicCount, key="topic", event_time="at", buckets=2)
spikes = ps.Category("spikes", Spike, key="topic", event_time="at", buckets=2)


class Tagger(ps.LookupJoin[TaggedPost, Subject | None, TopicPost]):
    """Asks Laser for the topic of each post's hashtag. Posts with an unknown hashtag are dropped."""

    reads, writes = tagged_posts, topic_posts
    watermark = ps.watermarks.UpstreamWatermark()
    on_unreachable = ps.lookups.OnUnreachable.WAIT
    source = ps.lookups.RedisTable("", Subject, ps.lookups.RedisForm.JSON, at="redis://127.0.0.1:8720")

    def key_of(self, event: TaggedPost) -> str:
        """Return the hashtag."""
        return event.tag

    def join(self, event: TaggedPost, row: Subject | None) -> Iterable[TopicPost]:
        """Return the post with its topic."""
        if row is not None:
            yield TopicPost(event.at, event.author, event.text, row.topic, row.region)


class Counter(ps.Aggregator[TopicPost, int, TopicCount]):
    """Counts the posts of each topic in windows of five seconds. A count is written when its window is complete."""

    reads, writes = topic_posts, topic_counts
    watermark = ps.watermarks.UpstreamWatermark()
    monoid = ps.monoids.Count()
    window = ps.windows.Tumbling(WINDOW)
    emit = ps.AtWatermark()
    output_semantics = ps.Semantics.EXACTLY_ONCE

    def result(self, key: str, window: ps.windows.Window, value: int) -> TopicCount:
        """Return the count of a topic and window."""
        return TopicCount(key, window.start, value)


class Detector(ps.Stateful[TopicCount, Usual, Spike]):
    """Compares each count with the mean of earlier ones; a spike is at least as far above it as noise would hardly be."""

    reads, writes, state = topic_counts, spikes, Usual
    output_semantics = ps.Semantics.EXACTLY_ONCE

    def process(self, event: TopicCount, state: Usual | None, context: ps.Context) -> tuple[Usual, Iterable[Spike]]:
        """Report a spike, and learn from a count, but not more than would not have been a spike."""
        usual = state or Usual(float(event.posts), 0)
        limit = usual.mean + THRESHOLD * sqrt(max(usual.mean, 1.0))
        learned = usual.mean + WEIGHT * (min(event.posts, limit) - usual.mean)
        is_spike = usual.windows >= LEARNING and event.posts > limit
        found = [Spike(event.topic, event.at, event.posts, round(usual.mean, 1))] if is_spike else []
        return Usual(learned, usual.windows + 1), found
