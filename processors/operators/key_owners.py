"""Whose an entry of a shard's saved state is: the key that it is kept for, whatever it is kept under.

States and windows, timers, what is held and what trails all belong to one key; only how far event time is belongs to the shard.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ..declare.aggregator import Aggregator
from ..declare.processor import Processor
from ..declare.stateful import Stateful
from ..keyed_state import key_layout
from ..time.windows import Session, Sliding

EntryKeyReader = Callable[[bytes, bytes], "bytes | None"]
"""Gives the key of an entry, from what it is kept under and its value; None where it is the shard's."""

_SPACE = len(key_layout.EVENT_TIMERS)
_TIME = 8
_decode_held = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw]).decode


def entry_key_reader(processor: type[Processor]) -> EntryKeyReader:
    """Return what tells the key of each entry that shards of a processor save."""
    places = {**_places(processor), key_layout.EVENT_TIMES: _nobody}
    own = _in_slot if issubclass(processor, Aggregator) and not processor.windows_follow_events() else _itself

    def find(entry: bytes, value: bytes) -> bytes | None:
        return own(entry, value) if entry < key_layout.ENGINE_PREFIX else places[entry[:_SPACE]](entry, value)

    return find


def _places(processor: type[Processor]) -> dict[bytes, EntryKeyReader]:
    if issubclass(processor, Stateful):
        return {
            key_layout.EVENT_TIMERS: _first_of_pair,
            key_layout.WALL_TIMERS: _first_of_pair,
            key_layout.EVENT_TIMERS_OF: _behind_space,
            key_layout.WALL_TIMERS_OF: _behind_space,
            key_layout.BUFFERED_EVENTS: _of_event(processor),
        }
    if issubclass(processor, Aggregator) and isinstance(processor.window, Session):
        return {key_layout.EVENT_TIMERS: _first_of_pair}
    if issubclass(processor, Aggregator) and isinstance(processor.window, Sliding):
        return dict.fromkeys(
            (key_layout.EVENT_TIMERS, key_layout.BUFFERED_EVENTS, key_layout.SLIDING_VALUES), _behind_time
        )
    return {key_layout.EARLY_RESULTS: _behind_time}


def _nobody(entry: bytes, value: bytes) -> None:  # noqa: ARG001 - as all of them
    return


def _itself(entry: bytes, value: bytes) -> bytes:  # noqa: ARG001 - as all of them
    return entry


def _in_slot(entry: bytes, value: bytes) -> bytes:  # noqa: ARG001 - as all of them
    return entry[_TIME:]


def _behind_space(entry: bytes, value: bytes) -> bytes:  # noqa: ARG001 - as all of them
    return entry[_SPACE:]


def _behind_time(entry: bytes, value: bytes) -> bytes:  # noqa: ARG001 - as all of them
    return entry[_SPACE + _TIME :]


def _first_of_pair(entry: bytes, value: bytes) -> bytes:
    return key_layout.decode_pair(_behind_time(entry, value))[0].encode()


def _of_event(processor: type[Processor]) -> EntryKeyReader:
    """Held events lie under their times and hashes: whose they are, they say themselves."""
    inputs = processor.inputs()
    decoders = [msgspec.msgpack.Decoder(category.record).decode for category in inputs]

    def find(entry: bytes, value: bytes) -> bytes:
        number = entry[_SPACE + _TIME]
        event = decoders[number](_decode_held(value)[1])
        return inputs[number].keys_of([event])[0].encode()

    return find
