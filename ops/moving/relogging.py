"""A changelog told that a state is another now: what it makes of an empty state is, from then on, that state.

What the state lacks is removed, what it has is written, and its position last, all in one transaction: the changelog goes on, and
whoever is behind in it comes to the state, as after any checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing

from ...state.store import Offsets
from ...transport.bus import Bus
from ..working.changelog import keys_in, logged_changes

TIMEOUT_S = 600.0
"""How long the transaction may stay open."""


def rewrite(bus: Bus, changelog: str, bucket: int, items: Iterable[tuple[bytes, bytes]], position: Offsets) -> None:
    """Make a changelog's bucket give a state.

    Args:
        bus: where it is.
        changelog: its category.
        bucket: which.
        items: what the state holds.
        position: what it reflects.
    """
    before = keys_in(bus, changelog, bucket)

    def changes() -> Iterator[tuple[bytes, bytes | None]]:
        for key, value in items:
            before.discard(key)
            yield key, value
        for key in sorted(before):
            yield key, None

    with closing(bus.transactional_writer(f"{changelog}.{bucket}.moved", None, TIMEOUT_S)) as writer:
        writer.send(changelog, logged_changes(changes(), position, bucket))
        writer.commit([])
