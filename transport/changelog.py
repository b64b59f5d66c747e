"""The changelog of a shard's state on the bus, written in the same transactions as the group's positions.

A processor has a changelog if its outputs must be exactly-once and reading the events again may produce another state: with several inputs,
whose interleaving varies, with the clock or upstream watermarks, or if it is declared non-deterministic. The bus compacts the changelog to
the last change of each key.

    key   b"k" and the state's key, value its bytes or none      a change
    key   b"p", value the position as MessagePack                 the position of the state after the changes before it

When a maintenance operation replaces a state, one transaction rewrites the changelog: it deletes the keys that the state lacks, writes the keys
of the state, and its position last. A worker that is behind in the changelog then reaches the new state, as after any checkpoint. Deleting and
creating the changelog would be two steps: a worker between them would restore an empty state.

A changed declaration may give a processor a changelog that lacks its state. Its worker writes the whole state first.
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
"""How long the transaction of a whole state may stay open."""

DELETIONS = timedelta(days=30)
"""How long the changelog keeps deletions. A state that is further behind is rebuilt from the whole changelog."""

_CHANGE = b"k"
_POSITION = b"p"
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(StatePosition).decode


def changelog_spec(processor: type[Processor]) -> CategorySpec:
    """Return the category of a processor's changelog."""
    return CategorySpec(
        f"{processor.name}.changelog", processor.inputs()[0].buckets, compacted=True, delete_retention=DELETIONS
    )


def logged_changes(
    changes: Iterable[tuple[bytes, bytes | None]], position: StatePosition, number: int
) -> Iterator[Outgoing]:
    """Yield the messages of changes of a shard's state, then of its position."""
    for key, value in changes:
        yield Outgoing(_CHANGE + key, value, number)
    yield Outgoing(_POSITION, _encode(position), number)


def changelog_batches(bus: Bus, bucket: Bucket, begin: int) -> Iterator[tuple[Changes, StatePosition]]:
    """Read a changelog to its end: yield the changes of each batch, and the position after them."""
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


def changelog_position(bus: Bus, bucket: Bucket) -> StatePosition:
    """Return the position of the state in a changelog's bucket; empty if it has none."""
    position = StatePosition()
    for _, reached in changelog_batches(bus, bucket, 0):
        position = position.updated(reached)
    return _without_changelog(position)


def rewrite_changelog_bucket(
    bus: Bus,
    changelog: str,
    number: int,
    items: Iterable[tuple[bytes, bytes]],
    position: StatePosition,
    *,
    member: Reader | None = None,
    commits: Sequence[Position] = (),
) -> None:
    """Rewrite a bucket of a changelog so that replaying it produces a state. May be repeated, also after a crash.

    Args:
        bus: the bus.
        changelog: the changelog's category.
        number: the bucket.
        items: the keys and values of the state.
        position: the position of the state.
        member: the member of the processor's group that owns the bucket; None for a group without members.
        commits: the positions to commit in the same transaction, which fails if the member has lost the bucket.
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
    """Return the keys with a value in a changelog."""
    found: set[bytes] = set()
    for changes, _ in changelog_batches(bus, bucket, 0):
        found.update(key for key, value in changes.items() if value is not None)
        found.difference_update(key for key, value in changes.items() if value is None)
    return found
