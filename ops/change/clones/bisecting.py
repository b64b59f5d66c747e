"""Bisection: the first event after which a condition on the state of a key holds.

snapshots --binary search--> the last one in which it does not hold, and the first one in which it does
          --replay between the two--> the event
it holds in no snapshot, nor later --replay before the last one--> the event after which it held for a while
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from ....processors import LogRateLimiter, PenstockError, counted, ending
from ....processors.declare import Processor, Stateful, plan_of
from ....processors.models import decode_model
from ....processors.operators import whole_states
from ....processors.shard import SourceEvents
from ....state.backups import BackupId, ShardBackups, no_progress, opened_backup
from ....state.files import FileStore
from ....transport import Bus
from ...kernel import open_processor
from ...look_back import (
    BusEventSource,
    Call,
    Empty,
    EventPlaces,
    FromBackup,
    KeySearch,
    PastRange,
    Replay,
    ReplayCallbacks,
    ReplayCounts,
    Start,
    hook_calls,
    past_watermarks,
)
from ..snapshots import Snapshot, SnapshotError

Condition = Callable[[Any], bool]
PROGRESS_S = 5.0
"""The interval of notes about the progress of a replay."""


class KeyNotRead(PenstockError):
    """No event has the key whose state was searched."""


@dataclass(frozen=True)
class Search:
    """A search for the cause of a state.

    Args:
        processor: the processor with the state.
        key: the key.
        holds: the condition on the key's state.
        bus: the bus with its events.
        store: the backup store with its snapshots; None without one.
        report: receives the progress.
    """

    processor: type[Stateful]
    key: str
    holds: Condition
    bus: Bus
    store: FileStore | None
    report: Callable[[str], None] = lambda _: None


@dataclass(frozen=True)
class Cause:
    """The first event after which the condition holds.

    Args:
        category: its category.
        bucket: its bucket number.
        offset: its offset; None if a timer caused it, or an event that was delivered later than read.
        arrived_ms: its arrival (milliseconds since 1970, UTC); None as for the offset.
        event: the event, or the timer.
        before: the state before it; None without one.
        after: the state after it.
        replayed: the number of events that were replayed.
    """

    category: str
    bucket: int
    offset: int | None
    arrived_ms: int | None
    event: Any
    before: Any
    after: Any
    replayed: int


def expect_searchable(processor: type[Processor]) -> type[Stateful]:
    """Return a processor whose states can be searched.

    Raises:
        SnapshotError: it is none.
    """
    is_searchable = issubclass(processor, Stateful) and len(plan_of(processor).inputs) == 1
    if not is_searchable or plan_of(processor).inputs[0].partitioner is None:
        raise SnapshotError(
            f"{processor.__name__} cannot be searched: bisection needs a penstock.Stateful with one input of a known partitioner. Nothing was read. "
            "`penstock replay --debug` stops at events of any processor."
        )
    return cast("type[Stateful]", processor)


def find_cause(search: Search, snapshots: Sequence[Snapshot]) -> Cause | None:
    """Return the cause; None if the condition holds after no event.

    The condition should stay true once it is true. Otherwise, the result is one of the events after which it became true.

    Args:
        search: the search.
        snapshots: the snapshots of the app, oldest first.

    Raises:
        SnapshotError: the condition holds in a snapshot, and after none of the events before it.
        KeyNotRead: no event has the key.
        ReplayRefused: the events before a snapshot in which the condition holds have expired.
    """
    number = plan_of(search.processor).inputs[0].bucket_of(search.key)
    taken = [snapshot for snapshot in snapshots if _backup_of(search, snapshot, number) is not None]
    after = _first_true(search, taken, number)
    points = [_Point(), *(_point_of(search, snapshot, number) for snapshot in taken)]
    before, until = points[after], points[after + 1] if after < len(taken) else None
    cause = _replayed(search, number, before, until)
    if cause is None and until is not None:
        raise SnapshotError(
            f"The condition holds in {until.name}, and after none of the events before it: {search.processor.__name__} processes them differently now. "
            "Nothing was written. Search with the code that ran then."
        )
    return cause or _held_before(search, number, points)


def _held_before(search: Search, number: int, points: Sequence[_Point]) -> Cause | None:
    """Search the events before the last snapshot for a condition that holds in no snapshot: it may have held between two of them."""
    name = plan_of(search.processor).inputs[0].name
    expired = search.bus.catalog.describe(name).starts[number]
    first = next((point for point in points if point.offset >= expired), points[-1])
    if expired:
        search.report(f"{name}/{number} is retained only from offset {expired:,}: the search starts at {first.name}.")
    if first == points[-1]:
        return None
    search.report("The condition holds in no snapshot. It may have held between two of them.")
    return _replayed(search, number, first, points[-1])


@dataclass(frozen=True)
class _Point:
    """A point at which a replay starts or ends.

    Args:
        offset: its offset in the bucket.
        start: the state there.
        name: its name, for messages.
    """

    offset: int = 0
    start: Start = field(default_factory=Empty)
    name: str = "the first event"


def _point_of(search: Search, snapshot: Snapshot, number: int) -> _Point:
    assert search.store is not None  # noqa: S101 - the snapshots come from it
    position = snapshot.processors[search.processor.name].shards[number].position
    return _Point(
        position.offsets[plan_of(search.processor).inputs[0].name],
        FromBackup(search.store, _expect(_backup_of(search, snapshot, number))),
        f"snapshot {snapshot.id}",
    )


def _first_true(search: Search, taken: Sequence[Snapshot], number: int) -> int:
    """Return the index of the first snapshot in which the condition holds; their number if there is none."""
    low, high = 0, len(taken)
    while low < high:
        middle = (low + high) // 2
        value = _state_in(search, taken[middle], number)
        is_true = value is not None and search.holds(value)
        search.report(f"Snapshot {taken[middle].id}: {search.key} has {value!r}: {'yes' if is_true else 'not yet'}.")
        low, high = (low, middle) if is_true else (middle + 1, high)
    return low


def _backup_of(search: Search, snapshot: Snapshot, number: int) -> BackupId | None:
    cut = snapshot.processors.get(search.processor.name)
    shard = cut.shards.get(number) if cut is not None and cut.shape == plan_of(search.processor).state_shape else None
    return BackupId.parse(shard.backup) if shard is not None and shard.backup else None


def _expect(backup: BackupId | None) -> BackupId:
    assert backup is not None  # noqa: S101 - only snapshots with a backup are searched
    return backup


def _state_in(search: Search, snapshot: Snapshot, number: int) -> Any:
    assert search.store is not None  # noqa: S101 - the snapshots come from it
    backups = ShardBackups(search.store, search.processor.name, number)
    manifest = backups.read(_expect(_backup_of(search, snapshot, number)))
    with opened_backup(backups, manifest, no_progress) as state:
        key = search.key.encode()
        [(_, saved)] = whole_states(search.processor, state, zip([key], state.fetch([key]), strict=True))
    decode = msgspec.msgpack.Decoder(plan_of(search.processor).saved_type, dec_hook=decode_model).decode
    return None if saved is None else decode(saved)


def _replayed(search: Search, number: int, since: _Point, until: _Point | None) -> Cause | None:
    name = plan_of(search.processor).inputs[0].name
    search.report(
        f"Replaying {name}/{number} from offset {since.offset:,} ({since.name}) to "
        + (f"{until.offset:,} ({until.name}) …" if until else "the end …")
    )
    span = PastRange(since.offset, None if until is None else until.offset)
    counts, watch, progress = ReplayCounts(), _Watch(search, number), LogRateLimiter(every_s=PROGRESS_S)
    progress.is_due()  # the first report comes after an interval
    with (
        ending(open_processor(search.processor, search.bus)) as running,
        past_watermarks(running, search.bus) as watermarks,
    ):
        hook_calls(running, watch.around)
        [shard] = Replay(running, BusEventSource(running, search.bus), span, since.start, [number], watermarks).shards()
        total = sum(stretch.end - stretch.start for stretch in shard.stretches)
        with closing(shard.play(counts, ReplayCallbacks(watch=watch.record))) as batches:
            for _ in batches:
                if watch.cause is not None:
                    return watch.cause
                if progress.is_due():
                    search.report(f"{watch.replayed:,} of {counted(total, 'event')} …")
    if watch.cause is None and isinstance(since.start, Empty) and not watch.keys.is_found:
        raise KeyNotRead(watch.keys.missing(search.bus, plan_of(search.processor).inputs[0]))
    return watch.cause


class _Watch:
    """Looks at the state of the key after each call of the processor."""

    def __init__(self, search: Search, number: int) -> None:
        self._search = search
        self._number = number
        self._places = EventPlaces()
        self.keys = KeySearch(search.key)
        self.cause: Cause | None = None

    def record(self, events: SourceEvents) -> None:
        """Remember events that are processed next."""
        self._places.record(events)
        self.keys.note(events)

    @property
    def replayed(self) -> int:
        """The number of events so far."""
        return self._places.count

    def around(self, call: Call, make: Callable[[], Any]) -> Any:
        """Make a call, and look at its result."""
        result = make()
        if self.cause is None and call.key == self._search.key and self._holds(result):
            self.cause = self._described(call, result[0])
        return result

    def _holds(self, result: Any) -> bool:
        is_valid = isinstance(result, tuple) and len(result) == 2
        return is_valid and result[0] is not None and self._search.holds(result[0])

    def _described(self, call: Call, after: Any) -> Cause:
        event, before = call.arguments[0], call.arguments[1]
        place = self._places.of(event)
        if place is None:
            name = plan_of(self._search.processor).inputs[0].name
            return Cause(name, self._number, None, None, event, before, after, self.replayed)
        return Cause(*place, event, before, after, self.replayed)
