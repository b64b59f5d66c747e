"""The answer to a replay of a key that no event has: which events were read, and which keys there are."""

from __future__ import annotations

from ....processors import counted, did_you_mean
from ....processors.declare import AnyCategory
from ....processors.shard import SourceEvents
from ....transport import Bus
from ....transport.codecs import Codecs
from ...start import read_sample

_SAMPLE = 1_000
"""The number of latest messages of a category whose keys are compared."""
_LISTED = 5


class KeySearch:
    """Determines whether replayed events have a key.

    Args:
        key: the key.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._ranges: dict[str, tuple[int, int, int]] = {}
        """By bucket: the first offset, the last one, and the number of events."""
        self.is_found = False

    def note(self, events: SourceEvents) -> None:
        """Look at the keys of events."""
        if events.offsets:
            first, _, count = self._ranges.get(events.bucket, (events.offsets[0], 0, 0))
            self._ranges[events.bucket] = (first, events.offsets[-1], count + len(events.events))
        if not self.is_found and events.events:
            self.is_found = self._key in events.category.keys_of(events.events)

    def missing(self, bus: Bus, category: AnyCategory) -> str:
        """Return sentences about the missing key: where it was looked for, and keys that exist.

        Args:
            bus: contains the category.
            category: the input.

        Raises:
            BusError: the latest messages cannot be read.
        """
        read = ", ".join(
            f"{counted(count, 'event')} of {bucket} from offset {first:,} to {last:,}"
            for bucket, (first, last, count) in sorted(self._ranges.items())
        )
        keys = _latest_keys(bus, category)
        listed = f" The latest events have keys such as {', '.join(keys[:_LISTED])}." if keys else ""
        return (
            f"No event of key {self._key} was read{f', among {read}' if read else f': its bucket of {category.name} has no events there'}."
            f"{did_you_mean(self._key, keys) or listed} `penstock category tail {category.name} --from 0 --no-follow` prints all keys."
        )


def _latest_keys(bus: Bus, category: AnyCategory) -> list[str]:
    """Return the different keys of the latest events of a category, in their order."""
    messages = read_sample(bus, category.name, _SAMPLE).messages
    events = Codecs(bus).of(category).decode(messages).events
    return list(dict.fromkeys(category.keys_of(events)))
