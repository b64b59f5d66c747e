"""Chorus from nothing: live posts through SQL, Laser, three processors and Scuba, until a spike is found, served and explored.

    python examples/chorus/chorus_demo.py [--keep-running]

Prints how long after the first unusual post the spike was in its category, in Laser and in Scuba. Everything that it starts listens on
loopback and is stopped at the end; its data stays in .penstock/chorus until the next run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import redis
from chorus import WINDOW, Spike, spikes

import penstock as ps
from penstock.ops.serve.rows.client import ScubaClient
from penstock.ops.serve.rows.queries import ExploreQuery, Filter
from penstock.processors.declare import Codec
from penstock.transport import Bucket, BucketFollower, Bus
from penstock.transport.codecs import Codecs
from penstock.transport.kafka import KafkaBus, KafkaSettings

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "flights"))
from stage import console, end, local_kafka, penstock, play, start  # noqa: E402 - of another example

FOLDER = Path(".penstock/chorus")
TOPICS, FILTER, APP = (str(HERE / name) for name in ("topics.sql", "filter.sql", "chorus.py"))
SPIKE_AFTER_S = 45.0
LIMIT_S = 240.0
WINDOW_MS = WINDOW.total_seconds() * 1000
T = TypeVar("T")


def main() -> int:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep-running", action="store_true", help="keep everything running until Ctrl-C")
    given = parser.parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    os.environ["PENSTOCK_DIR"] = str(FOLDER)  # for every command
    with local_kafka(FOLDER) as bootstrap, ExitStack() as stack:
        for app in (TOPICS, FILTER, APP):
            penstock("category", "create", app)
        for name, arguments in services().items():
            stack.enter_context(running(name, *arguments))
        console.print("\nPosts arrive. In 45 seconds, everyone writes about Chicago.")
        report(KafkaBus(KafkaSettings(bootstrap)), stack.enter_context(posts_sent(bootstrap)))
        console.print("\nThe explore page is at http://127.0.0.1:8740; choose topic_posts, and group by topic.")
        if given.keep_running:
            console.print("Ctrl-C stops everything.")
            with suppress(KeyboardInterrupt):
                signal.pause()
    return 0


def services() -> dict[str, tuple[str, ...]]:
    """Return the commands that run at the same time, by a short name."""
    topics = ("--app", TOPICS, "--category", "topics", "--key", "tag", "--value", "topic,region")
    trends = ("--app", APP, "--category", "topic_counts", "--key", "topic", "--value", "posts", "--port", "8721")
    return {
        "topics": ("run", TOPICS),
        "laser-topics": ("serve", "laser", "topics", *topics),
        "filter": ("run", FILTER),
        "chorus": ("run", APP),
        "laser-trends": ("serve", "laser", "trends", *trends),
        "scuba": ("serve", "scuba", "topic_posts", "--app", APP),
    }


@contextmanager
def running(name: str, *arguments: str) -> Iterator[None]:
    """Run a command in the block; its notes are in a file of the folder."""
    command = start(*arguments, notes=FOLDER / f"{name}.log")
    console.print(f"[bold cyan]$ penstock {' '.join(arguments)} &[/]")
    try:
        yield
    finally:
        command.terminate()
        end(command)


@contextmanager
def posts_sent(bootstrap: str) -> Iterator[int]:
    """Send posts in the block; wait for the spike, and yield its beginning (milliseconds since 1970, UTC)."""
    arguments = ["--kafka", bootstrap, "--seconds", "100000", "--spike-after", str(SPIKE_AFTER_S)]
    source = subprocess.Popen(
        [sys.executable, str(HERE / "chorus_source.py"), *arguments], stdout=subprocess.PIPE, text=True
    )
    try:
        line = "" if source.stdout is None else source.stdout.readline()
        if not line:
            raise ps.PenstockError("The source of posts has ended before the spike. Read its error above.")
        yield int(line)
    finally:
        source.terminate()
        source.wait()


def report(bus: Bus, spike_ms: int) -> None:
    """Wait until the spike is in its category, in Laser and in Scuba, and print how long each took."""
    codec = Codecs(bus).of(spikes)
    reader = BucketFollower(bus, {Bucket(spikes.name, number): 0 for number in range(spikes.buckets)})
    found = awaited("spike", lambda: first_spike(reader, codec, spike_ms))
    reader.close()
    console.print(
        f"{seconds_since(spike_ms)} after it began: {found.topic}, {found.posts} posts in five seconds, {found.expected} expected."
    )
    laser = redis.Redis(port=8721, decode_responses=True)
    awaited("count in Laser", lambda: int(laser.get(found.topic) or 0) >= found.posts or None)
    console.print(f"{seconds_since(spike_ms)} after it began: Laser has a count of at least {found.posts}.")
    question = ExploreQuery(table="topic_posts", filters=[Filter("topic", "=", found.topic)], begin=spike_ms)
    posts = awaited("posts in Scuba", lambda: ScubaClient().explore(question).matched or None)
    console.print(f"{seconds_since(spike_ms)} after it began: Scuba has {posts} of its posts.")


def first_spike(reader: BucketFollower, codec: Codec, since_ms: int) -> Spike | None:
    """Return the first new spike whose window ends after a time; None without one."""
    events = (event for batch in reader.poll(0.2) for event in codec.decode(batch.messages).events)
    return next((event for event in events if event.at + WINDOW_MS > since_ms), None)


def awaited(what: str, find: Callable[[], T | None]) -> T:
    """Return the first result that is not None. A service that does not answer yet is asked again.

    Raises:
        PenstockError: there is none within the limit.
    """
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        with suppress(redis.RedisError, ps.PenstockError):
            found = find()
            if found is not None:
                return found
        time.sleep(0.2)
    raise ps.PenstockError(f"There was no {what} within {LIMIT_S:.0f} s. The logs are in {FOLDER}.")


def seconds_since(begin_ms: int) -> str:
    """Return the time since a beginning, for people."""
    return f"{time.time() - begin_ms / 1000:.1f} s"


if __name__ == "__main__":
    play(main)
