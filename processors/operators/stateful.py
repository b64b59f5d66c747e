"""The step of a stateful processor: each key's events folded into its state, and its timers fired on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import repeat
from operator import itemgetter
from typing import Any

import msgspec

from ..declare import (
    AnyCategory,
    Context,
    ErrorPolicy,
    Join,
    Request,
    Routes,
    Stateful,
    StatefulPlan,
    independent,
    is_mutable,
    lookalike_finder,
    plan_of,
    type_name,
    with_tombstones,
)
from ..errors import USER_CODE_ERRORS, ProcessorFailed
from ..keyed_state import DECODED_FACTOR, ENGINE_PREFIX, STATE_CACHE, Changes, SizeEstimate, StateReader
from ..models import decode_model, encode_model
from ..time import Clock, Due, Firing, OrderedTime, ScheduledFirings, ShardTime, Timer, Timers
from ..user_code import error_reason
from .base import NO_EVENT, CheckpointResult, Rejected, StepResult, due_before, late_among, time_of
from .buffer_chunks import BufferChunks

CHECKED_AT_ONCE = 1_000
"""The number of states that a checkpoint validates in one call, as one MessagePack array."""

SCANNED_AT_ONCE = 1_000
"""The number of states per read of all states."""

SAMPLED_AT_START = 10
"""The number of saved states that are decoded before the first event."""

UNSAVEABLE = (TypeError, ValueError, OverflowError)
"""Errors of a state that cannot be encoded."""


class StatefulOperator:
    """Folds each key's events into its state. Unsaved states stay in memory, above the saved state.

    Args:
        processor: the processor.
        saved: the shard's state.
        time: the shard's event time. Default: as the processor declares.
        number: the number of the shard.
    """

    def __init__(
        self, processor: Stateful, saved: StateReader, time: ShardTime | OrderedTime | None = None, number: int = 0
    ) -> None:
        self._processor = processor
        self._process = with_tombstones(processor.process) if processor.tombstones else processor.process
        self._name = type(processor).__name__
        self._saved = saved
        plan = plan_of(processor)
        self._decode = msgspec.msgpack.Decoder(plan.saved_type, dec_hook=decode_model).decode
        every = list[plan.saved_type]  # type: ignore[name-defined]  # known when it is declared
        self._decode_all = msgspec.msgpack.Decoder(every, dec_hook=decode_model).decode
        self._encode = _encoder_of(processor)
        # Only dead letters need the event of an invalid output or state; others stop the worker when it sends or saves them.
        self._routes = (
            Routes(type(processor), processor.output_sizes) if processor.on_error is not ErrorPolicy.STOP else None
        )
        # User code could change a decoded state after it was returned, in an output that contains a part of it, or before it raises.
        self._stays_encoded = is_mutable(plan.saved_type) and not processor.buffers_events
        # A list in the place of a tuple could be changed, too, until the state is decoded.
        self._finds_lookalike = (
            None if self._stays_encoded or processor.buffers_events else lookalike_finder(plan.saved_type)
        )
        self._outputs_can_change = plan.outputs_can_change
        self._states: dict[str, Any] = {}
        self._changed: set[str] = set()
        self._chunks = BufferChunks(type(processor), saved) if isinstance(processor, Join) else None
        self._sizes = SizeEstimate()
        self._dropped = 0
        self._timers = {clock: Timers(clock, saved) for clock in Clock} if plan.has_timers else {}
        self._schedules = ScheduledFirings(processor.schedules, number, saved)
        self._retries = plan.retry_chain is not None
        self.time = time or time_of(processor, saved)
        for key, state in saved.scan(b"", ENGINE_PREFIX, SAMPLED_AT_START):
            self._decoded(key.decode(), state)  # states of another version are found before the first event

    def feed(self, category: AnyCategory, events: Sequence[Any], *, stop_at_error: bool) -> StepResult:  # noqa: C901, PLR0912 - run for each event, where a call costs
        """Process the events of one bucket, in order, and fire due timers before each event."""
        keys, times = category.keys_of(events), category.event_times_of(events)
        self._load(keys)
        if self._retries:
            self.time.release(category.name, times)
        before, before_ms = self.time.mark(category.name), self.time.low_ms
        lows = self.time.observe(category.name, category.time_array_of(events)).tolist()
        outputs: list[Any] = []
        rejected: list[Rejected] = []
        process, states, changed, stays_encoded = self._process, self._states, self._changed, self._stays_encoded
        timers, requests = self._timers.get(Clock.EVENT), self._requests()
        causes: list[int] = []
        low_ms, self._dropped, finds_lookalike = before_ms, 0, self._finds_lookalike
        for at, (key, time, event) in enumerate(zip(keys, times, events, strict=True)):
            if timers is not None:
                due_ms = due_before(time, lows[at], low_ms)
                if timers.next_ms <= due_ms:
                    self._fire(timers, due_ms, due_ms, outputs)
            produced_before = len(outputs)
            before_event = self._opened(key) if stays_encoded else states[key]
            try:
                state, produced = process(event, before_event, Context(key, time, low_ms, requests))
                outputs.extend(independent(produced) if self._outputs_can_change else produced)
                if stays_encoded and state is not None:
                    state = self._encoded(state)
                elif finds_lookalike is not None and finds_lookalike(state):
                    state = self._as_declared(state)
                if self._routes is not None:
                    self._expect_valid(state, outputs[produced_before:])
            except USER_CODE_ERRORS as error:
                del outputs[produced_before:]
                rejected.append(Rejected(at, error))
                if stop_at_error:
                    self.time.go_back(category.name, before, times[:at])
                    late = late_among(times[:at], lows[:at], before_ms)
                    return StepResult(outputs, rejected, late, self._dropped, causes=_up_to(causes, len(outputs)))
                if requests:
                    requests.clear()
                if plan_of(self._processor).retried_in(category, error) is not None:
                    lows = self.time.held_from(at, time, low_ms, lows)
            else:
                states[key] = state
                changed.add(key)
                if len(outputs) > produced_before:
                    _up_to(causes, produced_before)
                    causes.extend(repeat(at, len(outputs) - produced_before))
                if requests:
                    self._apply_requests(key, requests)
            low_ms = lows[at]
        if timers is not None and timers.next_ms <= low_ms:
            self._fire(timers, low_ms, low_ms, outputs)
        late = late_among(category.time_array_of(events), lows, before_ms)
        return StepResult(outputs, rejected, late, self._dropped, causes=_up_to(causes, len(outputs)))

    def advance(self, upstream: Mapping[str, int], idle: Mapping[str, int]) -> StepResult:
        """Fire the timers that become due through upstream watermarks and idle inputs."""
        outputs: list[Any] = []
        low_ms, timers = self.time.advance(upstream, idle), self._timers.get(Clock.EVENT)
        if timers is not None and timers.next_ms <= low_ms:
            self._fire(timers, low_ms, low_ms, outputs)
        return StepResult(outputs, [])

    def tick(self, now_ms: int) -> StepResult:
        """Fire the wall-clock timers and the schedules that are due."""
        outputs: list[Any] = []
        timers = self._timers.get(Clock.WALL)
        if timers is not None and timers.next_ms <= now_ms:
            self._fire(timers, now_ms, self.time.low_ms, outputs)
        for firing in self._schedules.due(now_ms):
            outputs.extend(self._on_schedule(firing))
        return StepResult(outputs, [])

    def timers_of(self, key: str) -> list[Timer]:
        """Return the timers of a key, by clock and tag."""
        found = ((clock, sorted(timers.of(key).items())) for clock, timers in self._timers.items())
        return [Timer(at, tag, clock) for clock, timers in found for tag, at in timers]

    def _expect_valid(self, state: Any, outputs: Sequence[Any]) -> None:
        """Raise if the state or an output of an event could not be saved or sent."""
        if outputs and self._routes is not None:
            self._routes.expect(outputs)
        if state is not None and not self._processor.buffers_events:
            self._decode(state if self._stays_encoded else self._encode(state))

    def _opened(self, key: str) -> Any:
        """Return the state of a key as user code gets it."""
        state = self._states[key]
        return self._decoded(key, state) if self._stays_encoded and state is not None else state

    def _decoded(self, key: str, state: bytes) -> Any:
        """Return a saved state, or one that stays encoded.

        Raises:
            ProcessorFailed: it is not of the type that the processor declares.
        """
        try:
            return self._decode(state)
        except msgspec.ValidationError as error:
            raise (self._wrong_type if key in self._changed else self._unreadable)(key, error) from error

    def _encoded(self, state: Any) -> bytes:
        """Return a state that stays encoded.

        Raises:
            TypeError: the state cannot be saved.
        """
        try:
            return self._encode(state)
        except UNSAVEABLE as error:
            raise TypeError(f"the returned state cannot be saved: {error}") from error

    def _as_declared(self, state: Any) -> Any:
        """Return a state with the types that it has after it was saved. One that cannot be saved is returned as it is: the checkpoint refuses it."""
        try:
            return self._decode(self._encode(state))
        except (*UNSAVEABLE, msgspec.ValidationError):
            return state

    def _requests(self) -> list[Request] | None:
        return [] if self._timers else None

    def _expect_nondeterministic(self, key: str, tag: str) -> None:
        """Raise ProcessorFailed for a wall-clock timer of a deterministic processor."""
        if self._processor.deterministic:
            raise ProcessorFailed(
                f"{self._name} set the wall-clock timer {tag!r} of key {key!r}, so the same events may produce another state. Nothing of this "
                "checkpoint was saved. Declare `deterministic = False`, or set the timer in event time."
            )

    def _apply_requests(self, key: str, requests: list[Request]) -> None:
        """Set and cancel timers of a key, and count dropped events."""
        for request in requests:
            if request is None:
                self._dropped += 1
                continue
            clock, tag, at = request
            if clock is Clock.WALL:
                self._expect_nondeterministic(key, tag)
            if at is None:
                self._timers[clock].cancel(key, tag)
            else:
                self._timers[clock].set(key, tag, at)
        requests.clear()

    def _fire(self, timers: Timers, now_ms: int, low_ms: int, outputs: list[Any]) -> None:
        for due in timers.due(now_ms):
            if due.key not in self._states:
                self._load([due.key, *timers.upcoming()])
            requests: list[Request] = []
            state = self._on_timer(due, low_ms, requests, outputs)
            if self._stays_encoded and state is not None:
                state = self._encoded(state)
            elif self._finds_lookalike is not None and self._finds_lookalike(state):
                state = self._as_declared(state)
            self._states[due.key] = state
            self._changed.add(due.key)
            self._apply_requests(due.key, requests)

    def _on_timer(self, due: Due, low_ms: int, requests: list[Request], outputs: list[Any]) -> Any:
        """Call `on_timer` for a due timer; return the key's next state."""
        key, timer = due
        context = Context(key, timer.at, low_ms, requests)
        try:
            state, produced = self._processor.on_timer(timer, self._opened(key), context)
            outputs.extend(independent(produced) if self._outputs_can_change else produced)
        except USER_CODE_ERRORS as error:
            raise ProcessorFailed(
                f"{error_reason(f'{self._name}.on_timer', error, plan_of(self._processor).result_form)}, for key {key!r} and {timer}. Nothing of this "
                "checkpoint was saved, and the timer is still set. No event is at hand, so none can become a dead letter. Correct the processor and start it "
                "again."
            ) from error
        for clock, tag, at in filter(None, requests):
            if clock is timer.clock and at is not None and at <= timer.at:
                raise ProcessorFailed(
                    f"{self._name}.on_timer set timer {tag!r} of key {key!r} to {at} when the timer of {timer.at} fired, so it would fire "
                    "again at once, without end. Nothing of this checkpoint was saved, and the timer is still set. In `on_timer`, set only "
                    "later timers, and start the processor again."
                )
        return state

    def _on_schedule(self, firing: Firing) -> list[Any]:
        """Call `on_schedule` for a firing; return its outputs."""
        try:
            return list(independent(self._processor.on_schedule(firing, self._all_states())))
        except USER_CODE_ERRORS as error:
            raise ProcessorFailed(
                f"{error_reason(f'{self._name}.on_schedule', error, '[…]')}, for {firing}. Nothing of this checkpoint was saved, and the schedule "
                "fires again. No event is at hand, so none can become a dead letter. Correct the processor and start it again."
            ) from error

    def _all_states(self) -> Iterator[tuple[str, Any]]:
        """Yield each key with a state, in order of keys."""
        unsaved = {key.encode(): self._opened(key) for key in self._changed}
        saved = ((key, self._decoded(key.decode(), state)) for key, state in self._saved_states() if key not in unsaved)
        for key, state in merge(sorted(unsaved.items(), key=itemgetter(0)), saved, key=itemgetter(0)):
            if state is not None:
                yield key.decode(), state

    def _saved_states(self) -> Iterator[tuple[bytes, bytes]]:
        begin = b""
        while found := self._saved.scan(begin, ENGINE_PREFIX, SCANNED_AT_ONCE):
            yield from found
            begin = found[-1][0] + b"\x00"

    def _load(self, keys: Iterable[str]) -> None:
        states, stays_encoded = self._states, self._stays_encoded
        distinct = dict.fromkeys(keys)
        missing = [key for key in distinct if key not in states]
        STATE_CACHE.count(len(distinct), len(missing))
        found = self._saved.fetch([key.encode() for key in missing])
        self._sizes.add(found)
        for key, saved in zip(missing, found, strict=True):
            states[key] = saved if saved is None or stays_encoded else self._decoded(key, saved)
        if self._chunks is not None:
            states |= self._chunks.complete({key: states[key] for key in missing if states[key] is not None})
        for timers in self._timers.values():
            timers.load(missing)

    def drain(self) -> CheckpointResult:
        """Return the changed states, the timers and the event time since the last drain."""
        states, encode = self._states, _itself if self._stays_encoded else self._encode
        chunks = {} if self._chunks is None else self._chunks.drain({key: states[key] for key in self._changed})
        try:
            changes: Changes = {
                key.encode(): None if states[key] is None else encode(states[key]) for key in self._changed
            }
        except UNSAVEABLE as error:
            raise self._unsaveable() from error
        self._changed.clear()
        self._expect_loadable(changes)
        self._sizes.add(changes.values())
        if STATE_CACHE.must_forget(self, self._size_bytes()):
            states.clear()
            if self._chunks is not None:
                self._chunks.forget()
        for timers in self._timers.values():
            changes |= timers.drain()
        return CheckpointResult([], changes | chunks | self._schedules.drain() | self.time.drain())

    def _size_bytes(self) -> int:
        """Return the estimated memory of the decoded states."""
        in_chunks = 0 if self._chunks is None else self._chunks.size_bytes
        return self._sizes.of(len(self._states)) + DECODED_FACTOR * in_chunks

    def _unsaveable(self) -> ProcessorFailed:
        """Return the error about the first state that cannot be saved."""
        for key in self._changed:
            try:
                self._encode(self._states[key])
            except UNSAVEABLE as error:
                why, is_wide = f"{error} (the state of key {key!r})", isinstance(error, OverflowError)
                break
        limit = " Integers in a state have 64 bits at most." if is_wide else ""
        return ProcessorFailed(
            f"{self._name} returned a state that cannot be saved: {why}.{limit} Nothing of this "
            f"checkpoint was saved. Correct the processor and start it again, or declare `{plan_of(self._processor).dead_letter_setting}`."
        )

    def _expect_loadable(self, changes: Changes) -> None:
        """Raise ProcessorFailed for a state that could not be loaded again, before it is saved."""
        saved = [(key, state) for key, state in changes.items() if state is not None]
        if self._processor.buffers_events:
            saved = saved[:1]  # the engine builds these states, so one sample suffices
        for begin in range(0, len(saved), CHECKED_AT_ONCE):
            part = saved[begin : begin + CHECKED_AT_ONCE]
            try:
                self._decode_all(b"\xdd" + len(part).to_bytes(4, "big") + b"".join(state for _, state in part))
            except msgspec.ValidationError:
                for key, state in part:
                    self._expect_loadable_state(key.decode(), state)
                raise

    def _expect_loadable_state(self, key: str, state: bytes) -> None:
        try:
            self._decode(state)
        except msgspec.ValidationError as error:
            raise self._wrong_type(key, error) from error

    def _wrong_type(self, key: str, error: msgspec.ValidationError) -> ProcessorFailed:
        return ProcessorFailed(
            f"{self._name} returned a state of another type than it declares: {error} (the state of key {key!r}). Nothing of this "
            "checkpoint was saved. Correct the processor or its `state`, and start it again."
        )

    def _unreadable(self, key: str, error: msgspec.ValidationError) -> ProcessorFailed:
        return ProcessorFailed(
            f"{self._name} cannot read the saved state of key {key!r} as {type_name(self._processor.state)}: {error}. The state was saved by "
            "another version of this type; it is unchanged, and no event since the last checkpoint was saved. Give a new field a default "
            "(`field: int = 0`), or undo the change; `penstock state migrate` converts saved states with a function."
        )


def _encoder_of(processor: Stateful) -> Callable[[Any], bytes]:
    plan = plan_of(processor)
    encode = msgspec.msgpack.Encoder(enc_hook=encode_model).encode
    if type(plan).form_to_save is StatefulPlan.form_to_save:
        return encode
    return lambda state: encode(plan.form_to_save(state))


def _itself(state: bytes) -> bytes:
    return state


def _up_to(causes: list[int], outputs: int) -> list[int]:
    """Append `NO_EVENT` for the outputs of timers, up to a number of outputs; return the list."""
    causes.extend(repeat(NO_EVENT, outputs - len(causes)))
    return causes
