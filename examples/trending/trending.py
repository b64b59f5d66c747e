"""The nodes of the paper's trending events that are not SQL: the Joiner, which asks for languages and topics, and the Scorer."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import penstock as ps

MINUTE_MS = 60_000
RECENT = 5
"""The number of minutes that count as recent."""
_TOPICS = {
    "sports": {"match", "goal", "team", "coach"},
    "movies": {"film", "actor", "scene", "trailer"},
    "babies": {"baby", "nappy", "sleep", "pram"},
}


class Post(ps.Record, frozen=True):
    """A post about an event, on a page."""

    event_time: ps.EventTime
    event: str
    dim_id: str
    text: str


class TopicEvent(ps.Record, frozen=True):
    """A post in English about an event, with its topic."""

    event_time: ps.EventTime
    event: str
    topic: str


class EventScore(ps.Record, frozen=True):
    """The score of an event in a minute."""

    event_time: ps.EventTime
    event: str
    category: str
    score: int


class Page(ps.Record, frozen=True):
    """A page and its language."""

    dim_id: str
    language: str


class Trend(ps.Record, frozen=True):
    """The counts of an event: of this minute, of the minutes before, and on average.

    Args:
        minute: the start of this minute (milliseconds since 1970, UTC).
        count: the number of posts in it.
        recent: the numbers of the minutes before, at most `RECENT`.
        average: the moving average of posts per minute, in thousandths.
    """

    minute: int
    count: int
    recent: tuple[int, ...] = ()
    average: int = 0


posts = ps.Category("posts", Post, key="dim_id", event_time="event_time", buckets=4)
topic_events = ps.Category(
    "topic_events", TopicEvent, key=lambda post: f"{post.topic}/{post.event}", event_time="event_time", buckets=4
)
scores = ps.Category("events_stream", EventScore, key="category", event_time="event_time", buckets=2)


def topic_of(text: str) -> str | None:
    """Return the topic with the most words in a text; None if no topic has one."""
    words = set(text.split())
    best = max(_TOPICS, key=lambda topic: len(words & _TOPICS[topic]))
    return best if words & _TOPICS[best] else None


class Joiner(ps.LookupJoin[Post, Page | None, TopicEvent]):
    """Keeps posts on pages in English, and classifies them by topic."""

    reads, writes = posts, topic_events
    watermark = ps.watermarks.UpstreamWatermark()
    source = ps.lookups.CsvTable(Path(__file__).with_name("pages.csv"), Page, key="dim_id")

    def key_of(self, event: Post) -> str:
        """Return the page of a post."""
        return event.dim_id

    def join(self, event: Post, row: Page | None) -> Iterable[TopicEvent]:
        """Return the post with its topic."""
        topic = topic_of(event.text)
        if row is not None and row.language == "en" and topic is not None:
            yield TopicEvent(event.event_time, event.event, topic)


class Scorer(ps.Stateful[TopicEvent, Trend, EventScore]):
    """Compares the posts of the last minutes with the long-term average, at the end of each minute."""

    reads, writes = topic_events, scores
    watermark = ps.watermarks.UpstreamWatermark()
    state, ordered = Trend, True

    def process(
        self, event: TopicEvent, state: Trend | None, context: ps.Context
    ) -> tuple[Trend, Iterable[EventScore]]:
        """Count the post."""
        if state is not None:
            return Trend(state.minute, state.count + 1, state.recent, state.average), ()
        minute = event.event_time // MINUTE_MS * MINUTE_MS
        context.timer(minute + MINUTE_MS)
        return Trend(minute, 1), ()

    def on_timer(self, timer: ps.Timer, state: Trend, context: ps.Context) -> tuple[Trend | None, Iterable[EventScore]]:
        """Write the score of the minute that has ended. An event without recent posts is forgotten."""
        recent = (*state.recent, state.count)[-RECENT:]
        if not any(recent):
            return None, ()
        topic, _, event = context.key.partition("/")
        score = 100_000 * sum(recent) // (5_000 + RECENT * state.average)
        average = (9 * state.average + 1_000 * state.count) // 10
        context.timer(timer.at + MINUTE_MS)
        return Trend(timer.at, 0, recent, average), [EventScore(state.minute, event, topic, score)]
