"""Files that tasks read directly, while an archiver adds events to them."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import msgspec
import pytest

import penstock as ps
from penstock.backfill.archive import Archiver, archive_schema_of
from penstock.backfill.sources import PlannedFiles
from penstock.backfill.sources.files import Files
from penstock.backfill.warehouse import DAY_MS, Days, Listing, open_warehouse
from penstock.transport import Bucket, CategorySpec, Outgoing
from penstock.transport.memory import MemoryBus


class Reading(ps.Record, frozen=True):
    """A reading of a sensor."""

    sensor: str
    at: ps.EventTime


readings = ps.Category("readings", Reading, key="sensor", event_time="at", buckets=2)
FIRST = date(1970, 1, 1)


class Site:
    """A bus of two buckets and its archive, with segments of ten offsets."""

    def __init__(self, location: str) -> None:
        self.bus = MemoryBus()
        self.bus.create(CategorySpec.of(readings))
        self.warehouse = open_warehouse(location)

    def archive(self, days: list[int]) -> None:
        """Write an event of each day to each bucket, and archive them with a new owner."""
        for day in days:
            for bucket in range(2):
                reading = Reading(f"s{bucket}", day * DAY_MS)
                self.bus.append("readings", Outgoing(reading.sensor.encode(), msgspec.json.encode(reading), bucket))
        ends = {Bucket("readings", number): end for number, end in self.bus.ends("readings").items()}
        Archiver(self.bus, [readings], self.warehouse, segment_events=10).run(lambda it: it.has_reached(ends))

    def planned(self, last: date) -> PlannedFiles:
        """Assign the files for a run from the first day to another."""
        files = Files(self.warehouse, archive_schema_of(readings), by_event_time=True)
        return files.planned_until(Listing.of(self.warehouse, "readings"), Days(FIRST, last), 3)


def offsets(planned: PlannedFiles) -> dict[int, list[int]]:
    """Return the offsets that all tasks read now, by bucket."""
    found: dict[int, list[int]] = {0: [], 1: []}
    for files in planned.tasks:
        for batch in planned.read(files, ["_bucket", "_offset"], 4):
            for row in batch.to_pylist():
                found[row["_bucket"]].append(row["_offset"])
    return {bucket: sorted(of_bucket) for bucket, of_bucket in found.items()}


@pytest.mark.parametrize("archived", [7, 10, 27])
def test_tasks_read_the_events_before_the_plan(tmp_path: Path, archived: int) -> None:
    """All days are treated alike, even if another archiver has taken over the bucket since."""
    site = Site(str(tmp_path))
    site.archive([number % 3 for number in range(archived)])
    planned = site.planned(date(1970, 1, 3))
    before = offsets(planned)
    site.archive([number % 3 for number in range(20)])

    assert before == {0: list(range(archived)), 1: list(range(archived))}
    assert offsets(planned) == before
    assert offsets(site.planned(date(1970, 1, 3)))[1] == list(range(archived + 20))


def test_events_after_the_last_segment_of_the_days_are_not_read(tmp_path: Path) -> None:
    """Earlier events of other days are read, because they belong to the states of their keys."""
    site = Site(str(tmp_path))
    site.archive([0] * 5 + [9] * 10 + [0] * 3 + [9] * 22)

    assert offsets(site.planned(date(1970, 1, 2)))[0] == list(range(20))
    assert offsets(site.planned(date(1970, 1, 10)))[0] == list(range(40))
