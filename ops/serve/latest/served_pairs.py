"""The pairs that this process answers from: the saved states of its open shards.

worker's loop --publish--> shards by bucket number --fetch, scan--> requests, in the server's thread

Readers see saved checkpoints only, so no answer is undone by a crash.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from ....processors.declare import InvalidKey
from ....processors.keyed_state import ENGINE_PREFIX
from ....state import ShardState, StateError
from ....transport import Bus
from ...kernel import Worker, ends_of
from .pairs import NotServed
from .table import LatestTable, Pair

_decode = msgspec.msgpack.Decoder(Pair).decode


class ServedPairs:
    """Reads the pairs of a table.

    Args:
        table: the table.
        bus: contains its category.
        now_ms: the wall clock (milliseconds since 1970, UTC).
    """

    def __init__(
        self, table: LatestTable, bus: Bus, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    ) -> None:
        self._table = table
        self._source = table.source()
        self._uses_category_key = table.uses_category_key
        self._lifetime_ms = table.lifetime_ms
        self._bus = bus
        self._now_ms = now_ms
        self._targets = ends_of([self._source], bus)
        self._is_caught_up = False
        self._shards: Mapping[int, ShardState] = {}

    def publish(self, worker: Worker) -> None:
        """Serve the worker's open shards, once it has read and saved all events that existed at the start. For the worker's thread."""
        if not self._is_caught_up:
            self._is_caught_up = worker.has_reached(self._targets) and worker.save()
        if self._is_caught_up:
            self._shards = {shard.number: shard.state for shard in worker.shards if shard.state is not None}

    @property
    def is_complete(self) -> bool:
        """Whether every bucket is served."""
        return len(self._shards) == self._source.buckets

    @property
    def day(self) -> str | None:
        """Return None: the pairs follow a category."""
        return None

    @property
    def problem(self) -> str:
        """Return nothing: there are no days."""
        return ""

    @property
    def is_text(self) -> bool:
        """Whether values are texts; otherwise they are JSON."""
        return self._table.has_text_values

    def fetch(self, keys: Sequence[bytes]) -> list[Pair | None]:
        """Return the pair of each key; None for keys without one, or with an expired one.

        Raises:
            NotServed: a bucket of one of the keys is not open here.
        """
        expired_ms = self._expired_ms()
        if not self._uses_category_key:
            return self._newest(keys, expired_ms)
        numbers = self._buckets_of(keys)
        if len(keys) == 1:
            return [None] if numbers[0] is None else _live(self._fetch_saved(numbers[0], keys), expired_ms)
        return self._by_bucket(keys, numbers, expired_ms)

    def _by_bucket(self, keys: Sequence[bytes], numbers: Sequence[int | None], expired_ms: float) -> list[Pair | None]:
        found: list[Pair | None] = [None] * len(keys)
        for number, places in _places(numbers).items():
            if number is not None:
                pairs = _live(self._fetch_saved(number, [keys[place] for place in places]), expired_ms)
                for place, pair in zip(places, pairs, strict=True):
                    found[place] = pair
        return found

    def _newest(self, keys: Sequence[bytes], expired_ms: float) -> list[Pair | None]:
        """Return the newest pair of each key in any bucket."""
        newest: list[Pair | None] = [None] * len(keys)
        for number in range(self._source.buckets):
            for place, pair in enumerate(_live(self._fetch_saved(number, keys), expired_ms)):
                former = newest[place]
                if pair is not None and (former is None or former.at < pair.at):
                    newest[place] = pair
        return newest

    def scan(self, number: int, start: bytes, limit: int) -> tuple[list[bytes], tuple[int, bytes] | None]:
        """Return keys of a bucket from `start` on, and where to go on: a bucket and a key; None after the last bucket.

        Raises:
            NotServed: the bucket is not open here.
        """
        try:
            found = self._shard(number).scan(start, ENGINE_PREFIX, limit)
        except StateError as error:
            raise self._not_served(number) from error
        pairs = _live([saved for _, saved in found], self._expired_ms())
        keys = [key for (key, _), pair in zip(found, pairs, strict=True) if pair is not None]
        if len(found) == limit:
            return keys, (number, found[-1][0] + b"\x00")
        return keys, (number + 1, b"") if number + 1 < self._source.buckets else None

    def remaining_ms(self, pair: Pair) -> int | None:
        """Return the rest of a pair's lifetime; None forever."""
        return None if self._lifetime_ms is None else pair.at + self._lifetime_ms - self._now_ms()

    def events_behind(self) -> int:
        """Return how many offsets the answers lag behind the end of the category. Asks Kafka.

        Raises:
            NotServed: a bucket is not open here.
            BusError: Kafka does not answer.
        """
        ends = self._bus.catalog.describe(self._source.name).ends
        return sum(max(0, end - self._saved_offset(number)) for number, end in ends.items())

    def _saved_offset(self, number: int) -> int:
        try:
            return self._shard(number).position().offsets.get(self._source.name, 0)
        except StateError as error:
            raise self._not_served(number) from error

    def _buckets_of(self, keys: Sequence[bytes]) -> Sequence[int | None]:
        try:
            return self._source.buckets_of([key.decode() for key in keys])
        except (InvalidKey, UnicodeDecodeError):
            # No record can have such a key. The others have their buckets.
            return [None] if len(keys) == 1 else [self._buckets_of([key])[0] for key in keys]

    def _fetch_saved(self, number: int, keys: Sequence[bytes]) -> list[bytes | None]:
        try:
            return self._shard(number).fetch(keys)
        except StateError as error:
            raise self._not_served(number) from error

    def _expired_ms(self) -> float:
        """Return the latest event time of expired pairs."""
        return float("-inf") if self._lifetime_ms is None else self._now_ms() - self._lifetime_ms

    def _shard(self, number: int) -> ShardState:
        shard = self._shards.get(number)
        if shard is None:
            raise self._not_served(number)
        return shard

    def _not_served(self, number: int) -> NotServed:
        return NotServed(
            f"bucket {number} of {self._table.name} is not served here yet; ask again or ask another server"
        )


def _places(numbers: Sequence[int | None]) -> dict[int | None, list[int]]:
    """Return the places of each number."""
    places: dict[int | None, list[int]] = {}
    for place, number in enumerate(numbers):
        if number in places:
            places[number].append(place)
        else:
            places[number] = [place]
    return places


def _live(saved: Sequence[bytes | None], expired_ms: float) -> list[Pair | None]:
    """Return the pairs; None in place of expired ones."""
    pairs = [None if each is None else _decode(each) for each in saved]
    return [None if pair is None or pair.at <= expired_ms else pair for pair in pairs]
