"""The Chorus example: its counts and spikes against a recount."""

from __future__ import annotations

import re
from collections import Counter as Counts
from pathlib import Path
from typing import Any

from chorus import Counter, Detector, Subject, TaggedPost, Tagger, spikes, tagged_posts, topic_counts
from chorus_source import SPIKE, STEP_S, Talk, airport_rows, airports
from msgspec.structs import asdict

import penstock as ps
from penstock.processors.apps import AppName
from penstock.processors.declare import plan_of
from penstock.testing import Crash, Driver, Step
from penstock.transport import WatermarkWriter

EXAMPLE = Path(__file__).parents[2] / "examples" / "chorus"
START_MS, WINDOW_MS = 1_700_000_000_000, 5_000
STEPS, SPIKE_STEP = 600, 400


def test_the_spike_is_found_and_each_count_is_that_of_a_recount() -> None:
    """The Counter and the Detector crash before they commit."""
    [topics] = AppName.parse(str(EXAMPLE / "topics.sql")).load().processors
    [filtered] = AppName.parse(str(EXAMPLE / "filter.sql")).load().processors
    [posts] = plan_of(filtered).inputs
    laser = Driver(topics)
    laser.send(
        plan_of(topics).inputs[0], [plan_of(topics).inputs[0].record(**asdict(airport)) for airport in airport_rows()]
    )
    subjects = {row.tag: Subject(row.topic, row.region) for row in laser.read(plan_of(topics).outputs[0])}
    talk = Talk()
    said = [
        post
        for step in range(STEPS)
        for post in talk.posts(START_MS + int(step * STEP_S * 1_000), is_spike=step >= SPIKE_STEP)
    ]
    first = Driver(filtered)
    first.send(posts, [posts.record(**asdict(post)) for post in said])
    found_tags = sorted(first.read(plan_of(filtered).outputs[0]), key=lambda post: post.at)
    tagged = [TaggedPost(post.at, post.author, post.text, post.tag) for post in found_tags]
    driver = Driver([Tagger, Counter, Detector], sources={Tagger: ps.lookups.MemoryTable(subjects)})
    for begin in range(0, len(tagged), 1_000):
        part = tagged[begin : begin + 1_000]
        driver.send(tagged_posts, [*part[:500], Crash(before=Step.COMMIT_TRANSACTION), *part[500:]])
        with WatermarkWriter(driver.bus, tagged_posts.name) as writer:
            writer.advance(part[-1].at)
        driver.run()

    truth = recount(said, subjects)
    counted = {(count.topic, count.at): count.posts for count in driver.read(topic_counts)}
    complete = max(at for _, at in counted)
    assert counted == {key: count for key, count in truth.items() if key[1] <= complete}
    found = driver.read(spikes)
    assert {spike.topic for spike in found} == {subjects[f"#{SPIKE}"].topic}
    assert min(spike.at for spike in found) + WINDOW_MS > START_MS + SPIKE_STEP * STEP_S * 1_000
    assert len(found) >= 2


def recount(said: list[Any], subjects: dict[str, Subject]) -> Counts[tuple[str, int]]:
    """Count the posts of each topic and window."""
    counts: Counts[tuple[str, int]] = Counts()
    for post in said:
        tag = re.search("#[A-Z]+", post.text)
        if tag is not None and tag[0] in subjects:
            counts[subjects[tag[0]].topic, post.at // WINDOW_MS * WINDOW_MS] += 1
    return counts


def test_the_categories_of_the_source_are_those_of_the_apps() -> None:
    """A producer has a declaration of its own."""
    [topics] = AppName.parse(str(EXAMPLE / "topics.sql")).load().processors

    assert airports.record.__struct_fields__ == plan_of(topics).inputs[0].record.__struct_fields__
