"""The changelog: what checkpoints did to a shard's state, on the bus, in the same transactions as the group's positions.

It is kept where nothing may be written twice, and reading the events again would not give the same state: several inputs, which come
interleaved otherwise each time, what depends on the clock or on promises, or a processor that says it is not deterministic. The bus
compacts it to the last change of each key.

    key   b"k" and the state's key, value its bytes or none      a change
    key   b"p", value the position as MessagePack                 how far the state is with the changes before it

Where a state is put in place from outside, the changelog is told: what the state lacks is removed, what it has is written, and its position
last, all in one transaction. The changelog goes on, and whoever is behind in it comes to the state, as after any checkpoint. To delete it and
begin another would be two steps: who came in between would take a state of nothing for the one that was committed.

A processor that is declared otherwise than before may have a state that its changelog was not told. Its worker tells the whole state first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import timedelta

import msgspec

from ..processors.declare.processor import Processor
from ..processors.keyed_state.changes import Changes
from ..processors.shard.position import StatePosition
from .bus import Bus, Reader
from .category_spec import CategorySpec
from .messages import Bucket, Outgoing, Position

READ_WAIT_S = 1.0
TIMEOUT_S = 600.0
"""How long a transaction may stay open that tells of a whole state."""

DELETIONS = timedelta(days=30)
"""How long it is kept that a key was deleted: a state that is further behind is made anew of the whole changelog."""

_CHANGE = b"k"
_POSITION = b"p"
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(StatePosition).decode


def changelog_spec(processor: type[Processor]) -> CategorySpec:
    """Return the category of a processor's changelog, for those that have one."""
    return CategorySpec(
        f"{processor.name}.changelog", processor.inputs()[0].buckets, compacted=True, deletions=DELETIONS
    )


def logged_changes(
    changes: Iterable[tuple[bytes, bytes | None]], position: StatePosition, number: int
) -> Iterator[Outgoing]:
    """Give the messages that say what changes in a shard's state, and how far it is then."""
    for key, value in changes:
        yield Outgoing(_CHANGE + key, value, number)
    yield Outgoing(_POSITION, _encode(position), number)


def offset_ranges(bus: Bus, bucket: Bucket, begin: int) -> Iterator[tuple[Changes, StatePosition]]:
    """Read a changelog to its end, batch by batch: changes, and the position that holds with them."""
    reader = bus.scanner([Position(bucket, begin)])
    try:
        while True:
            polled = reader.poll(READ_WAIT_S)
            for batch in polled.batches:
                changes: Changes = {}
                reached = StatePosition(changelog_offset=batch.next_offset)
                for message in batch.messages:
                    key, value = message.key() or b"", message.value()
                    if key == _POSITION:
                        reached = reached.updated(_decode(value or b""))
                    else:
                        changes[key[len(_CHANGE) :]] = value
                yield changes, reached
            if polled.ended:
                return
    finally:
        reader.close()


def told_position(bus: Bus, bucket: Bucket) -> StatePosition:
    """Return what the state reflects that a changelog's bucket gives: nothing where it was never told of one."""
    position = StatePosition()
    for _, reached in offset_ranges(bus, bucket, 0):
        position = position.updated(reached)
    return _without_changelog(position)


def rewrite(
    bus: Bus,
    changelog: str,
    number: int,
    items: Iterable[tuple[bytes, bytes]],
    position: StatePosition,
    *,
    member: Reader | None = None,
    commits: Sequence[Position] = (),
) -> None:
    """Make a changelog's bucket give a state. May be repeated, also where it died.

    Args:
        bus: where it is.
        changelog: its category.
        number: which bucket.
        items: what the state holds.
        position: what it reflects.
        member: the member of the processor's group that owns the bucket; None where the group has none.
        commits: the positions that it commits in the same transaction, so that nobody who has lost the bucket writes.
    """
    before = _keys_in(bus, Bucket(changelog, number))

    def changes() -> Iterator[tuple[bytes, bytes | None]]:
        for key, value in items:
            before.discard(key)
            yield key, value
        for key in sorted(before):
            yield key, None

    with closing(bus.transactional_writer(f"{changelog}.{number}.moved", member, TIMEOUT_S, [changelog])) as writer:
        writer.send(changelog, logged_changes(changes(), _without_changelog(position), number))
        writer.commit(commits)


def _without_changelog(position: StatePosition) -> StatePosition:
    return msgspec.structs.replace(position, changelog_offset=0)


def _keys_in(bus: Bus, bucket: Bucket) -> set[bytes]:
    """Return the keys that a changelog gives a value in an empty state."""
    found: set[bytes] = set()
    for changes, _ in offset_ranges(bus, bucket, 0):
        found.update(key for key, value in changes.items() if value is not None)
        found.difference_update(key for key, value in changes.items() if value is None)
    return found
