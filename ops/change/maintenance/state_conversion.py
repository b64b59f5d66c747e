"""Conversion of each key's saved state by a user's function.

saved bytes --plain values--> the function --checked against the declared type--> saved bytes

Entries beside the keys' own states (timers, held events, event time) stay as they are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import msgspec

from ....processors import AppFileError, PenstockError
from ....processors.apps import imported, where_in
from ....processors.declare import Stateful, plan_of
from ....processors.keyed_state import ENGINE_PREFIX
from ....processors.models import decode_model, encode_model
from ....processors.operators import whole_states
from ....state.local import RocksShardState

EXAMPLE = "def upgraded(key, state): return {...}"
SHOWN_CHARACTERS = 300
"""The longest value in an error message."""
_plain = msgspec.msgpack.Decoder().decode


class UserFunctionFailed(PenstockError):
    """A user's function raised, or returned a value of another type. Nothing was changed: correct the function."""


@dataclass(frozen=True)
class StateFunction:
    """A function that converts a key's state; None drops the state.

    Args:
        path: its file.
        name: its name in that file.
        call: the function.
    """

    path: Path
    name: str
    call: Callable[[str, Any], Any]

    def __str__(self) -> str:
        return f"{self.path}:{self.name}"

    def where(self, error: Exception) -> str:
        """Return the line of the file that raised an error, as the start of a message."""
        return where_in(self.path, error)


def load_function(text: str) -> StateFunction:
    """Import a function that a user named.

    Args:
        text: `upgrade.py:upgraded`.

    Raises:
        AppFileError: the function does not exist, or does not take a key and a state.
    """
    file, _, name = text.rpartition(":")
    if not file or not name:
        raise AppFileError(
            f"--by {text}: name a function as FILE:FUNCTION, such as upgrade.py:upgraded, with `{EXAMPLE}` in that file."
        )
    path = Path(file)
    call = getattr(imported(path, "file", "upgrade.py"), name, None)
    if not callable(call):
        raise AppFileError(f"There is no function {name!r} in {path}. Write one: `{EXAMPLE}`.")
    if not _takes_two(call):
        raise AppFileError(f"{path}:{name} does not take a key and a state. Write it as `{EXAMPLE}`.")
    return StateFunction(path, name, call)


def _takes_two(call: Callable[..., Any]) -> bool:
    try:
        inspect.signature(call).bind("key", None)
    except TypeError:
        return False
    except ValueError:
        return True  # the signature is unknown
    return True


@dataclass(frozen=True)
class Example:
    """The conversion of one key's state.

    Args:
        key: the key.
        before: the saved state, as plain values.
        after: the new state; None if it is dropped.
    """

    key: str
    before: Any
    after: Any


@dataclass
class ConversionCounts:
    """The progress of a conversion.

    Args:
        keys: the number of keys with a state.
        dropped: the number of keys whose state was dropped.
    """

    keys: int = 0
    dropped: int = 0

    def add(self, other: ConversionCounts) -> None:
        """Add the counts of another conversion."""
        self.keys += other.keys
        self.dropped += other.dropped


class StateConversion:
    """Converts one shard's states, and counts them.

    Args:
        processor: whose states; new states must be of its declared type.
        function: converts one state.
    """

    def __init__(self, processor: type[Stateful], function: StateFunction) -> None:
        self._processor = processor
        self._function = function
        self._typed = msgspec.msgpack.Decoder(processor.state, dec_hook=decode_model).decode
        self._encode = msgspec.msgpack.Encoder(enc_hook=encode_model).encode
        self.counts = ConversionCounts()

    def convert(self, entries: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        """Yield the new entries of a state.

        Raises:
            UserFunctionFailed: the function raised, or returned a value of another type; with the key and its state.
        """
        counts = self.counts
        for key, saved in entries:
            if key >= ENGINE_PREFIX:
                yield key, saved
                continue
            after = self._converted(key.decode(), saved)
            counts.keys += 1
            if after is None:
                counts.dropped += 1
            else:
                yield key, after

    def example(self, key: bytes, saved: bytes) -> Example:
        """Return the conversion of one key, as plain values."""
        after = self._converted(key.decode(), saved)
        return Example(key.decode(), _plain(saved), None if after is None else _plain(after))

    def _converted(self, key: str, saved: bytes) -> bytes | None:
        after = plan_of(self._processor).map_states(_plain(saved), lambda state: self._call(key, state, saved))
        return None if after is None else self._encode(after)

    def _call(self, key: str, state: Any, saved: bytes) -> Any:
        try:
            after = self._function.call(key, state)
        except Exception as error:
            where = self._function.where(error)
            raise self._failed(key, saved, f"raised {where}{type(error).__name__}: {error}") from error
        if after is None:
            return None
        try:
            # Through bytes: a dict with a record's fields becomes that record, and is saved as one.
            return self._typed(self._encode(after))
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
            reason = f"returned {_shorten(after)}, which is not of the type that {self._processor.__name__} declares ({error})"
            raise self._failed(key, saved, reason) from error

    def _failed(self, key: str, saved: bytes, reason: str) -> UserFunctionFailed:
        return UserFunctionFailed(
            f"{self._function} {reason}, for key {key!r} of {self._processor.name}. Its saved state is {_shorten(_plain(saved))}. Nothing was "
            "changed. Correct the function, and repeat the command."
        )


def fits(processor: type[Stateful], state: RocksShardState) -> bool:
    """Return whether all saved values of a state decode as declared."""
    decode = msgspec.msgpack.Decoder(plan_of(processor).saved_type, dec_hook=decode_model).decode
    try:
        for _, saved in own_entries(processor, state):
            decode(saved)
    except msgspec.MsgspecError:
        return False
    return True


def own_entries(processor: type[Stateful], state: RocksShardState) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys' own entries, in order of keys."""
    return takewhile(lambda entry: entry[0] < ENGINE_PREFIX, whole_states(processor, state, state.items()))


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]} …"
