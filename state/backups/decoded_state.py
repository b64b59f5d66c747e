"""Saved state, decoded as its processor declares it: keys, windows and values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice, takewhile
from typing import Any

import msgspec

from ...processors.declare import Aggregator, Processor, Stateful, plan_of
from ...processors.keyed_state import ENGINE_PREFIX, SavedValues, decode_window_key
from ...processors.models import decode_model
from ...processors.monoids import to_json_value
from ...processors.operators import decode_sessions, decode_tail, whole_states
from ...processors.shard import Offsets, Overlay, StatePosition, is_remote
from ...processors.time import Due, Session, Sliding, Window, pending, saved_watermarks
from ..errors import ForeignState, StateDamaged, StateError
from ..local import RocksShardState

_Saved = tuple[bytes, "bytes | None"]


@dataclass(frozen=True)
class StateEntry:
    """One saved value.

    Args:
        key: its key.
        window: the window of an aggregator's value; None for a stateful processor.
        value: the state, or the monoid's value of the partial, as JSON; None for a deletion.
    """

    key: str
    window: Window | None
    value: Any


@dataclass(frozen=True)
class PreparedDelta:
    """A prepared delta, which is not part of the state until its checkpoint is decided.

    Args:
        before: the position of the state without the delta.
        after: the position of the state with the delta.
        changes: the number of keys that it changes.
        entries: the first changed values.
    """

    before: Offsets
    after: StatePosition
    changes: int
    entries: list[StateEntry]


@dataclass(frozen=True)
class Inspection:
    """The saved state of a shard.

    Args:
        position: the position that the state reflects.
        watermarks: the event-time progress of each input, where known (milliseconds since 1970, UTC).
        timers: the next timers, by clock.
        pending: the prepared delta.
        entries: the first values.
    """

    position: StatePosition
    watermarks: dict[str, int]
    timers: list[Due]
    pending: PreparedDelta | None
    entries: list[StateEntry]


def state_inspector(processor: type[Processor], key: str | None, limit: int) -> Callable[[RocksShardState], Inspection]:
    """Return a function that reads the first saved values of a state in key order, of one key or of all.

    Args:
        processor: the owner of the state.
        key: None for all keys. An aggregator's values are sorted by window start, so one key needs a full scan.
        limit: the greatest number of values.

    Raises:
        StateError: the processor has no local state.
        ForeignState: (from the function) the state belongs to another declaration of the processor.
        StateDamaged: (from the function) a value cannot be decoded.
    """
    decode = _decoder(processor)

    def first(saved: Iterable[_Saved]) -> list[StateEntry]:
        entries = chain.from_iterable(map(decode, saved))
        return list(islice((entry for entry in entries if key in (None, entry.key)), limit))

    def inspect(state: RocksShardState) -> Inspection:
        _expect_shape(processor, state)
        with _explained(processor, state):
            return Inspection(
                state.position(),
                saved_watermarks([category.name for category in plan_of(processor).inputs], state),
                pending(state, key, limit),
                _prepared(processor, state, first),
                first(_saved(processor, state, key)),
            )

    return inspect


def decoded_values(processor: type[Processor], state: SavedValues, saved: Iterable[_Saved]) -> list[StateEntry]:
    """Return saved values, or changes of them, decoded; without timers and other internal entries.

    Args:
        processor: the owner of the state.
        state: the state of which they are a part.
        saved: the values.

    Raises:
        StateError: the processor has no local state.
    """
    decode = _decoder(processor)
    own = (item for item in saved if item[0] < ENGINE_PREFIX)
    return list(chain.from_iterable(map(decode, whole_states(processor, state, own))))


def _prepared(
    processor: type[Processor], state: RocksShardState, first: Callable[[Iterable[_Saved]], list[StateEntry]]
) -> PreparedDelta | None:
    delta = state.prepared()
    if delta is None:
        return None
    own = [(key, value) for key, value in delta.changes.items() if key < ENGINE_PREFIX]
    after = Overlay(state, lambda _, later: later)
    after.add(delta.changes)
    return PreparedDelta(delta.before, delta.after, len(own), first(whole_states(processor, after, own)))


def _decoder(processor: type[Processor]) -> Callable[[_Saved], list[StateEntry]]:
    if is_remote(processor):
        raise StateError(
            f"{processor.__name__} stores its state in PostgreSQL or Redis, not on this machine. Nothing was changed. Read it there, "
            "or with `read_results`."
        )
    if issubclass(processor, Stateful):
        return _stateful_decoder(processor)
    if issubclass(processor, Aggregator) and isinstance(processor.window, Session):
        return _session_decoder(processor(), processor.window.gap_ms)
    if issubclass(processor, Aggregator) and isinstance(processor.window, Sliding):
        return _sliding_decoder(processor())
    if issubclass(processor, Aggregator):
        return _windowed_decoder(processor())
    raise StateError(f"{processor.__name__} has no state, so there is nothing to inspect.")


def _stateful_decoder(processor: type[Stateful]) -> Callable[[_Saved], list[StateEntry]]:
    load = msgspec.msgpack.Decoder(plan_of(processor).saved_type, dec_hook=decode_model).decode

    def decode(saved: _Saved) -> list[StateEntry]:
        key, value = saved
        return [StateEntry(key.decode(), None, None if value is None else to_json_value(load(value)))]

    return decode


def _session_decoder(processor: Aggregator, gap_ms: int) -> Callable[[_Saved], list[StateEntry]]:
    def decode(saved: _Saved) -> list[StateEntry]:
        key, value = saved
        sessions = [
            StateEntry(
                key.decode(),
                Window(session.start, session.last + gap_ms),
                to_json_value(processor.monoid.value(session.partial)),
            )
            for session in decode_sessions(processor, value)
        ]
        return sessions or [StateEntry(key.decode(), None, None)]

    return decode


def _sliding_decoder(processor: Aggregator) -> Callable[[_Saved], list[StateEntry]]:
    monoid = processor.monoid

    def decode(saved: _Saved) -> list[StateEntry]:
        key, head = saved
        tail = [
            StateEntry(key.decode(), Window(time, time + 1), to_json_value(monoid.value(monoid.decode(value))))
            for time, value in decode_tail(head)
        ]
        return tail or [StateEntry(key.decode(), None, None)]

    return decode


def _windowed_decoder(processor: Aggregator) -> Callable[[_Saved], list[StateEntry]]:
    monoid, window = processor.monoid, processor.window.window

    def decode(saved: _Saved) -> list[StateEntry]:
        slot, value = saved
        key, start = decode_window_key(slot)
        return [
            StateEntry(key, window(start), None if value is None else to_json_value(monoid.value(monoid.decode(value))))
        ]

    return decode


def _saved(processor: type[Processor], state: RocksShardState, key: str | None) -> Iterator[_Saved]:
    if key is not None and issubclass(processor, Stateful):
        value = state.fetch([key.encode()])[0]
        return whole_states(processor, state, [(key.encode(), value)] if value is not None else [])
    return whole_states(processor, state, takewhile(lambda saved: saved[0] < ENGINE_PREFIX, state.items()))


@contextmanager
def _explained(processor: type[Processor], state: RocksShardState) -> Iterator[None]:
    try:
        yield
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
        raise StateDamaged(
            f"A value in {state.folder} cannot be decoded as {processor.__name__} declares it: {error}. Nothing was changed. Check that "
            "the code is the version that saved the state."
        ) from error


def _expect_shape(processor: type[Processor], state: RocksShardState) -> None:
    plan = plan_of(processor)
    identity = state.identity()
    if identity is not None and identity.shape != plan.state_shape:
        raise ForeignState(
            f"The state in {state.folder} has another type: it contains {identity.shape}, but {processor.__name__} now declares "
            f"{plan.state_shape}. Nothing was read or changed. Inspect it with the version of the code that saved it."
        )
