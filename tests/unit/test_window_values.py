"""Values of windows in memory are those of the saved state."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from penstock.processors.keyed_state import EVENT_TIMES, Changes, WindowValues, encode_window_key


class SavedState:
    """A saved state that counts the keys that were searched."""

    def __init__(self) -> None:
        self.saved: Changes = {EVENT_TIMES: b"0"}
        self.searched = 0

    def fetch(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.searched += len(keys)
        return [self.saved.get(key) for key in keys]

    def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        items = [(key, value) for key, value in sorted(self.saved.items()) if start <= key < end and value is not None]
        return items[:limit]


KEYS = st.builds(encode_window_key, st.sampled_from("abcdef"), st.integers(-3, 12))
CHECKPOINTS = st.lists(st.lists(KEYS, unique=True, max_size=10), max_size=25)


@given(before=st.lists(KEYS), checkpoints=CHECKPOINTS, limit_bytes=st.integers(0, 6_000), part=st.integers(1, 10))
def test_values_are_those_of_the_saved_state(
    before: list[bytes], checkpoints: list[list[bytes]], limit_bytes: int, part: int
) -> None:
    """Any values were saved before, in any order of windows, for all sizes of the memory. A checkpoint fetches values in parts."""
    state = SavedState()
    state.saved |= dict.fromkeys(before, b"before")
    values = WindowValues(state, limit_bytes)
    for number, keys in enumerate(checkpoints):
        for at in range(0, len(keys), part):
            assert values.fetch(keys[at : at + part]) == [state.saved.get(key) for key in keys[at : at + part]]
        changes: Changes = dict.fromkeys(keys, b"%d" % number)
        state.saved |= changes
        values.add(changes)


def test_neither_new_windows_nor_recent_values_are_searched() -> None:
    """After a restart, each key of an old window is searched once."""
    state = SavedState()
    old, new = ([encode_window_key(key, start) for key in "abc"] for start in (10, 20))
    state.saved |= dict.fromkeys(old, b"before")
    values = WindowValues(state)
    searches = []
    for keys in (old, new, new, [*old, *new]):
        values.fetch(keys)
        values.add(dict.fromkeys(keys, b"after"))
        searches.append(state.searched)

    assert searches == [3, 3, 3, 3]


def test_memory_is_limited() -> None:
    """Older values are forgotten."""
    state = SavedState()
    values = WindowValues(state, limit_bytes=100_000)
    for start in range(100):
        keys = [encode_window_key(str(key), start) for key in range(50)]
        values.fetch(keys)
        values.add(dict.fromkeys(keys, b"value"))

    assert len(values._recent) + len(values._older) < 1_000
