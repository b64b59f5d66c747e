"""What is saved of each key, changed by a function of the user's into what is declared now.

saved bytes --plain values--> the function --checked against the declared type--> saved bytes

What lies beside keys' own states (timers, held events, how far event time is) stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from ...processors.declare.stateful import Stateful
from ...processors.errors import PenstockError
from ...processors.keyed_state.key_layout import SIDE
from ...state.local.rocksdb import RocksShardState
from .user_function import StateFunction

SHOWN_CHARACTERS = 300
"""How much of a value an error shows."""
_plain = msgspec.msgpack.Decoder().decode


class UserFunctionFailed(PenstockError):
    """A function that was to change states raised, or gave what does not fit: mend it; nothing was changed."""


@dataclass(frozen=True)
class Example:
    """What becomes of a key.

    Args:
        key: which.
        before: what is saved of it, as plain values.
        after: what will be; None for nothing.
    """

    key: str
    before: Any
    after: Any


@dataclass
class ConversionCounts:
    """How much was changed so far.

    Args:
        keys: of how many keys there was a state.
        dropped: how many of them have none any more.
    """

    keys: int = 0
    dropped: int = 0

    def add(self, other: ConversionCounts) -> None:
        """Count what was changed elsewhere, too."""
        self.keys += other.keys
        self.dropped += other.dropped


class StateConversion:
    """Changes one shard's states as a function says, and counts them.

    Args:
        processor: whose states; what they become has to be of the type that it declares.
        function: says what a state becomes.
    """

    def __init__(self, processor: type[Stateful], function: StateFunction) -> None:
        self._processor = processor
        self._function = function
        self._typed = msgspec.msgpack.Decoder(processor.state).decode
        self._encode = msgspec.msgpack.Encoder().encode
        self.counts = ConversionCounts()

    def changed(self, entries: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        """Give what entries of a state become.

        Raises:
            UserFunctionFailed: the function raised, or what it returned is not of the declared type; with the key and its state.
        """
        counts = self.counts
        for key, saved in entries:
            if key >= SIDE:
                yield key, saved
                continue
            after = self._of(key.decode(), saved)
            counts.keys += 1
            if after is None:
                counts.dropped += 1
            else:
                yield key, after

    def example(self, key: bytes, saved: bytes) -> Example:
        """Return what becomes of a key, for people."""
        after = self._of(key.decode(), saved)
        return Example(key.decode(), _plain(saved), None if after is None else _plain(after))

    def _of(self, key: str, saved: bytes) -> bytes | None:
        after = self._processor.map_states(_plain(saved), lambda state: self._state(key, state, saved))
        return None if after is None else self._encode(after)

    def _state(self, key: str, state: Any, saved: bytes) -> Any:
        try:
            after = self._function.call(key, state)
        except Exception as error:
            where = self._function.where(error)
            raise self._failed(key, saved, f"raised {where}{type(error).__name__}: {error}") from error
        if after is None:
            return None
        try:
            # By way of bytes: a dict is taken for the record that it has the fields of, and is saved as that would be.
            return self._typed(self._encode(after))
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
            reason = (
                f"returned {_shown(after)}, which is not of the type that {self._processor.__name__} declares ({error})"
            )
            raise self._failed(key, saved, reason) from error

    def _failed(self, key: str, saved: bytes, reason: str) -> UserFunctionFailed:
        return UserFunctionFailed(
            f"{self._function} {reason}, for key {key!r} of {self._processor.name}, of which is saved: {_shown(_plain(saved))}. Nothing was "
            "changed. Mend the function, and give the command again."
        )


def fits(processor: type[Stateful], state: RocksShardState) -> bool:
    """Tell whether all that is saved in a state decodes as its processor declares it."""
    decode = msgspec.msgpack.Decoder(processor.saved_type()).decode
    try:
        for _, saved in own_entries(state):
            decode(saved)
    except msgspec.MsgspecError:
        return False
    return True


def own_entries(state: RocksShardState) -> Iterator[tuple[bytes, bytes]]:
    """Give what is saved of keys themselves, in order of keys."""
    for key, saved in state.items():
        if key >= SIDE:
            return
        yield key, saved


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]} …"
