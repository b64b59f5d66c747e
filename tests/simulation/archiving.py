"""Archivers of a run: the library's archivers on a warehouse that is slow, unreachable, or interrupted during a write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from datetime import timedelta
from typing import Any

from support.warehouses import MemoryFileStore, MemoryWarehouse

import penstock as ps
from penstock.backfill import BackfillRefused
from penstock.backfill.archive import Archiver, archived_ends
from penstock.backfill.sources import handoff_offsets
from penstock.backfill.warehouse import Listing, Warehouse, table_of
from penstock.state import FileStoreUnreachable
from penstock.transport import Bucket, Bus
from penstock.transport.memory import MemoryBus

from .scheduler import Scheduler, SimulatedClock

SEGMENT_EVENTS = 16
WRITE_EVERY = timedelta(seconds=3)


class SequentialExecutor(Executor):
    """Runs each call at once, so the warehouse receives one request at a time."""

    def __init__(self, _: int = 1) -> None:
        super().__init__()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run the call."""
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class SimulatedFiles:
    """A process's access to the files of the warehouse. Faults may occur before and after each call.

    Args:
        stored: the files, shared by all processes.
        scheduler: runs other tasks during a call.
        is_unreachable: tells whether the warehouse is unreachable.
    """

    def __init__(self, stored: MemoryFileStore, scheduler: Scheduler, is_unreachable: Callable[[], bool]) -> None:
        self._stored = stored
        self._scheduler = scheduler
        self._is_unreachable = is_unreachable

    def __getattr__(self, name: str) -> Any:
        """Return a method of the warehouse with faults around it."""
        call = getattr(self._stored, name)
        if not callable(call):
            return call

        def request(*args: Any, **kwargs: Any) -> Any:
            self._scheduler.point(f"warehouse {name}")
            if self._is_unreachable():
                self._scheduler.sleep(1.0)
                raise FileStoreUnreachable("The warehouse does not answer.")
            answer = call(*args, **kwargs)
            if name == "read":
                answer = iter(list(answer))  # read now, not at the first access
            self._scheduler.point(f"after warehouse {name}")
            return answer

        return request


def archiver(bus: Bus, categories: list[ps.Category[Any]], files: Any, clock: SimulatedClock) -> Archiver:
    """Return an archiver."""
    return Archiver(
        bus,
        categories,
        Warehouse(files),
        segment_events=SEGMENT_EVENTS,
        write_every=WRITE_EVERY,
        monotonic_s=clock.monotonic_s,
        now_ms=clock.now_ms,
    )


def bootstrap_ends(bus: Bus, warehouse: MemoryWarehouse, category: str) -> Mapping[int, int]:
    """Return the end offset of each bucket that a bootstrap would now read from the archive."""
    return handoff_offsets(bus, warehouse, category).archive_only().ends


def events_in(warehouse: MemoryWarehouse, category: str) -> Counter[tuple[int, int]]:
    """Return how often the listed files contain each offset of each bucket."""
    found: Counter[tuple[int, int]] = Counter()
    for file in Listing.of(warehouse, category).files:
        offsets: list[Any] = table_of(warehouse.read(file)).column("_offset").to_pylist()
        found.update((file.bucket, offset) for offset in offsets)
    return found


def expect_no_gaps(bus: MemoryBus, warehouse: MemoryWarehouse, category: str) -> None:
    """Expect that a bootstrap would now read each event once, even during an archiver's write."""
    try:
        _expect_once(bus, warehouse, category, bootstrap_ends(bus, warehouse, category))
    except BackfillRefused:
        return


def expect_archived(bus: MemoryBus, warehouse: MemoryWarehouse, category: str) -> None:
    """Expect each event of a category once in the warehouse, up to the archived end offset, and all events archived."""
    ends = archived_ends(bus, warehouse, category)
    _expect_once(bus, warehouse, category, ends)
    for number in bus.ends(category):
        last = [message.at for message in bus.slice(Bucket(category, number), 0, 1 << 60)][-1:]
        assert all(at < ends.get(number, 0) for at in last), f"{category}/{number} is not archived to its end"


def _expect_once(bus: MemoryBus, warehouse: MemoryWarehouse, category: str, ends: Mapping[int, int]) -> None:
    found = events_in(warehouse, category)
    for number, end in ends.items():
        offsets = [message.at for message in bus.slice(Bucket(category, number), 0, 1 << 60) if message.at < end]
        missing = [at for at in offsets if not found[number, at]]
        again = [at for at in offsets if found[number, at] > 1]
        assert not missing, f"{category}/{number} is archived up to {end}, but without {missing[:10]}"
        assert not again, f"{category}/{number} has offsets more than once in the warehouse: {again[:10]}"
