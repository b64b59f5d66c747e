"""An archiver that is paused at any step until it loses its membership, while its successor works: no event is lost, duplicated or undone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import lru_cache
from itertools import count
from typing import Any, cast

import msgspec
import pytest
from support.warehouses import MemoryWarehouse

import penstock as ps
from penstock.backfill.archive import (
    Archiver,
    LatenessAllowance,
    archived_ends,
    bucket_opener,
    compact,
    group_of,
    segments,
)
from penstock.backfill.archive.category_archive import FENCED_PAUSE_S
from penstock.backfill.warehouse import (
    DAY_MS,
    SUCCESS,
    Late,
    Listing,
    Note,
    Owners,
    Success,
    Warehouse,
    bucket_notes,
    claim,
    day_of,
    epochs_among,
    late_note,
    read_events,
    read_note,
    table_of,
)
from penstock.transport import Bucket, CategorySpec, Outgoing, Position
from penstock.transport.memory import MemoryBus

GROUP = group_of("readings")
SEGMENT = 6
BUCKETS = 2
HOUR_MS = DAY_MS // 24
BEGIN_MS = 15_000 * DAY_MS


class Reading(ps.Record, frozen=True):
    """A sensor's reading."""

    at: ps.EventTime
    value: int


READINGS = ps.Category("readings", Reading, key=lambda _: "k", event_time="at", buckets=BUCKETS)


_CHANGING = {"write", "create", "delete", "commit"}


@lru_cache(maxsize=4096)
def offsets_in(content: bytes) -> list[int]:
    """Return the offsets of a file's events."""
    return cast("list[int]", table_of(content).column("_offset").to_pylist())


class Steps:
    """Counts the calls of an archiver as steps, and pauses it before one of them.

    Args:
        pause_at: number of this step.
        meanwhile: called during the pause.
        after: called after each later step that changes data.
    """

    def __init__(self, pause_at: int, meanwhile: Callable[[], None], after: Callable[[], None]) -> None:
        self._left = pause_at
        self._meanwhile = meanwhile
        self.after = after
        self.paused = False

    def step(self) -> None:
        """Count a step."""
        self._left -= 1
        if self._left == 0:
            self.paused = True
            self._meanwhile()


class Stepped:
    """A bus, a reader or a warehouse whose every call is a step."""

    def __init__(self, target: Any, steps: Steps) -> None:
        self._target = target
        self._steps = steps

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if name == "catalog":
            return Stepped(found, self._steps)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            self._steps.step()
            given = found(*args, **options)
            if self._steps.paused and name in _CHANGING:
                self._steps.after()
            return Stepped(given, self._steps) if name == "reader" else given

        return call


def stepped(warehouse: Warehouse, steps: Steps) -> Warehouse:
    """Return a warehouse whose every call is a step."""
    files: Any = Stepped(warehouse.files, steps)
    return Warehouse(files)


class Site:
    """A bus and a warehouse, and the checks of what they contain."""

    def __init__(self) -> None:
        self.now_ms = BEGIN_MS + 30 * DAY_MS
        self.now_s = 0.0
        self.bus = MemoryBus(lambda: self.now_ms)
        self.bus.create(CategorySpec.of(READINGS))
        self.warehouse = MemoryWarehouse()
        self.sent = 0

    def send(self, *hours: float) -> None:
        """Write an event of each hour to each bucket."""
        for hour in hours:
            for bucket in range(BUCKETS):
                reading = Reading(BEGIN_MS + int(hour * HOUR_MS), self.sent)
                self.sent += 1
                self.bus.append("readings", Outgoing(b"k", msgspec.json.encode(reading), bucket))

    def archiver(self, steps: Steps | None = None) -> Archiver:
        """Return an archiver whose calls are steps."""
        bus: Any = self.bus if steps is None else Stepped(self.bus, steps)
        warehouse: Warehouse = self.warehouse if steps is None else stepped(self.warehouse, steps)
        return Archiver(
            bus,
            [READINGS],
            warehouse,
            segment_events=SEGMENT,
            patience=LatenessAllowance(ps.watermarks.BoundedOutOfOrderness(timedelta(hours=1)), timedelta(minutes=1)),
            monotonic_s=lambda: self.now_s,
            now_ms=lambda: self.now_ms,
        )

    def run(self, archiver: Archiver, *, turns: int = 3) -> None:
        """Run an archiver for a while."""
        for _ in range(turns):
            self.now_s += FENCED_PAUSE_S
            archiver.run_once()
        archiver.save()

    def offsets(self) -> Counter[tuple[int, int]]:
        """Return how often each offset is in the files that readers use, by bucket."""
        found: Counter[tuple[int, int]] = Counter()
        for file in Listing.of(self.warehouse, "readings").files:
            found.update((file.bucket, offset) for offset in offsets_in(self.warehouse.read(file)))
        return found

    def expect_whole(self) -> None:
        """Expect each event before the committed positions once, and a warehouse that records it."""
        committed = archived_ends(self.bus, self.warehouse, "readings")
        found = self.offsets()
        expected = {(bucket, offset) for bucket, end in committed.items() for offset in range(end)}
        assert expected <= found.keys()
        assert set(found.values()) <= {1}

    def expect_late(self) -> None:
        """Expect a record of each event that arrived for a complete day."""
        listing = Listing.of(self.warehouse, "readings")
        stored = [(file, offsets_in(self.warehouse.read(file))) for file in listing.files]
        for day, notes in listing.notes.items():
            success = read_note(self.warehouse, Note("readings", SUCCESS, day), Success)
            if success is None:
                continue
            late = sum(
                offset >= success.positions[file.bucket]
                for file, offsets in stored
                if file.day == day
                for offset in offsets
            )
            noted = [
                read_note(self.warehouse, late_note("readings", day, bucket, epochs[-1]), Late)
                for bucket, epochs in epochs_among(notes, "late").items()
            ]
            assert sum(one.events for it in noted if it for one in it.additions) == late, day


def reads(site: Site) -> Archiver:
    """The successor has read, but not saved."""
    archiver = site.archiver()
    archiver.run_once()
    archiver.run_once()
    return archiver


def saves(site: Site) -> Archiver:
    """The successor has saved."""
    archiver = site.archiver()
    site.run(archiver)
    return archiver


def continues(site: Site) -> Archiver:
    """The successor has saved several times, and its segments have changed."""
    archiver = saves(site)
    site.send(*range(40, 70, 3), 5)
    site.run(archiver)
    return archiver


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "WRITERS", 1)
    monkeypatch.setattr(bucket_opener, "WRITERS", 1)


def paused_archivers(successor: Callable[[Site], Archiver], every: int) -> Iterator[Site]:
    """Yield a site for every n-th step at which an archiver was paused and then continued beside its successor."""
    for pause_at in count(1, every):
        site, successors = Site(), list[Archiver]()

        def meanwhile(site: Site = site, successors: list[Archiver] = successors) -> None:
            site.bus.kill_members(GROUP)
            site.send(2, 26, 30, 51)
            successors.append(successor(site))
            site.expect_whole()

        steps = Steps(pause_at, meanwhile, site.expect_whole)
        site.send(0, 20, 25)
        site.run(site.archiver())
        site.bus.kill_members(GROUP)
        site.send(26, 3)
        paused = site.archiver(steps)
        site.run(paused)
        site.send(27, 28, 50, 52)
        site.run(paused)
        if not steps.paused:
            return
        site.send(80, 1, 90)
        for archiver in (
            successors[0],
            paused,
            successors[0],
        ):  # if it was paused before it joined, it shares the buckets
            site.run(archiver, turns=4)
        yield site


@pytest.mark.parametrize(
    ("successor", "every"), [(reads, 3), (saves, 1), pytest.param(continues, 2, marks=pytest.mark.exhaustive)]
)
def test_a_paused_archiver_changes_nothing_of_its_successors(successor: Callable[[Site], Archiver], every: int) -> None:
    """After every step of both, each event before the committed position exists once, and late events are recorded."""
    sites = 0
    for site in paused_archivers(successor, every):
        sites += 1
        site.expect_whole()
        site.expect_late()
        assert len(site.offsets()) == site.sent
        assert {note.marks[-1].offset for note in bucket_notes(site.warehouse, "readings").values()} == {
            site.sent // BUCKETS
        }
        # The next owner of the buckets removes the remaining files of the paused archiver, at the latest.
        site.bus.kill_members(GROUP)
        site.run(site.archiver())
        assert Listing.of(site.warehouse, "readings").superseded == ()
        list(compact(site.warehouse, "readings"))
        site.expect_whole()

    assert sites > 50 // every


@pytest.mark.parametrize(
    "limits", [(2**20, 2**20), (2**20, 7_000), pytest.param((7_000, 2**20), marks=pytest.mark.exhaustive)]
)
def test_a_paused_compaction_does_not_affect_the_next_compaction(limits: tuple[int, int]) -> None:
    """The archivers may have different size limits, and more segments may have become full since."""
    for pause_at in count(1):
        site = Site()

        def meanwhile(site: Site = site) -> None:
            site.send(*[4, 100] * 8)
            site.run(site.archiver())
            list(compact(site.warehouse, "readings", limit_bytes=limits[1]))
            site.expect_whole()

        steps = Steps(pause_at, meanwhile, site.expect_whole)
        site.send(*range(20), *[3] * 12, 60, 70)
        site.run(site.archiver())
        site.bus.kill_members(GROUP)
        list(compact(stepped(site.warehouse, steps), "readings", limit_bytes=limits[0]))
        site.expect_whole()
        if not steps.paused:
            break

    assert pause_at > 20


def test_a_former_owner_whose_commit_the_group_accepts_loses_nothing() -> None:
    """Kafka accepts the commit after the last member has left, so only the warehouse shows that a later owner exists."""
    site = Site()
    site.send(0, 20, 25, 30)
    site.run(site.archiver())
    site.bus.kill_members(GROUP)
    site.send(31, 32, 33)
    site.run(site.archiver())
    site.bus.kill_members(GROUP)
    site.send(*range(40, 50))
    site.bus.set_committed(
        GROUP, [Position(Bucket("readings", number), 12, checkpoint_id=1) for number in range(BUCKETS)]
    )
    site.run(site.archiver())

    site.expect_whole()
    assert len(site.offsets()) == site.sent


def test_expired_positions_are_restored_from_the_warehouse() -> None:
    """A group without members for a week continues at the end of its archive, and reports expired events."""
    site = Site()
    site.send(0, 20, 25, 30)
    site.run(site.archiver())
    site.bus.kill_members(GROUP)
    site.bus.forget_group(GROUP)
    site.send(31)
    archiver = site.archiver()
    site.run(archiver)

    assert archiver.metrics.events == BUCKETS
    assert site.bus.committed(GROUP, "readings") == {0: 5, 1: 5}
    site.expect_whole()


def test_an_abandoned_claim_does_not_block_the_owner() -> None:
    """An archiver claimed a bucket and died at once; the owner continues to complete days."""
    site = Site()
    site.send(0, 20)
    owner = site.archiver()
    site.run(owner)
    for number in range(BUCKETS):
        claim(site.warehouse, Owners.of(site.warehouse, "readings"), number, above=0)
    site.send(60, 61)
    for _ in range(3):
        site.run(owner)

    site.expect_whole()
    assert SUCCESS in Listing.of(site.warehouse, "readings").notes[day_of(BEGIN_MS)]


def test_a_reader_of_a_listed_file_gets_the_file_of_a_later_owner() -> None:
    """A reader that listed the files before the bucket moved finds all events that were committed then."""
    site = Site()
    site.send(0, 20, 25)
    site.run(site.archiver())
    listed = Listing.of(site.warehouse, "readings").files
    site.bus.kill_members(GROUP)
    site.send(0, 20, 25)
    site.run(site.archiver())
    read = Counter((file.bucket, offset) for file in listed for offset in offsets_in(read_events(site.warehouse, file)))

    assert not set(listed) & set(Listing.of(site.warehouse, "readings").files)
    assert read == {(bucket, offset): 1 for bucket in range(BUCKETS) for offset in range(6)}
