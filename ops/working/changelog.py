"""The changelog: what checkpoints did to a shard's state, on the bus, in the same transactions as their outputs.

It is kept where reading the events again would not give the same state: several inputs, which come interleaved otherwise
each time, or a processor that says it is not deterministic. The bus compacts it to the last change of each key.

    key   b"k" and the state's key, value its bytes or none      a change
    key   b"p", value the position as MessagePack                 how far the state is with the changes before it
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ...processors.changes import Changes
from ...processors.kinds import Processor
from ...state.checkpoints import Step, steps_of
from ...state.store import Offsets, ShardState
from ...transport.bus import Bucket, Bus, CategorySpec, Outgoing, Position
from .shard import Sealed

READ_WAIT_S = 1.0

_CHANGE = b"k"
_POSITION = b"p"
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Offsets).decode


def changelog_of(processor: type[Processor]) -> CategorySpec | None:
    """Return the category that holds a processor's changelog; None where it needs none."""
    if Step.LOG_CHANGES not in steps_of(processor):
        return None
    return CategorySpec(f"{processor.name}.changelog", processor.inputs()[0].buckets, compacted=True)


def logged(sealed: Sealed) -> Iterator[Outgoing]:
    """Give the messages that say what a checkpoint does to a shard."""
    return logged_changes(sealed.changes.items(), sealed.standing, sealed.number)


def logged_changes(changes: Iterable[tuple[bytes, bytes | None]], position: Offsets, number: int) -> Iterator[Outgoing]:
    """Give the messages that say what changes in a shard's state, and how far it is then."""
    for key, value in changes:
        yield Outgoing(_CHANGE + key, value, number)
    yield Outgoing(_POSITION, _encode(position), number)


def keys_in(bus: Bus, changelog: str, number: int) -> set[bytes]:
    """Return the keys that a changelog gives a value in an empty state."""
    found: set[bytes] = set()
    for changes, _ in _stretches(bus, Bucket(changelog, number), 0):
        found.update(key for key, value in changes.items() if value is not None)
        found.difference_update(key for key, value in changes.items() if value is None)
    return found


def replay(bus: Bus, changelog: str, number: int, state: ShardState) -> None:
    """Bring a state up to what the last committed checkpoint made of it.

    May be broken off anywhere and done again: the state's own position moves last.
    """
    bucket = Bucket(changelog, number)
    begin = state.position().get(changelog, 0)
    position: Offsets = {}
    for changes, reached in _stretches(bus, bucket, begin):
        state.save(changes)
        position.update(reached)
    if position:
        state.save_position(position)


def _stretches(bus: Bus, bucket: Bucket, begin: int) -> Iterator[tuple[Changes, Offsets]]:
    """Read a changelog to its end, batch by batch: changes, and the position that holds with them."""
    reader = bus.scanner([Position(bucket, begin)])
    try:
        while True:
            polled = reader.poll(READ_WAIT_S)
            for batch in polled.batches:
                changes: Changes = {}
                reached: Offsets = {bucket.category: batch.next_offset}
                for message in batch.messages:
                    key, value = message.key() or b"", message.value()
                    if key == _POSITION:
                        reached.update(_decode(value or b""))
                    else:
                        changes[key[len(_CHANGE) :]] = value
                yield changes, reached
            if polled.ended:
                return
    finally:
        reader.close()
