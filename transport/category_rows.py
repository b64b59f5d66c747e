"""The rows of a category that a lookup join declares as its table.

first fetch --read to the end--> rows by key
later fetch --read new messages--> rows by key
            --topic recreated or resized--> read again
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

from ..processors import counted
from ..processors.declare import AnyCategory, Message, Processor, RowUpdate, Undecodable
from ..processors.lookups import (
    DEFAULT_LIMIT_BYTES,
    CategoryTable,
    LookupJoin,
    LookupRefused,
    LookupUnreachable,
    PreloadedTable,
    TableSize,
)
from ..processors.shard import valid_deleted_key
from .bucket_follower import BucketFollower, changed_topics
from .bus import Bus
from .category_spec import Topic
from .codecs import Codecs
from .errors import BusError, BusUnreachable, OffsetOutOfRange
from .messages import Bucket, RawBatch, split_batch

_LOG = logging.getLogger("penstock.lookups")
CHECK_EVERY_S = 5.0
"""The interval at which a table checks that its topic has the same id and number of buckets."""
_CLEARED = object()
"""In place of a row: the message deletes all rows."""
SILENCE_LIMIT_S = 30.0
"""The time without a message after which reading to the end counts as failed."""


def connect_lookup(processor: Processor, bus: Bus) -> None:
    """Let a lookup join read the category that it declares as its table. Call it before `open`."""
    if isinstance(processor, LookupJoin) and isinstance(processor.source, CategoryTable):
        processor.use_source(_ConnectedTable(processor.source, bus))


@dataclass(frozen=True)
class _ConnectedTable:
    """A declared table and the bus of its category."""

    table: CategoryTable
    bus: Bus

    def open(self) -> CategoryRows:
        return CategoryRows(self.table.category, self.bus, time.monotonic, self.table.max_bytes)

    def __str__(self) -> str:
        return str(self.table)


class _Version(NamedTuple):
    """The last record of a key, and its message.

    Args:
        row: the record; None if the key is deleted.
        bucket: the bucket of the message.
        arrival_ms: the timestamp of the message (milliseconds since 1970, UTC).
        size_bytes: the size of the message.
    """

    row: Any
    bucket: int
    arrival_ms: int
    size_bytes: int


class _Versions:
    """The last versions of all keys, up to a size.

    Args:
        category: the name of the category.
        max_bytes: the limit.
    """

    def __init__(self, category: str, max_bytes: int) -> None:
        self._category = category
        self._max_bytes = max_bytes
        self._of: dict[str, _Version] = {}
        self.rows = self.size_bytes = 0

    def get(self, key: str) -> _Version | None:
        """Return the version of a key."""
        return self._of.get(key)

    def put(self, key: str, version: _Version) -> None:
        """Replace the version of a key."""
        before = self._of.get(key)
        self._of[key] = version
        self.size_bytes += version.size_bytes - (before.size_bytes if before else 0)
        self.rows += (version.row is not None) - (before is not None and before.row is not None)

    def clear(self, until_ms: int) -> None:
        """Delete all rows that have arrived up to a time (milliseconds since 1970, UTC)."""
        for key, version in list(self._of.items()):
            if version.row is not None and version.arrival_ms <= until_ms:
                self.put(key, version._replace(row=None))

    def forget_deletions(self) -> None:
        """Remove the versions of deleted keys, which only a later read of an older bucket needs."""
        self._of = {key: version for key, version in self._of.items() if version.row is not None}
        self.size_bytes = sum(version.size_bytes for version in self._of.values())

    def expect_fit(self, tolerance: int = 1) -> None:
        """Raise LookupRefused if the rows exceed the limit, without the deleted keys.

        Args:
            tolerance: multiplies the limit while messages are missing that may delete rows.
        """
        limit = tolerance * self._max_bytes
        if self.size_bytes > limit:
            self.forget_deletions()
        if self.size_bytes > limit:
            raise LookupRefused(
                f"The table of category {self._category} has {counted(self.rows, 'row')} of {self.size_bytes:,} bytes or more, and its limit is "
                f"{self._max_bytes:,} bytes (`max_bytes`): every worker keeps all of them in memory. No event of the batch was processed. Read the "
                "category as the table of a penstock.TableJoin, whose workers share the rows and keep them on disk. Or declare a larger `max_bytes` on "
                "the CategoryTable, if each worker has memory for a multiple of it."
            )


class CategoryRows(PreloadedTable):
    """The last record of each key of a category. One thread; the first `fetch` reads the category.

    After a resize, a key may have records in two buckets. The one that arrived later is its row.

    Args:
        category: the category.
        bus: contains it.
        now_s: a monotonic clock, in seconds.
        max_bytes: the limit for the messages with the rows.
    """

    def __init__(
        self, category: AnyCategory, bus: Bus, now_s: Callable[[], float], max_bytes: int = DEFAULT_LIMIT_BYTES
    ) -> None:
        self._category = category
        self._bus = bus
        self._codec = Codecs(bus).of(category)
        self._now_s = now_s
        self._checked_s = 0.0
        self._topics: Mapping[str, Topic] = {}
        self._follower: BucketFollower | None = None
        self._max_bytes = max_bytes
        self._versions = _Versions(category.name, max_bytes)
        self._unread = 0
        self._failed_loads = 0

    @property
    def size(self) -> TableSize:
        """The size of the table, and the number of messages that it lacked at the last check."""
        return TableSize(self._versions.rows, self._versions.size_bytes, self._unread)

    @property
    def failed_loads(self) -> int:
        """The number of messages that do not decode. They are skipped."""
        return self._failed_loads

    def fetch(self, keys: Sequence[str]) -> dict[str, Any]:
        """Return the row of each key that has one, as of the last message that has arrived in this process.

        Raises:
            LookupUnreachable: the category could not be read to its end.
            LookupRefused: the category is missing, or the bus refuses to read it.
        """
        is_due = self._now_s() - self._checked_s >= CHECK_EVERY_S
        try:
            if self._follower is None or (is_due and self._is_another_topic()):
                self._load()
            else:
                self._update(self._follower)
                if is_due:
                    self._count_unread(self._follower.positions)
        except BusUnreachable as error:
            raise LookupUnreachable(str(error)) from error
        except BusError as error:
            raise LookupRefused(str(error)) from error
        found = ((key, self._versions.get(key)) for key in keys)
        return {key: version.row for key, version in found if version is not None and version.row is not None}

    def _is_another_topic(self) -> bool:
        """Return whether the topic was recreated or resized since it was read. Without an answer of the bus, it counts as the same."""
        self._checked_s = self._now_s()
        try:
            return bool(changed_topics(self._bus, self._topics))
        except BusUnreachable as error:
            _LOG.debug("%s", error)  # the worker's reader reports the outage
            return False

    def _count_unread(self, positions: Mapping[Bucket, int]) -> None:
        """Count the messages that have arrived on the bus and not in this process."""
        name = self._category.name
        try:
            ends = self._bus.catalog.stable_ends(name)
        except BusError as error:
            _LOG.debug("%s", error)
            return
        self._unread = sum(max(0, end - positions.get(Bucket(name, number), end)) for number, end in ends.items())

    def _load(self) -> None:
        """Read the category to its end. Until then, the earlier rows stay in use."""
        name = self._category.name
        state = self._bus.catalog.describe(name)
        follower = BucketFollower(self._bus, {Bucket(name, number): start for number, start in state.starts.items()})
        versions = _Versions(name, self._max_bytes)
        try:
            for batch in follower.read_to_end(SILENCE_LIMIT_S):
                self._apply(batch, versions)
            versions.forget_deletions()
            versions.expect_fit()
        except BaseException:
            follower.close()
            raise
        self.close()
        self._follower, self._topics = follower, {name: Topic(state.topic_id, len(state.ends))}
        self._versions, self._unread, self._checked_s = versions, 0, self._now_s()
        _LOG.info("The table of category %s has %s.", name, counted(versions.rows, "row"))

    def _update(self, follower: BucketFollower) -> None:
        """Apply the messages that have arrived since the last call."""
        try:
            while batches := follower.poll(0.0):
                for batch in batches:
                    self._apply(batch, self._versions)
            self._versions.expect_fit()
        except OffsetOutOfRange:
            self._load()  # messages expired before this process read them

    def _apply(self, batch: RawBatch, versions: _Versions) -> None:
        batch = split_batch(self._codec, batch)
        arrivals_ms = batch.arrivals_ms().tolist()
        failed: list[Undecodable] = []
        for at, (key, change) in sorted(self._changes(batch, failed).items(), key=itemgetter(0)):
            if change is _CLEARED:
                versions.clear(arrivals_ms[at])
                continue
            before, size = versions.get(key), _size_of(batch.messages[at])
            if isinstance(change, RowUpdate):
                if before is None or before.row is None:
                    failed.append(Undecodable(at, change.reason, untimed=False))
                    continue
                change, size = change.onto(before.row), max(size, before.size_bytes)  # noqa: PLW2901 - the whole row
            version = _Version(change, batch.bucket.number, arrivals_ms[at], size)
            if before is None or before.bucket == version.bucket or before.arrival_ms <= version.arrival_ms:
                versions.put(key, version)
        versions.expect_fit(tolerance=2)
        if failed:
            self._report(batch, failed)

    def _changes(self, batch: RawBatch, failed: list[Undecodable]) -> dict[int, tuple[str, Any]]:
        """Return by index of its message each change: the key, and a row, a RowUpdate, None for a deletion or `_CLEARED`. Collect the failed messages."""
        decoded = self._codec.decode(batch.messages)
        keys = self._category.keys_of(decoded.events)
        changes = dict(zip(decoded.at, zip(keys, decoded.events, strict=True), strict=True))
        for bad in decoded.bad:
            if bad.update is not None:
                changes[bad.at] = (self._category.keys_of([bad.update])[0], bad.update)
            elif bad.clears_table:
                changes[bad.at] = ("", _CLEARED)
            elif (key := valid_deleted_key(bad, batch.messages[bad.at], self._category)) is not None:
                changes[bad.at] = (key, None)
            else:
                failed.append(bad)
        return changes

    def _report(self, batch: RawBatch, failed: Sequence[Undecodable]) -> None:
        self._failed_loads += len(failed)
        _LOG.warning(
            "%s: skipped %s of a table, which cannot be decoded. The first is at offset %d: %s",
            batch.bucket,
            counted(len(failed), "message"),
            batch.offsets()[failed[0].at],
            failed[0].reason,
        )

    def close(self) -> None:
        """Stop reading. May be repeated."""
        if self._follower is not None:
            self._follower.close()
            self._follower = None


def _size_of(message: Message) -> int:
    return len(message.key() or b"") + len(message.value() or b"")
