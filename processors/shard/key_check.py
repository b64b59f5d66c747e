"""A check that messages are in the bucket of their key; otherwise a key's state would be split between buckets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..declare import AnyCategory, InvalidKey, KeyCodec, Processor, plan_of
from ..errors import DeclarationError

KNOWN_KEYS = 200_000
"""The number of checked keys of a bucket that are remembered."""
LONGEST_KNOWN = 200
"""The most characters of a remembered key. Longer ones are hashed again, as they would fill the memory."""


class MisplacedKey(NamedTuple):
    """An event in another bucket than its key's.

    Args:
        bucket: the bucket of the message.
        at: its index among the events.
        key: its key.
        expected: the key's bucket; or the reason why it has none.
    """

    bucket: int
    at: int
    key: str
    expected: int | InvalidKey


def expect_equal_message_keys(processor: type[Processor]) -> None:
    """Check that the inputs of a processor have equal message keys for equal keys.

    In the format of a schema registry, a message key begins with the id of its schema, so the bucket of a key depends on this id.

    Raises:
        DeclarationError: the schema ids differ.
        PenstockError: a schema registry does not answer.
    """
    plan = plan_of(processor)
    inputs = [category for category in plan.inputs if not isinstance(category.key_codec, KeyCodec)]
    if not plan.checks_keys or len(inputs) < 2:
        return
    first, *others = inputs
    for other in others:
        if first.encode_keys([first.any_key]) != other.encode_keys([other.any_key]):
            raise DeclarationError(
                f"Processor {processor.__name__} reads {first.name} and {other.name}, whose keys have different schemas in the registry. Message keys "
                "contain the schema id, so events of one key would be in different buckets. No event was read. Copy one of them to another "
                "category with a penstock.Repartition, or declare one subject for both with `subjects=SubjectStrategy.RECORD`."
            )


class KeyCheck:
    """Checks the events of one worker. Each key is hashed once, as long as it is remembered.

    Args:
        processor: declares whether keys are checked.
    """

    def __init__(self, processor: type[Processor]) -> None:
        self._is_on = plan_of(processor).checks_keys
        self._known: dict[int, set[str]] = {}

    def misplaced(self, category: AnyCategory, number: int, events: Sequence[Any]) -> MisplacedKey | None:
        """Return the first event that does not belong in a bucket; None if all do."""
        if not self._is_on or category.buckets == 1:
            return None
        known = self._known.setdefault(number, set())
        distinct = category.distinct_keys_of(events)
        if known.issuperset(distinct):
            return None
        new = set(distinct) - known
        if _are_all_in(number, category, list(new)):
            if len(known) + len(new) > KNOWN_KEYS:
                known.clear()
            known.update(key for key in new if len(key) <= LONGEST_KNOWN)
            return None
        return _first_misplaced(number, category, category.keys_of(events), known)


def _are_all_in(number: int, category: AnyCategory, keys: Sequence[str]) -> bool:
    try:
        return all(bucket == number for bucket in category.buckets_of(keys))
    except InvalidKey:
        return False


def _first_misplaced(number: int, category: AnyCategory, keys: Sequence[str], known: set[str]) -> MisplacedKey | None:
    for at, key in enumerate(keys):
        if key in known:
            continue
        try:
            expected = category.bucket_of(key)
        except InvalidKey as error:
            return MisplacedKey(number, at, key, error)
        if expected != number:
            return MisplacedKey(number, at, key, expected)
    return None
