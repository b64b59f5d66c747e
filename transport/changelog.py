"""The changelog of a shard's state on the bus, written in the same transactions as the group's positions.

A processor has a changelog if its outputs must be exactly-once and reading the events again may produce another state: with several inputs,
whose interleaving varies, with the clock or upstream watermarks, or if it is declared non-deterministic. The bus compacts the changelog to
the last change of each key.

    key   b"k" and the state's key, value its bytes or none      a change
    key   b"p", value the position as MessagePack                 the position of the state after the changes before it

When a maintenance operation replaces a state, it rewrites the changelog: it writes the keys of the state, deletes the keys that the state lacks,
and writes the position last. A worker that is behind in the changelog then reaches the new state, as after any checkpoint. This takes as many
transactions as the state needs, each with a time limit of its own: no worker starts before the operation is complete, and if it dies, its
repetition writes all again. Deleting and creating the changelog would be simpler, but other states would then be ahead of their changelog.

A changed declaration may give a processor a changelog that lacks its state. Its worker writes the whole state first, in the same way. Each of its
transactions also commits positions of the group, the last one those of the state, so it fails if another worker has taken the bucket. If it
dies, the changelog has no position yet: such a changelog contains no state, and the next owner of the state writes it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import timedelta

import msgspec

from ..processors.declare import SIZE_SETTING, Processor, plan_of, size_settings
from ..processors.keyed_state import Changes
from ..processors.shard import StatePosition
from .bus import Bus, Reader, TransactionalWriter
from .category_spec import CategorySpec
from .errors import OffsetOutOfRange
from .messages import Bucket, Outgoing, Position, size_of
from .offset_range import OffsetRange, read_offset_range

TIMEOUT_S = 600.0
"""How long one transaction of a rewrite may stay open."""
PART_BYTES = 64 * 2**20
"""The size of the changes in such a transaction."""

DELETIONS = timedelta(days=30)
"""How long the changelog keeps deletions. A state that is further behind is rebuilt from the whole changelog."""

_CHANGE = b"k"
_POSITION = b"p"
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(StatePosition).decode


def changelog_spec(processor: type[Processor]) -> CategorySpec:
    """Return the category of a processor's changelog."""
    plan = plan_of(processor)
    return CategorySpec(
        f"{processor.name}.changelog",
        plan.inputs[0].buckets,
        compacted=True,
        delete_retention=DELETIONS,
        settings=size_settings([*plan.sources, *plan.outputs]),
        preferred=frozenset({SIZE_SETTING}),
    )


def logged_changes(
    changes: Iterable[tuple[bytes, bytes | None]], position: StatePosition, number: int
) -> Iterator[Outgoing]:
    """Yield the messages of changes of a shard's state, then of its position."""
    for key, value in changes:
        yield Outgoing(_CHANGE + key, value, number)
    yield Outgoing(_POSITION, _encode(position), number)


def changelog_batches(bus: Bus, bucket: Bucket, begin: int) -> Iterator[tuple[Changes, StatePosition]]:
    """Read a changelog to its present end: yield the changes of each batch, and the position after them.

    Raises:
        OffsetOutOfRange: the changelog ends before `begin`.
        BusUnreachable: the bus sent nothing for too long.
    """
    end = bus.catalog.stable_ends(bucket.category)[bucket.number]
    if begin > end:
        raise OffsetOutOfRange(
            f"{bucket}: the changelog ends at offset {end:,}, and the state on this disk contains it up to {begin:,}. It was deleted, or a broker has "
            "lost messages. Nothing was read or changed."
        )
    for batch in read_offset_range(bus, OffsetRange(bucket, begin, end)):
        changes: Changes = {}
        reached = StatePosition(changelog_offset=batch.next_offset)
        for message in batch.messages:
            key, value = message.key() or b"", message.value()
            if key == _POSITION:
                reached = reached.updated(_decode(value or b""))
            else:
                changes[key[len(_CHANGE) :]] = value
        yield changes, reached


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
    committed: Sequence[Position] = (),
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
        committed: with a member, the group's positions of the bucket, which all transactions but the last commit once more. They fail if the member
            has lost the bucket.
        commits: with a member, the positions that the last one commits.
    """
    before = _keys_in(bus, Bucket(changelog, number))

    def changes() -> Iterator[tuple[bytes, bytes | None]]:
        for key, value in items:
            before.discard(key)
            yield key, value
        for key in sorted(before):
            yield key, None

    with closing(bus.transactional_writer(f"{changelog}.{number}.moved", member, TIMEOUT_S, [changelog])) as writer:
        parts = _parts(logged_changes(changes(), _without_changelog(position), number))
        part = next(parts)
        for following in parts:
            _commit_part(writer, changelog, part, committed)
            part = following
        _commit_part(writer, changelog, part, commits)


def _commit_part(
    writer: TransactionalWriter, changelog: str, part: Sequence[Outgoing], positions: Sequence[Position]
) -> None:
    writer.send(changelog, part)
    writer.flush()  # without the time limit of a commit
    writer.commit(positions)


def _parts(messages: Iterable[Outgoing]) -> Iterator[list[Outgoing]]:
    part: list[Outgoing] = []
    size = 0
    for message in messages:
        part.append(message)
        size += size_of(message)
        if size >= PART_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def _without_changelog(position: StatePosition) -> StatePosition:
    return msgspec.structs.replace(position, changelog_offset=0)


def _keys_in(bus: Bus, bucket: Bucket) -> set[bytes]:
    """Return the keys with a value in a changelog."""
    found: set[bytes] = set()
    for changes, _ in changelog_batches(bus, bucket, 0):
        found.update(key for key, value in changes.items() if value is not None)
        found.difference_update(key for key, value in changes.items() if value is None)
    return found
