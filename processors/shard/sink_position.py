"""The position that an exactly-once sink saves with its rows: the sink's transaction decides which checkpoint is the last one."""

from __future__ import annotations

import msgspec

from .position import Offsets, StatePosition


class SinkPosition(msgspec.Struct, frozen=True, omit_defaults=True):
    """The position after a shard's last batch.

    Args:
        offsets: next unread offset by input category.
        topic_ids: by category, the topics of the offsets.
        resets: the number of maintenance operations that had set the positions of the group. After another one, the group's positions count.
    """

    offsets: Offsets
    topic_ids: dict[str, str] = {}
    resets: int = 0

    def __str__(self) -> str:
        return str(StatePosition(self.offsets))


_encode = msgspec.json.Encoder().encode
decode_sink_position = msgspec.json.Decoder(SinkPosition).decode


def encode_sink_position(position: SinkPosition) -> str:
    """Return a position as text."""
    return _encode(position).decode()


encode_sink_position(SinkPosition({}))  # msgspec 0.22 cannot inspect a type in two threads at once
