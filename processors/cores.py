"""The pure step of each kind: batches of events in; outputs and changes of state out, as values.

A core runs one shard. Between two checkpoints it gathers what they changed (the overlay); nothing here sends, saves or
tells the time, so the same cores run under the worker, in the test driver and inside Spark.

    batch --feed--> Fed(outputs, rejected)      … any number of times
          --drain--> Drained(outputs, changes)  at a checkpoint, which saves them
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, NamedTuple, Protocol

import msgspec

from .categories import AnyCategory
from .errors import ProcessorFailed
from .kinds import Aggregator, Context, Processor, Stateful, Stateless
from .monoids import BrokenLaw, check_laws
from .stores import Remote, Writing

CACHED_KEYS = 100_000
"""How many keys' states a stateful shard keeps decoded between checkpoints."""

Join = Callable[[bytes, bytes], bytes]
"""Gives what an earlier and a later change of one key amount to."""

LAW_SAMPLES = 5
"""On how many of a shard's first events the laws of its monoid are tried."""

Changes = dict[bytes, "bytes | None"]
"""Encoded state by encoded key; None removes the key."""


class Rejected(NamedTuple):
    """An event that its processor raised for."""

    at: int
    error: Exception


class Fed(NamedTuple):
    """What one batch gave.

    Args:
        outputs: records, in order.
        rejected: events that raised, by their index in the batch. Where the core was to stop at the first, that one
            is the last event it took.
    """

    outputs: list[Any]
    rejected: list[Rejected]


class Drained(NamedTuple):
    """What a checkpoint has to send and save beside what was fed."""

    outputs: list[Any]
    changes: Changes


class StateReader(Protocol):
    """The saved state of one shard."""

    def fetch(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the saved value of each key, None where there is none."""
        ...


class Core(Protocol):
    """One shard's step. Calls: `feed` any number of times, then `drain`, and again."""

    def feed(self, category: AnyCategory, events: Sequence[Any], *, stop_at_error: bool) -> Fed:
        """Process the events of one bucket, in order."""
        ...

    def drain(self) -> Drained:
        """Hand over what changed since the last drain."""
        ...


class StatelessCore:
    """Maps events to outputs."""

    def __init__(self, processor: Stateless) -> None:
        self._process = processor.process

    def feed(self, category: AnyCategory, events: Sequence[Any], *, stop_at_error: bool) -> Fed:  # noqa: ARG002 - the seam
        """Process the events of one bucket, in order."""
        process = self._process
        outputs: list[Any] = []
        rejected: list[Rejected] = []
        extend = outputs.extend
        for at, event in enumerate(events):
            before = len(outputs)
            try:
                extend(process(event))
            except Exception as error:  # noqa: BLE001 - whatever a user's code raises is the event's fate, not ours
                del outputs[before:]
                rejected.append(Rejected(at, error))
                if stop_at_error:
                    break
        return Fed(outputs, rejected)

    def drain(self) -> Drained:
        """Hand over nothing: there is no state."""
        return Drained([], {})


class StatefulCore:
    """Folds each key's events into its state, over an overlay of what is not saved yet."""

    def __init__(self, processor: Stateful, saved: StateReader) -> None:
        self._name = type(processor).__name__
        self._process = processor.process
        self._saved = saved
        self._decode = msgspec.msgpack.Decoder(processor.state).decode
        self._encode = msgspec.msgpack.Encoder().encode
        self._states: dict[str, Any] = {}
        self._changed: set[str] = set()

    def feed(self, category: AnyCategory, events: Sequence[Any], *, stop_at_error: bool) -> Fed:
        """Process the events of one bucket, in order."""
        keys = category.keys_of(events)
        self._load(keys)
        process, states, changed = self._process, self._states, self._changed
        outputs: list[Any] = []
        rejected: list[Rejected] = []
        for at, (key, time, event) in enumerate(zip(keys, category.event_times_of(events), events, strict=True)):
            before = len(outputs)
            try:
                state, produced = process(event, states[key], Context(key, time))
                outputs.extend(produced)
            except Exception as error:  # noqa: BLE001 - whatever a user's code raises is the event's fate, not ours
                del outputs[before:]
                rejected.append(Rejected(at, error))
                if stop_at_error:
                    break
            else:
                states[key] = state
                changed.add(key)
        return Fed(outputs, rejected)

    def _load(self, keys: Iterable[str]) -> None:
        states, decode = self._states, self._decode
        missing = [key for key in dict.fromkeys(keys) if key not in states]
        for key, saved in zip(missing, self._saved.fetch([key.encode() for key in missing]), strict=True):
            states[key] = None if saved is None else decode(saved)

    def drain(self) -> Drained:
        """Hand over the state of every key that changed."""
        states, encode = self._states, self._encode
        changes: Changes = {key.encode(): None if states[key] is None else encode(states[key]) for key in self._changed}
        self._changed.clear()
        self._expect_loadable(changes)
        if len(states) > CACHED_KEYS:
            states.clear()
        return Drained([], changes)

    def _expect_loadable(self, changes: Changes) -> None:
        """Look at one of the new states: what could not be loaded again must not be saved."""
        sample = next(filter(None, changes.values()), None)
        if sample is not None:
            try:
                self._decode(sample)
            except msgspec.ValidationError as error:
                raise ProcessorFailed(
                    f"{self._name} returned a state that is not of the type it declares: {error}. Nothing of this "
                    "checkpoint was saved; mend the processor, or its `state`, and start it again."
                ) from error


class AggregatorCore:
    """Folds observations into partials per (key, window); a checkpoint merges them into what is saved."""

    def __init__(self, processor: Aggregator, saved: StateReader) -> None:
        self._processor = processor
        self._saved = saved
        self._partials: dict[tuple[str, int], Any] = {}
        self._lawful = False

    def feed(self, category: AnyCategory, events: Sequence[Any], *, stop_at_error: bool) -> Fed:
        """Fold the events of one bucket, in order."""
        if not self._lawful:
            self._expect_lawful(events)
        observe, monoid = self._processor.observe, self._processor.monoid
        lift, fold, partials = monoid.lift, monoid.fold, self._partials
        rejected: list[Rejected] = []
        starts = self._processor.window.starts(category.event_times_of(events))
        for at, (slot, event) in enumerate(
            zip(zip(category.keys_of(events), starts, strict=True), events, strict=True)
        ):
            try:
                observation = observe(event)
                if observation is not None:
                    partials[slot] = fold(partials[slot], observation) if slot in partials else lift(observation)
            except Exception as error:  # noqa: BLE001 - whatever a user's code raises is the event's fate, not ours
                rejected.append(Rejected(at, error))
                if stop_at_error:
                    break
        return Fed([], rejected)

    def _expect_lawful(self, events: Sequence[Any]) -> None:
        """Try the monoid's laws on the first observations, before anything is built on them."""
        samples = []
        for event in events[:LAW_SAMPLES]:
            with suppress(Exception):  # an event that raises meets its fate when it is fed
                observation = self._processor.observe(event)
                self._processor.monoid.lift(observation)
                samples.append(observation)
        try:
            check_laws(self._processor.monoid, [sample for sample in samples if sample is not None])
        except BrokenLaw as error:
            raise ProcessorFailed(
                f"{type(self._processor).__name__} cannot combine by {self._processor.monoid!r}, tried on its first events: "
                f"{error} Nothing was read or saved."
            ) from error
        self._lawful = True

    def take_partials(self) -> dict[tuple[str, int], Any]:
        """Hand over the partials unmerged, by key and start of window, and begin anew."""
        taken, self._partials = self._partials, {}
        return taken

    def drain(self) -> Drained:
        """Merge the partials into the saved values: the new values, and the result of each window that changed."""
        partials = self.take_partials()
        monoid = self._processor.monoid
        slots = [encode_slot(key, start) for key, start in partials]
        outputs: list[Any] = []
        changes: Changes = {}
        for (key, start), slot, saved in zip(partials, slots, self._saved.fetch(slots), strict=True):
            value = partials[key, start]
            if saved is not None:
                value = monoid.combine(monoid.decode(saved), value)
            changes[slot] = monoid.encode(value)
            outputs.extend(results_of(self._processor, key, start, value))
        return Drained(outputs, changes)


class ModifyingCore(AggregatorCore):
    """Reads what is saved of a key's window when its first event after a checkpoint comes, and folds into that."""

    def feed(self, category: AnyCategory, events: Sequence[Any], *, stop_at_error: bool) -> Fed:
        """Fold the events of one bucket, in order."""
        starts = self._processor.window.starts(category.event_times_of(events))
        new = [
            slot
            for slot in dict.fromkeys(zip(category.keys_of(events), starts, strict=True))
            if slot not in self._partials
        ]
        decode = self._processor.monoid.decode
        for slot, saved in zip(new, self._saved.fetch([encode_slot(*slot) for slot in new]), strict=True):
            if saved is not None:
                self._partials[slot] = decode(saved)
        return super().feed(category, events, stop_at_error=stop_at_error)

    def drain(self) -> Drained:
        """Hand over the new values, and the result of each window that changed."""
        values = self.take_partials()
        encode = self._processor.monoid.encode
        changes: Changes = {encode_slot(*slot): encode(value) for slot, value in values.items()}
        results = (results_of(self._processor, *slot, value) for slot, value in values.items())
        return Drained(list(chain.from_iterable(results)), changes)


class AppendingCore(AggregatorCore):
    """Hands its partials to a store that merges them."""

    def drain(self) -> Drained:
        """Hand over the partials."""
        encode = self._processor.monoid.encode
        return Drained([], {encode_slot(*slot): encode(partial) for slot, partial in self.take_partials().items()})


def results_of(processor: Aggregator, key: str, start: int, value: Any) -> list[Any]:
    """Return what an aggregator writes for a key and window: one record or none."""
    if not processor.writes:
        return []
    window = processor.window.window(start)
    try:
        record = processor.result(key, window, processor.monoid.value(value))
    except Exception as error:
        raise ProcessorFailed(
            f"{type(processor).__name__}.result raised {type(error).__name__}: {error}, for key {key!r} in {window}. "
            "Nothing of this checkpoint was saved; mend the processor and start it again."
        ) from error
    return [] if record is None else [record]


_SIGN = 2**63
"""Shifts signed starts so that their big-endian bytes sort by time."""


def encode_slot(key: str, start: int) -> bytes:
    """Return where the state of a key's window is kept: windows first, so that old ones lie together."""
    return (start + _SIGN).to_bytes(8, "big") + key.encode()


def decode_slot(slot: bytes) -> tuple[str, int]:
    """Return the key and the start of the window kept at `slot`."""
    return slot[8:].decode(), int.from_bytes(slot[:8], "big") - _SIGN


def open_core(processor: Processor, saved: StateReader) -> Core:
    """Return the core that runs one shard of `processor` over its saved state."""
    match processor:
        case Stateless():
            return StatelessCore(processor)
        case Stateful():
            return StatefulCore(processor, saved)
        case Aggregator(store=Remote(Writing.READ_MODIFY_WRITE)):
            return ModifyingCore(processor, saved)
        case Aggregator(store=Remote(Writing.APPEND)):
            return AppendingCore(processor, saved)
        case Aggregator():
            return AggregatorCore(processor, saved)
        case _:
            raise TypeError(
                f"{type(processor).__name__} is of no kind: derive it from Stateless, Stateful or Aggregator"
            )


def join_of(processor: Processor) -> Join:
    """Return what two changes of one key amount to: the later one, or, where changes are partials, both combined."""
    match processor:
        case Aggregator(store=Remote(Writing.APPEND)):
            monoid = processor.monoid
            return lambda earlier, later: monoid.encode(monoid.combine(monoid.decode(earlier), monoid.decode(later)))
        case _:
            return lambda _, later: later
