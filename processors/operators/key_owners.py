"""The key that owns an entry of a shard's saved state.

States, windows, timers, buffered events and histories belong to one key each. The event time and the schedules belong to the whole shard.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ..declare import Aggregator, Processor, Stateful, plan_of
from ..keyed_state import key_layout
from ..models import decode_model
from ..time import Session, Sliding

EntryKeyReader = Callable[[bytes, bytes], "bytes | None"]
"""Returns the key that owns an entry, from the entry's own key and value; None for an entry of the whole shard."""

_PREFIX_LENGTH = len(key_layout.EVENT_TIMERS)
_TIME_LENGTH = 8
_decode_buffered = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw]).decode


def entry_key_reader(processor: type[Processor]) -> EntryKeyReader:
    """Return the function that finds the owner of each entry in a processor's saved state."""
    readers = {**_engine_readers(processor), key_layout.EVENT_TIMES: _no_key, key_layout.SCHEDULES: _no_key}
    in_window = issubclass(processor, Aggregator) and not plan_of(processor).windows_follow_events
    own_reader = _key_of_window if in_window else _whole_entry

    def find(entry: bytes, value: bytes) -> bytes | None:
        if entry < key_layout.ENGINE_PREFIX:
            return own_reader(entry, value)
        return readers[entry[:_PREFIX_LENGTH]](entry, value)

    return find


def _engine_readers(processor: type[Processor]) -> dict[bytes, EntryKeyReader]:
    if issubclass(processor, Stateful):
        return {
            key_layout.CHUNKS_OF: _after_prefix,
            key_layout.CHUNKS: _after_time,
            key_layout.EVENT_TIMERS: _first_of_pair,
            key_layout.WALL_TIMERS: _first_of_pair,
            key_layout.EVENT_TIMERS_OF: _after_prefix,
            key_layout.WALL_TIMERS_OF: _after_prefix,
            key_layout.BUFFERED_EVENTS: _key_of_buffered_event(processor),
        }
    if issubclass(processor, Aggregator) and isinstance(processor.window, Session):
        return {key_layout.EVENT_TIMERS: _first_of_pair}
    if issubclass(processor, Aggregator) and isinstance(processor.window, Sliding):
        return dict.fromkeys(
            (key_layout.EVENT_TIMERS, key_layout.BUFFERED_EVENTS, key_layout.SLIDING_VALUES), _after_time
        )
    return {key_layout.EARLY_RESULTS: _after_time}


def _no_key(entry: bytes, value: bytes) -> None:  # noqa: ARG001 - an EntryKeyReader
    return


def _whole_entry(entry: bytes, value: bytes) -> bytes:  # noqa: ARG001 - an EntryKeyReader
    return entry


def _key_of_window(entry: bytes, value: bytes) -> bytes:  # noqa: ARG001 - an EntryKeyReader
    return entry[_TIME_LENGTH:]


def _after_prefix(entry: bytes, value: bytes) -> bytes:  # noqa: ARG001 - an EntryKeyReader
    return entry[_PREFIX_LENGTH:]


def _after_time(entry: bytes, value: bytes) -> bytes:  # noqa: ARG001 - an EntryKeyReader
    return entry[_PREFIX_LENGTH + _TIME_LENGTH :]


def _first_of_pair(entry: bytes, value: bytes) -> bytes:
    return key_layout.decode_pair(_after_time(entry, value))[0].encode()


def _key_of_buffered_event(processor: type[Processor]) -> EntryKeyReader:
    """Return a function that decodes a buffered event to find its key: the entry contains only its time and a hash."""
    inputs = plan_of(processor).inputs
    decoders = [msgspec.msgpack.Decoder(category.record, dec_hook=decode_model).decode for category in inputs]

    def find(entry: bytes, value: bytes) -> bytes:
        number = entry[_PREFIX_LENGTH + _TIME_LENGTH]
        event = decoders[number](_decode_buffered(value)[1])
        return inputs[number].keys_of([event])[0].encode()

    return find
