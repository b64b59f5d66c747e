"""The position of a shard's state: which events, and which checkpoint, it reflects."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

Offsets = dict[str, int]
"""Next unread offset by input category, for the one bucket number that a shard processes."""


class StatePosition(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a saved state reflects. Falsy where nothing was saved yet.

    Args:
        offsets: next unread offset by input category.
        changelog_offset: next unread offset of the changelog, as of the last replay.
        checkpoint_id: the last checkpoint; 0 where checkpoints have no ids.
        generation: the generation of the maintenance operation that installed the state; 0 for none.
        topic_ids: by category, the bus's id of the topic that the offsets belong to. A recreated topic has the old name and another id.
    """

    offsets: Offsets = {}
    changelog_offset: int = 0
    checkpoint_id: int = 0
    generation: int = 0
    topic_ids: dict[str, str] = {}

    def __bool__(self) -> bool:
        return self != _NOTHING_SAVED

    def __str__(self) -> str:
        return ", ".join(f"{name} {offset:,}" for name, offset in sorted(self.offsets.items())) or "nothing read"

    def updated(self, later: StatePosition) -> StatePosition:
        """Return this position with everything that `later` contains in place of its own."""
        return StatePosition(
            {**self.offsets, **later.offsets},
            later.changelog_offset or self.changelog_offset,
            later.checkpoint_id or self.checkpoint_id,
            later.generation or self.generation,
            {**self.topic_ids, **later.topic_ids},
        )

    def is_behind(self, other: StatePosition) -> bool:
        """Whether `other` is further in an input, the changelog, its checkpoints or its maintenance operations."""
        return (
            any(offset > self.offsets.get(name, 0) for name, offset in other.offsets.items())
            or other.changelog_offset > self.changelog_offset
            or other.checkpoint_id > self.checkpoint_id
            or other.generation > self.generation
        )

    def recreated(self, topic_ids: Mapping[str, str]) -> list[str]:
        """Return the categories whose topics are not those of this position; a topic without a saved id counts as the same."""
        return [name for name, topic_id in topic_ids.items() if self.topic_ids.get(name, topic_id) != topic_id]


_NOTHING_SAVED = StatePosition()

# Created here, by the thread that imports: msgspec 0.22 cannot inspect a type in two threads at once, and several threads open shards.
encode_position = msgspec.json.Encoder().encode
decode_position = msgspec.json.Decoder(StatePosition).decode
encode_position(_NOTHING_SAVED)
