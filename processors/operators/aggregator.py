"""The steps of an aggregator whose windows stay: by where its partials are merged."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import msgspec

from ..declare.aggregator import Aggregator
from ..declare.categories import AnyCategory
from ..declare.processor import ErrorPolicy
from ..errors import ProcessorFailed
from ..keyed_state.changes import Changes, StateReader
from ..keyed_state.key_layout import encode_window_key
from ..monoids import BrokenLaw, Monoid, check_laws
from ..time.shard_time import ShardTime
from ..time.windows import Window, WindowAssignment
from .base import CheckpointResult, Rejected, StepResult, late_among, processed_count, time_of

UNSAVEABLE = (TypeError, ValueError, OverflowError)
"""Raised by a monoid for a partial that it cannot encode."""
LAW_SAMPLES = 5
"""On how many of a shard's first events the laws of its monoid are tried."""

Slot = tuple[str, int]
"""A key, and the start of a window."""


class PartialFolder:
    """Folds observations into partials, by start of window and key.

    Args:
        processor: whose observations.
    """

    def __init__(self, processor: Aggregator) -> None:
        self._processor = processor
        self._lawful = False
        self._writes_dead_letters = processor.on_error is ErrorPolicy.DEAD_LETTER
        self.panes: dict[int, dict[str, Any]] = {}

    def fold(
        self, events: Sequence[Any], keys: Sequence[str], assignment: WindowAssignment, *, stop_at_error: bool
    ) -> list[Rejected]:
        """Fold events into the windows that they lie in; return those that raised, or the first one, to stop at."""
        if not self._lawful:
            self._expect_lawful(events)
        observe, monoid, panes = self._processor.observe, self._processor.monoid, self.panes
        lift, fold = monoid.lift, monoid.fold
        rejected: list[Rejected] = []
        observed, observation = -1, None
        for row, start in zip(*assignment, strict=True):
            try:
                if row != observed:
                    observed, observation = row, None
                    observation = observe(events[row])
                    if self._writes_dead_letters:
                        expect_saveable(monoid, observation)
                if observation is not None:
                    key, pane = keys[row], panes.get(start)
                    if pane is None:
                        pane = panes[start] = {}
                    pane[key] = fold(pane[key], observation) if key in pane else lift(observation)
            except Exception as error:  # noqa: BLE001 - whatever a user's code raises is the event's fate, not ours
                observation = None
                rejected.append(Rejected(row, error))
                if stop_at_error:
                    break
        return rejected

    def _expect_lawful(self, events: Sequence[Any]) -> None:
        """Try the monoid's laws on the first observations, before anything is built on them."""
        samples = []
        for event in events[:LAW_SAMPLES]:
            with suppress(Exception):  # an event that raises meets its fate when it is fed
                observation = self._processor.observe(event)
                self._processor.monoid.lift(observation)
                expect_saveable(self._processor.monoid, observation)
                samples.append(observation)
        try:
            check_laws(self._processor.monoid, [sample for sample in samples if sample is not None])
        except BrokenLaw as error:
            raise ProcessorFailed(
                f"{type(self._processor).__name__} cannot combine by {self._processor.monoid!r}, tried on its first events: "
                f"{error} Nothing was read or saved."
            ) from error
        self._lawful = True

    def take(self) -> dict[Slot, Any]:
        """Hand over the partials, and begin anew."""
        panes, self.panes = self.panes, {}
        return {(key, start): partial for start, pane in panes.items() for key, partial in pane.items()}


def expect_saveable(monoid: Monoid[Any], observation: Any) -> None:
    """Raise OverflowError for a number that the monoid cannot save."""
    try:
        msgspec.msgpack.encode(observation)
    except OverflowError:
        monoid.encode(monoid.lift(observation))
    except TypeError:
        pass  # what else a monoid takes, it knows itself how to save


def encoded(processor: Aggregator, partials: Mapping[Slot, Any]) -> Changes:
    """Return partials as they are saved.

    Raises:
        ProcessorFailed: one of them cannot be.
    """
    encode = processor.monoid.encode
    try:
        return {encode_window_key(*slot): encode(partial) for slot, partial in partials.items()}
    except UNSAVEABLE:
        for (key, start), partial in partials.items():
            encoded_partial(processor, key, processor.window.window(start), partial)
        raise


def encoded_partial(processor: Aggregator, key: str, window: Window, partial: Any) -> bytes:
    """Return the partial of a key and a window, as it is saved.

    Raises:
        ProcessorFailed: it cannot be.
    """
    try:
        return processor.monoid.encode(partial)
    except UNSAVEABLE as error:
        raise ProcessorFailed(
            f"{type(processor).__name__} cannot save the partial of key {key!r} in {window}, aggregated by "
            f"{processor.monoid!r}: {error}. Whole numbers in a saved partial have 64 bits at most. Nothing of this checkpoint was saved. Let `observe` "
            "return smaller numbers or floats, or let the monoid's `dump` return text for large ones, and start it again; "
            "`on_error = penstock.ErrorPolicy.DEAD_LETTER` sets an event aside whose observation alone is too large."
        ) from error


class AggregatorOperator:
    """Folds observations into partials per (key, window); a checkpoint merges them into what is saved.

    Args:
        processor: which.
        saved: the shard's state.
        time: follows its event time; by default as the processor declares.
    """

    def __init__(self, processor: Aggregator, saved: StateReader, time: ShardTime | None = None) -> None:
        self._processor = processor
        self._saved = saved
        self._folding = PartialFolder(processor)
        self.time = time or time_of(processor, saved)

    def feed(self, category: AnyCategory, events: Sequence[Any], *, stop_at_error: bool) -> StepResult:
        """Fold the events of one bucket, in order."""
        keys, times = category.keys_of(events), category.event_times_of(events)
        assignment = self._processor.window.assign(times)
        self._prepare(keys, assignment)
        rejected = self._folding.fold(events, keys, assignment, stop_at_error=stop_at_error)
        before_ms, times = self.time.low_ms, times[: processed_count(events, rejected, stop_at_error=stop_at_error)]
        return StepResult([], rejected, late_among(times, self.time.observe(category.name, times), before_ms))

    def _prepare(self, keys: Sequence[str], assignment: WindowAssignment) -> None:
        """Do what is to be done before these are folded."""

    def advance(self, upstream: Mapping[str, int], idle: Collection[str]) -> StepResult:
        """Take what is known from elsewhere of the inputs."""
        self.time.advance(upstream, idle)
        return StepResult([], [])

    def tick(self, now_ms: int) -> StepResult:  # noqa: ARG002 - the seam
        """Do nothing: results wait for the checkpoint."""
        return StepResult([], [])

    def take_partials(self) -> dict[Slot, Any]:
        """Hand over the partials unmerged, by key and start of window, and begin anew."""
        return self._folding.take()

    def drain(self) -> CheckpointResult:
        """Merge the partials into the saved values: the new values, and the result of each window that changed."""
        values = merged(self._processor, self._saved, self.take_partials())
        changes = encoded(self._processor, values)
        return CheckpointResult(results(self._processor, values), changes | self.time.drain())


class RemoteAggregatorOperator(AggregatorOperator):
    """The same over a store that others read: what it knows of time is not kept there."""

    def drain(self) -> CheckpointResult:
        """Merge the partials into the saved values."""
        self.time.drain()
        return super().drain()


class ReadModifyWriteOperator(RemoteAggregatorOperator):
    """Reads what is saved of a key's window when its first event after a checkpoint comes, and folds into that."""

    def _prepare(self, keys: Sequence[str], assignment: WindowAssignment) -> None:
        panes, decode = self._folding.panes, self._processor.monoid.decode
        slots = dict.fromkeys((keys[row], start) for row, start in zip(*assignment, strict=True))
        new = [(key, start) for key, start in slots if key not in panes.get(start, ())]
        for (key, start), saved in zip(new, self._saved.fetch([encode_window_key(*slot) for slot in new]), strict=True):
            if saved is not None:
                panes.setdefault(start, {})[key] = decode(saved)

    def drain(self) -> CheckpointResult:
        """Hand over the new values, and the result of each window that changed."""
        values = self.take_partials()
        changes = encoded(self._processor, values)
        return CheckpointResult(results(self._processor, values), changes)


class AppendOnlyOperator(RemoteAggregatorOperator):
    """Hands its partials on as they are: the store merges them, at once or when it is read."""

    def drain(self) -> CheckpointResult:
        """Hand over the partials; there are no results here."""
        return CheckpointResult([], encoded(self._processor, self.take_partials()))


def merged(processor: Aggregator, saved: StateReader, partials: Mapping[Slot, Any]) -> dict[Slot, Any]:
    """Return what is saved of each window with what came since."""
    monoid = processor.monoid
    found = saved.fetch([encode_window_key(*slot) for slot in partials])
    return {
        slot: partial if value is None else monoid.combine(monoid.decode(value), partial)
        for (slot, partial), value in zip(partials.items(), found, strict=True)
    }


def results(processor: Aggregator, values: Mapping[Slot, Any]) -> list[Any]:
    """Return what an aggregator writes for windows and their values."""
    if not processor.writes:
        return []
    window = processor.window.window
    return list(
        chain.from_iterable(results_of(processor, key, window(start), value) for (key, start), value in values.items())
    )


def results_of(processor: Aggregator, key: str, window: Window, value: Any) -> list[Any]:
    """Return what an aggregator writes for a key and window: one record or none."""
    if not processor.writes:
        return []
    try:
        record = processor.result(key, window, processor.monoid.value(value))
    except Exception as error:
        raise ProcessorFailed(
            f"{type(processor).__name__}.result raised {type(error).__name__}: {error}, for key {key!r} in {window}. "
            "Nothing of this checkpoint was saved; mend the processor and start it again."
        ) from error
    return [] if record is None else [record]
