"""The older buffered events of a join's keys, in entries of their own over the saved state.

A checkpoint therefore writes the newest events of a key and the chunks that have changed, regardless of the number of buffered events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from ..declare import BufferedEvent, BufferedSide, Buffers, Chunk, Join, Processor
from ..keyed_state import Changes, SavedValues, key_layout
from ..models import decode_model, encode_model

_Value = TypeVar("_Value", bytes, "bytes | None")


class _Numbers(NamedTuple):
    """The numbers of the chunks of a key, in order, of the left and of the right category."""

    left: list[int]
    right: list[int]


_NONE = _Numbers([], [])
_encode_plain = msgspec.msgpack.Encoder().encode
_decode_numbers = msgspec.msgpack.Decoder(_Numbers).decode
_decode_parts = msgspec.msgpack.Decoder(tuple[list[msgspec.Raw], list[msgspec.Raw]]).decode
_decode_part = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


class BufferChunks:
    """The chunks of the keys of a shard whose buffers are in memory.

    Args:
        join: the processor.
        saved: the shard's state, including all drained changes.
    """

    def __init__(self, join: type[Join[Any, Any, Any]], saved: SavedValues) -> None:
        self._saved = saved
        self._decoders = [
            msgspec.msgpack.Decoder(list[tuple[int, bool, category.record]], dec_hook=decode_model).decode  # type: ignore[name-defined]  # a dynamic type
            for category in (join.left, join.right)
        ]
        self._encode = msgspec.msgpack.Encoder(enc_hook=encode_model).encode
        self._sizes: dict[bytes, int] = {}
        self._numbers: dict[str, _Numbers] = {}
        self.size_bytes = 0
        """The encoded size of all chunks in memory."""

    def complete(self, newest: Mapping[str, Any]) -> dict[str, Buffers]:
        """Return the buffers of some keys, from the events that are saved with each key."""
        all_numbers = _numbers_of(self._saved, list(newest))
        self._numbers |= {key: numbers for key, numbers in all_numbers.items() if numbers != _NONE}
        chunks = _chunks_of(self._saved, all_numbers)
        for entry, chunk in chunks.items():
            self._note_size(entry, len(chunk))

        def side(key: str, number: int, events: Iterable[Any]) -> BufferedSide:
            in_chunks = [(at, chunks[_chunk_key(key, number, at)]) for at in all_numbers[key][number]]
            return self._side(number, in_chunks, events)

        return {key: Buffers(side(key, 0, left), side(key, 1, right)) for key, (left, right) in newest.items()}

    def drain(self, changed: Mapping[str, Buffers | None]) -> Changes:
        """Return the changes of the chunks of some keys. Their buffers keep few events outside of chunks."""
        written: Changes = {}
        for key, buffers in changed.items():
            if buffers is None:
                written |= self._numbered(key, _NONE)
                continue
            buffers.settled()
            sides = (buffers.left, buffers.right)
            for side in sides:
                side.form_chunks()
            written |= self._numbered(key, _Numbers(*([chunk.number for chunk in side.chunks] for side in sides)))
            for number, side in enumerate(sides):
                for at, events in side.unsaved_chunks():
                    entry, chunk = _chunk_key(key, number, at), self._encode(events)
                    written[entry] = chunk
                    self._note_size(entry, len(chunk))
        return written

    def forget(self) -> None:
        """Forget all keys, whose buffers have left the memory."""
        self._numbers.clear()
        self._sizes.clear()
        self.size_bytes = 0

    def _numbered(self, key: str, numbers: _Numbers) -> Changes:
        """Return the changes for the numbers of a key's chunks: of their list, and of chunks that no longer exist."""
        before = self._numbers.get(key, _NONE)
        if numbers == before:
            return {}
        removed: Changes = {
            _chunk_key(key, side, number): None
            for side, (old, new) in enumerate(zip(before, numbers, strict=True))
            for number in set(old).difference(new)
        }
        for entry in removed:
            self._note_size(entry, 0)
        if numbers == _NONE:
            del self._numbers[key]
            return {_numbers_key(key): None, **removed}
        self._numbers[key] = numbers
        return {_numbers_key(key): _encode_plain(numbers), **removed}

    def _side(self, side: int, chunks: Sequence[tuple[int, bytes]], newest: Iterable[Any]) -> BufferedSide:
        decode, events, kept = self._decoders[side], list[BufferedEvent](), list[Chunk]()
        for number, chunk in chunks:
            in_chunk = decode(chunk)
            events += (BufferedEvent(*one) for one in in_chunk)
            kept.append(Chunk(number, len(in_chunk), is_saved=True))
        events += (BufferedEvent(*one) for one in newest)
        return BufferedSide(events, kept)

    def _note_size(self, entry: bytes, size: int) -> None:
        self.size_bytes += size - self._sizes.pop(entry, 0)
        if size:
            self._sizes[entry] = size


def whole_states(
    processor: type[Processor], saved: SavedValues, entries: Iterable[tuple[bytes, _Value]]
) -> Iterator[tuple[bytes, _Value]]:
    """Yield entries of a saved state as if it had no chunks: each key of a join has all of its events.

    Args:
        processor: the owner of the state.
        saved: the state.
        entries: some of its entries, in any order.
    """
    if not issubclass(processor, Join):
        yield from entries
        return
    for key, value in entries:
        if key < key_layout.ENGINE_PREFIX and value is not None:
            yield key, _whole(saved, key.decode(), value)
        elif not key.startswith((key_layout.CHUNKS_OF, key_layout.CHUNKS)):
            yield key, value


def _whole(saved: SavedValues, key: str, state: bytes) -> bytes:
    numbers = _numbers_of(saved, [key])
    if numbers[key] == _NONE:
        return state
    chunks = _chunks_of(saved, numbers)
    sides = [
        [event for number in of_side for event in _decode_part(chunks[_chunk_key(key, side, number)])]
        for side, of_side in enumerate(numbers[key])
    ]
    return _encode_plain([older + newest for older, newest in zip(sides, _decode_parts(state), strict=True)])


def _numbers_of(saved: SavedValues, keys: Sequence[str]) -> dict[str, _Numbers]:
    found = saved.fetch([_numbers_key(key) for key in keys])
    return {key: _NONE if one is None else _decode_numbers(one) for key, one in zip(keys, found, strict=True)}


def _chunks_of(saved: SavedValues, numbers: Mapping[str, _Numbers]) -> dict[bytes, bytes]:
    entries = [
        _chunk_key(key, side, number)
        for key, of_key in numbers.items()
        for side, of_side in enumerate(of_key)
        for number in of_side
    ]
    return dict(zip(entries, cast("list[bytes]", saved.fetch(entries)), strict=True)) if entries else {}


def _numbers_key(key: str) -> bytes:
    return key_layout.CHUNKS_OF + key.encode()


def _chunk_key(key: str, side: int, number: int) -> bytes:
    return key_layout.CHUNKS + key_layout.encode_time(2 * number + side) + key.encode()
