"""Operators of aggregators whose windows never close: one for each place where partials are merged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any

import msgspec

from ..declare import (
    Aggregator,
    AnyCategory,
    ColumnEvents,
    ErrorPolicy,
    KeyGroups,
    RowKeys,
    flags_of,
    plan_of,
    unshared,
)
from ..errors import USER_CODE_ERRORS, ProcessorFailed, UserCodeError
from ..keyed_state import (
    ENGINE_PREFIX,
    Changes,
    SavedValues,
    StateReader,
    WindowValues,
    decode_window_key,
    encode_time,
    encode_window_keys,
)
from ..monoids import BrokenLaw, Monoid, check_laws, check_rejection
from ..time import (
    FOREVER_MS,
    GLOBAL_WINDOW_START_MS,
    ShardTime,
    Times,
    Tumbling,
    Window,
    WindowAssignment,
    nearest_datetime,
)
from ..user_code import error_in_words
from .base import CheckpointResult, Rejected, StepResult, late_among, processed_count, time_of
from .column_folds import MISSING, SlotGroups, count_groups, fold_groups, slot_groups
from .column_steps import ObservedColumns, plain

if TYPE_CHECKING:
    import pyarrow as pa

UNSAVEABLE = (TypeError, ValueError, OverflowError)
"""Errors of a monoid that cannot encode a partial."""
LAW_SAMPLES = 5
"""The number of a shard's first events on which the laws of its monoid are checked."""

PART_SLOTS = 10_000
"""The values that a checkpoint merges and encodes at once, so that only their results and changes are all in memory."""

COUNTED_AT_ONCE = 8
"""The average number of adjacent events in one window from which they are counted at once."""

Slot = tuple[str, int]
"""A key and the start of a window."""


class PartialFolder:
    """Folds observations into partials, by start of window and key.

    Args:
        processor: returns the observations.
    """

    def __init__(self, processor: Aggregator) -> None:
        plan = plan_of(processor)
        self._processor = processor
        self._laws_checked = False
        self._counts_events = plan.counts_events
        self._columns = ObservedColumns(processor) if plan.has_columns_step else None
        self._writes_dead_letters = processor.on_error is ErrorPolicy.DEAD_LETTER
        self.panes: dict[int, dict[str, Any]] = {}

    def fold(
        self, events: Sequence[Any], keys: Sequence[str], assignment: WindowAssignment, *, stop_at_error: bool
    ) -> list[Rejected]:
        """Fold events into their windows. Return the rejected events; with `stop_at_error`, fold only up to the first one."""
        if not self._laws_checked:
            self._check_laws(events)
        if isinstance(events, ColumnEvents):
            rejected = self._fold_columns(events, assignment, stop_at_error=stop_at_error)
            if rejected is not None:
                return rejected
        if self._counts_events and self._count(keys, assignment):
            return []
        return self._fold_each(events, self._processor.observe, keys, assignment, stop_at_error=stop_at_error)

    def _fold_columns(
        self, events: ColumnEvents, assignment: WindowAssignment, *, stop_at_error: bool
    ) -> list[Rejected] | None:
        """Fold columns of events as `fold` does; None if they must be folded event by event."""
        observed = None if self._columns is None else self._columns.of(events)
        if observed is None:
            if self._counts_events:
                found = slot_groups(events.key_groups, assignment, None)
                self._put(found, count_groups(found.groups, self._partials(found)))
                return []
            return None
        return self.fold_observed(observed, events.key_groups, assignment, stop_at_error=stop_at_error)

    def fold_observed(
        self, observed: pa.Array[Any], keys: KeyGroups, assignment: WindowAssignment, *, stop_at_error: bool
    ) -> list[Rejected]:
        """Fold the observations of events, null for none, as `fold` does."""
        has_value = None if not observed.null_count else flags_of(observed.is_valid())
        found = slot_groups(keys, assignment, has_value)
        observations = observed if found.rows is None else observed.take(found.rows)
        partials = fold_groups(self._processor.monoid, observations, found.groups, self._partials(found))
        if partials is None:
            return self._fold_each(plain(observed), _itself, RowKeys(keys), assignment, stop_at_error=stop_at_error)
        self._put(found, partials)
        return []

    def _partials(self, slots: SlotGroups) -> list[Any]:
        found: list[Any] = []
        for begin, end, start in slots.windows:
            pane = self.panes.get(start)
            found += (
                repeat(MISSING, end - begin) if pane is None else map(pane.get, slots.keys[begin:end], repeat(MISSING))
            )
        return found

    def _put(self, slots: SlotGroups, partials: Sequence[Any]) -> None:
        for begin, end, start in slots.windows:
            pane = self.panes.setdefault(start, {})
            dict.update(
                pane, zip(slots.keys[begin:end], partials[begin:end], strict=True)
            )  # a Counter's own method adds

    def _fold_each(
        self,
        events: Sequence[Any],
        observe: Callable[[Any], Any],
        keys: Sequence[str],
        assignment: WindowAssignment,
        *,
        stop_at_error: bool,
    ) -> list[Rejected]:
        monoid, panes, keys = self._processor.monoid, self.panes, list(keys)
        lift, fold = monoid.lift, monoid.fold
        rejected: list[Rejected] = []
        observed, observation = -1, None
        # Of the event that is folded now, by window: with several windows, a later one may reject it.
        before: list[tuple[dict[str, Any], str, Any]] | None = [] if len(assignment.starts) > len(events) else None
        for row, start in zip(*assignment, strict=True):
            try:
                if row != observed:
                    observed, observation = row, None
                    before = None if before is None else []
                    observation = observe(events[row])
                    if self._writes_dead_letters:
                        expect_saveable(monoid, observation)
                if observation is not None:
                    key, pane = keys[row], panes.get(start)
                    if pane is None:
                        pane = panes[start] = {}
                    earlier = pane.get(key, MISSING)
                    pane[key] = lift(observation) if earlier is MISSING else fold(earlier, observation)
                    if before is not None:
                        before.append((pane, key, earlier))
            except USER_CODE_ERRORS as error:
                _restore(before or ())
                self._expect_intact(panes.get(start, {}).get(keys[row], MISSING), observation)
                observation = None
                rejected.append(Rejected(row, error))
                if stop_at_error:
                    break
        return rejected

    def _count(self, keys: Sequence[str], assignment: WindowAssignment) -> bool:
        """Count events without a call for each of them; return False where that would be slower, or does not apply."""
        runs = assignment.runs() if isinstance(assignment.rows, range) else []
        if not runs or len(runs) * COUNTED_AT_ONCE > len(keys):
            return False
        for begin, end, start in runs:
            pane = self.panes.get(start)
            counts = pane if isinstance(pane, Counter) else Counter(pane)
            counts.update(keys[begin:end])
            self.panes[start] = counts
        return True

    def _check_laws(self, events: Sequence[Any]) -> None:
        """Check the monoid's laws on the first observations, before any result depends on them."""
        samples = []
        for event in events[:LAW_SAMPLES]:
            with suppress(Exception):  # the event is rejected when it is folded
                observation = self._processor.observe(unshared(event))
                self._processor.monoid.lift(observation)
                expect_saveable(self._processor.monoid, observation)
                samples.append(observation)
        self._laws_checked = True
        try:
            check_laws(self._processor.monoid, [sample for sample in samples if sample is not None])
        except BrokenLaw as error:
            raise self._unusable("failed a check on the first events", error) from error
        except USER_CODE_ERRORS:
            return  # it accepts each sample, but not all of them together: the event is rejected when it is folded

    def _expect_intact(self, partial: Any, observation: Any) -> None:
        """Raise ProcessorFailed if the monoid changes a partial with an observation that it rejects: the rejected event would count in part."""
        if partial is MISSING or observation is None:
            return
        try:
            check_rejection(self._processor.monoid, partial, observation)
        except BrokenLaw as error:
            raise self._unusable("rejected an event after it had counted a part of it", error) from error

    def _unusable(self, reason: str, error: BrokenLaw) -> ProcessorFailed:
        name, monoid = type(self._processor).__name__, self._processor.monoid
        return ProcessorFailed(f"{name} cannot use {monoid!r}, which {reason}: {error} Nothing was saved.")

    def take(self) -> dict[Slot, Any]:
        """Return the partials, in order of their windows, and forget them."""
        return {(key, start): partial for start, pane in self.take_panes() for key, partial in pane.items()}

    def take_panes(self) -> list[tuple[int, dict[str, Any]]]:
        """Return the partials by key of each window, in order of its start, and forget them."""
        panes, self.panes = self.panes, {}
        return sorted(panes.items())

    def take_parts(self) -> Iterator[dict[Slot, Any]]:
        """Yield the partials in parts, each in one window, in order of the windows, and forget them. The memory of a window is free when its last part has been used."""
        panes, self.panes = self.panes, {}
        for start in sorted(panes):  # a row of a later window may replace the one of an earlier window
            partials = iter(panes.pop(start).items())
            while part := {(key, start): partial for key, partial in islice(partials, PART_SLOTS)}:
                yield part


def _restore(before: Sequence[tuple[dict[str, Any], str, Any]]) -> None:
    """Put back the partials from before an event, by pane and key."""
    for pane, key, partial in before:
        if partial is MISSING:
            del pane[key]
        else:
            pane[key] = partial


def _itself(observation: Any) -> Any:
    return observation


def expect_saveable(monoid: Monoid[Any], observation: Any) -> None:
    """Raise OverflowError if the monoid cannot save a number of the observation."""
    try:
        msgspec.msgpack.encode(observation)
    except OverflowError:
        monoid.encode(monoid.lift(observation))
    except TypeError:
        pass  # the monoid has its own encoding for other types


def encoded(processor: Aggregator, partials: Mapping[Slot, Any], keys: Sequence[bytes] = ()) -> Changes:
    """Return the encoded partials, by window key.

    Args:
        processor: has the monoid.
        partials: the partials.
        keys: their window keys, if they are known.

    Raises:
        ProcessorFailed: a partial cannot be encoded.
    """
    try:
        return dict(
            zip(keys or encode_window_keys(partials), processor.monoid.encode_all(partials.values()), strict=True)
        )
    except UNSAVEABLE:
        for (key, start), partial in partials.items():
            encoded_partial(processor, key, processor.window.window(start), partial)
        raise


def encoded_partial(processor: Aggregator, key: str, window: Window, partial: Any) -> bytes:
    """Return the encoded partial of a key and a window.

    Raises:
        ProcessorFailed: the partial cannot be encoded.
    """
    try:
        return processor.monoid.encode(partial)
    except UNSAVEABLE as error:
        advice = "Return other values from `observe`, or define the monoid's `dump`"
        if isinstance(error, OverflowError):
            advice = "Integers in a saved partial have 64 bits at most: " + (
                "write `sum(n::numeric)`"
                if processor.sql_query
                else "return smaller numbers or floats from `observe`, or text for large integers from the monoid's `dump`"
            )
        raise ProcessorFailed(
            f"{type(processor).__name__} cannot save the partial of key {key!r} in {_in_words(window)}, aggregated by "
            f"{processor.monoid!r}: {error}. Nothing of this checkpoint was saved. {advice}, and start again. If single observations are the cause, "
            f"declare `{plan_of(processor).dead_letter_setting}`."
        ) from error


def partial_decoder(processor: Aggregator) -> Callable[[bytes], Any]:
    """Return the function that decodes saved partials of an aggregator.

    It raises ProcessorFailed for one that its monoid did not save.
    """
    decode = processor.monoid.decode

    def decoded(saved: bytes) -> Any:
        try:
            return decode(saved)
        except USER_CODE_ERRORS as error:
            raise ProcessorFailed(
                f"{type(processor).__name__} cannot read a saved partial with {processor.monoid!r}: {error_in_words(error)}. It was saved by another "
                "version of the monoid; it is unchanged, and no event since the last checkpoint was saved. Let `load` accept the earlier form, too, or "
                'undo the change; to begin without state, give the class another name (`name = "…"`).'
            ) from error

    return decoded


class AggregatorOperator:
    """Folds observations into partials per key and window; a checkpoint merges them into the saved values.

    Args:
        processor: the aggregator.
        saved: the shard's state.
        time: the shard's event time. Default: as the processor declares.
    """

    def __init__(self, processor: Aggregator, saved: StateReader, time: ShardTime | None = None) -> None:
        self._processor = processor
        self._saved = saved
        self._values = WindowValues(saved)
        self._folding = PartialFolder(processor)
        self.time = time or time_of(processor, saved)
        self._keeps_newest = plan_of(processor).keeps_newest

    def feed(self, category: AnyCategory, events: Sequence[Any], *, stop_at_error: bool) -> StepResult:
        """Fold the events of one bucket, in order."""
        keys, times = self._processor.group_keys(category, events), category.time_array_of(events)
        assignment = self._windows(times)
        self._prepare(keys, assignment)
        rejected = self._folding.fold(events, keys, assignment, stop_at_error=stop_at_error)
        before_ms, times = self.time.low_ms, times[: processed_count(events, rejected, stop_at_error=stop_at_error)]
        return StepResult([], rejected, late_among(times, self.time.observe(category.name, times), before_ms))

    def feed_observed(
        self, observed: pa.Array[Any], keys: KeyGroups, times: Times, *, stop_at_error: bool
    ) -> StepResult:
        """Fold the observations of the events of one bucket, in order. Event time does not advance.

        Args:
            observed: the observation of each event, null for none.
            keys: the key of each event.
            times: the event times (milliseconds since 1970, UTC).
            stop_at_error: as in `feed`.
        """
        rejected = self._folding.fold_observed(observed, keys, self._windows(times), stop_at_error=stop_at_error)
        return StepResult([], rejected)

    def _windows(self, times: Times) -> WindowAssignment:
        window = self._processor.window
        if isinstance(window, Tumbling) and type(self._processor).windows_of is Aggregator.windows_of:
            return window.assign(times)  # it computes with arrays
        return self._processor.windows_of(times.tolist())

    def _prepare(self, keys: Sequence[str], assignment: WindowAssignment) -> None:
        """Prepare the partials of these keys and windows for folding."""

    def advance(self, upstream: Mapping[str, int], idle: Mapping[str, int]) -> StepResult:
        """Advance event time; no result depends on it."""
        self.time.advance(upstream, idle)
        return StepResult([], [])

    def tick(self, now_ms: int) -> StepResult:  # noqa: ARG002 - the protocol
        """Return nothing: results are written at checkpoints."""
        return StepResult([], [])

    def _saved_values(self, start: int, keys: Iterable[str]) -> dict[str, Any]:
        """Return the saved values of these keys in a window."""
        decode, slots = partial_decoder(self._processor), {(key, start): None for key in keys}
        found = zip(slots, self._values.fetch(encode_window_keys(slots)), strict=True)
        return {key: decode(value) for (key, _), value in found if value is not None}

    @property
    def partials(self) -> int:
        """The number of unmerged partials."""
        return sum(map(len, self._folding.panes.values()))

    def take_partials(self) -> dict[Slot, Any]:
        """Return the unmerged partials, by key and start of window, and forget them."""
        return self._folding.take()

    def take_panes(self) -> list[tuple[int, dict[str, Any]]]:
        """Return the same by key, for each start of a window in order."""
        return self._folding.take_panes()

    def drain(self) -> CheckpointResult:
        """Merge the partials into the saved values. Return the new values and the result of each changed window."""
        changes: Changes = {}
        outputs: list[Any] = []
        for partials in self._folding.take_parts():
            keys = encode_window_keys(partials)
            values = merged(self._processor, self._values, partials, keys)
            changes |= encoded(self._processor, values, keys)
            outputs += results(self._processor, values)
            if self._keeps_newest:
                [start] = {start for _, start in partials}
                later = window_starts(self._saved, start + 1)
                outputs += newest_results(self._processor, [key for key, _ in partials], later, self._saved_values)
        self._values.add(changes)
        changes |= self.time.drain()
        return CheckpointResult(outputs, changes)


class RemoteAggregatorOperator(AggregatorOperator):
    """The same over a remote store, which other programs read: event time is not saved there."""

    def drain(self) -> CheckpointResult:
        """Merge the partials into the saved values. Return the new values and the result of each changed window."""
        self.time.drain()
        partials = self.take_partials()
        values = merged(self._processor, self._saved, partials, encode_window_keys(partials))
        return CheckpointResult(results(self._processor, values), encoded(self._processor, values))


class ReadModifyWriteOperator(RemoteAggregatorOperator):
    """Reads a saved value at its first event after a checkpoint, and folds observations into it."""

    @cached_property
    def _decode(self) -> Callable[[bytes], Any]:
        return partial_decoder(self._processor)

    def _prepare(self, keys: Sequence[str], assignment: WindowAssignment) -> None:
        panes, decode, keys = self._folding.panes, self._decode, list(keys)
        slots = dict.fromkeys((keys[row], start) for row, start in zip(*assignment, strict=True))
        new = [(key, start) for key, start in slots if key not in panes.get(start, ())]
        for (key, start), saved in zip(new, self._saved.fetch(encode_window_keys(new)), strict=True):
            if saved is not None:
                panes.setdefault(start, {})[key] = decode(saved)

    def drain(self) -> CheckpointResult:
        """Return the new values and the result of each changed window."""
        values = self.take_partials()
        changes = encoded(self._processor, values)
        return CheckpointResult(results(self._processor, values), changes)


class AppendOnlyOperator(RemoteAggregatorOperator):
    """Writes partials without reading: the store merges them, on write or on read."""

    def drain(self) -> CheckpointResult:
        """Return the partials, without results."""
        return CheckpointResult([], encoded(self._processor, self.take_partials()))


def merged(
    processor: Aggregator, saved: SavedValues, partials: Mapping[Slot, Any], keys: Sequence[bytes]
) -> dict[Slot, Any]:
    """Return the new value of each window, in the order of `keys`, its window keys: its saved value combined with its partial."""
    combine, decode = processor.monoid.combine, partial_decoder(processor)
    found = saved.fetch(keys)
    return {
        slot: partial if value is None else combine(decode(value), partial)
        for (slot, partial), value in zip(partials.items(), found, strict=True)
    }


def results(processor: Aggregator, values: Mapping[Slot, Any]) -> list[Any]:
    """Return the records that an aggregator writes for windows with these values."""
    if not processor.writes:
        return []
    windows = {start: processor.window.window(start) for start in {start for _, start in values}}
    record_of = processor.record_of
    records: list[Any] = []
    for (key, start), partial in values.items():
        try:
            record = record_of(key, windows[start], partial)
        except USER_CODE_ERRORS as error:
            raise _result_failed(processor, key, windows[start], error) from error
        if record is not None:
            records.append(record)
    return records


def window_starts(saved: StateReader, begin: int | None = None) -> Iterator[int]:
    """Yield the starts of all windows with a saved value, in order; only those from `begin` on, if it is given."""
    place = b"" if begin is None else encode_time(begin)
    while slots := saved.scan(place, ENGINE_PREFIX, 1):
        start = decode_window_key(slots[0][0])[1]
        yield start
        if start == FOREVER_MS:
            return
        place = encode_time(start + 1)


def newest_results(
    processor: Aggregator,
    keys: Iterable[str],
    starts: Iterable[int],
    values: Callable[[int, Iterable[str]], dict[str, Any]],
) -> list[Any]:
    """Return the results of the newest window of each key, to write after those of an earlier window: of a key, the last row stays.

    Args:
        processor: the aggregator.
        keys: the keys of the earlier window.
        starts: the starts of the later windows.
        values: returns the values of keys in a window; a key without a value is missing.
    """
    outputs: list[Any] = []
    remaining = set(keys)
    for start in sorted(starts, reverse=True):
        found = values(start, sorted(remaining)) if remaining else {}
        outputs += results(processor, {(key, start): value for key, value in found.items()})
        remaining.difference_update(found)
    return outputs


def results_of(processor: Aggregator, key: str, window: Window, value: Any) -> list[Any]:
    """Return the record that an aggregator writes for a key and window, or an empty list.

    Raises:
        ProcessorFailed: the user's `result` raised.
    """
    if not processor.writes:
        return []
    try:
        record = processor.record_of(key, window, value)
    except USER_CODE_ERRORS as error:
        raise _result_failed(processor, key, window, error) from error
    return [] if record is None else [record]


def _result_failed(processor: Aggregator, key: str, window: Window, error: UserCodeError) -> ProcessorFailed:
    name, advice = f"{type(processor).__name__}.result", "Correct the processor"
    if processor.sql_query:
        advice = "Correct the query, such as `sum(n::numeric)` for a sum that is no bigint or `a / nullif(b, 0)` for a quotient,"
    return ProcessorFailed(
        f"{name} raised {error_in_words(error)}, for key {key!r} in {_in_words(window)}. Nothing of this checkpoint was saved. No single event causes a "
        f"result, so none can become a dead letter. {advice} and start it again."
    )


def _in_words(window: Window) -> str:
    if window.start == GLOBAL_WINDOW_START_MS:
        return "the global window"
    return f"the window from {nearest_datetime(window.start).isoformat()} to {nearest_datetime(window.end).isoformat()}"
