"""Whether messages lie in the bucket of their key: where they do not, one key's state would be split between buckets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..declare.categories import AnyCategory
from ..declare.partitioner import buckets_of
from ..declare.processor import Processor

KNOWN_KEYS = 200_000
"""How many keys of a bucket are remembered as lying there."""


class MisplacedKey(NamedTuple):
    """An event that lies in another bucket than its key's.

    Args:
        bucket: the bucket in which it lies.
        at: its index among the events.
        key: its key.
        expected: the bucket of that.
    """

    bucket: int
    at: int
    key: str
    expected: int


class KeyCheck:
    """Checks one worker's events, by the keys that its processor goes by. Each key is hashed once, as long as it is remembered.

    Args:
        processor: whose.
    """

    def __init__(self, processor: type[Processor]) -> None:
        self._is_on = processor.expects_keys()
        self._known: dict[int, set[str]] = {}

    def misplaced(self, category: AnyCategory, number: int, events: Sequence[Any]) -> MisplacedKey | None:
        """Return the first event of a bucket that does not belong there; None where all do."""
        if not self._is_on or category.buckets == 1:
            return None
        known = self._known.setdefault(number, set())
        keys = category.keys_of(events)
        if known.issuperset(keys):
            return None
        new = list(dict.fromkeys(key for key in keys if key not in known))
        wrong = {
            key: bucket
            for key, bucket in zip(new, buckets_of([key.encode() for key in new], category.buckets), strict=True)
            if bucket != number
        }
        if not wrong:
            if len(known) + len(new) > KNOWN_KEYS:
                known.clear()
            known.update(new)
            return None
        return next(MisplacedKey(number, at, key, wrong[key]) for at, key in enumerate(keys) if key in wrong)
