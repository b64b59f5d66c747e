"""Where a reset leads: what was asked for, and the offset in each bucket that it comes to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from ...transport.bus import Catalog
from ...transport.messages import Bucket
from .errors import MaintenanceRefused


class Edge(Enum):
    """An edge of what the bus keeps."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True)
class Offsets:
    """The next unread offset of some buckets; others stay where they are."""

    of: Mapping[Bucket, int]


ResetTarget = Edge | datetime | Offsets


def parse_offsets(text: str, inputs: Iterable[str]) -> Offsets:
    """Read offsets as a person writes them: `0=120,1=44`, or, of several inputs, `clicks/0=120,buys/0=3`.

    Raises:
        MaintenanceRefused: it is something else, or names what is no input.
    """
    names = list(inputs)
    found: dict[Bucket, int] = {}
    for part in text.split(","):
        place, _, offset = part.strip().partition("=")
        category, slash, number = place.rpartition("/")
        if not (number.isdecimal() and offset.isdecimal()):
            raise MaintenanceRefused(
                f"--to {text}: {part.strip()!r} is no offset of a bucket. Write earliest, latest, a time (2013-01-31T10:00, UTC), a span "
                '("2h ago"), or offsets: BUCKET=OFFSET, separated by commas, as 0=120,1=44. Nothing was changed.'
            )
        if not slash and len(names) > 1:
            raise MaintenanceRefused(
                f"--to {text}: which input's bucket {number} is meant? There are {', '.join(names)}: write {names[0]}/{number}={offset}. "
                "Nothing was changed."
            )
        if slash and category not in names:
            raise MaintenanceRefused(
                f"--to {text}: {category} is no input. There is {', '.join(names)}. Nothing was changed."
            )
        bucket = Bucket(category or names[0], int(number))
        if bucket in found:
            raise MaintenanceRefused(f"--to {text}: {bucket} is named twice. Nothing was changed.")
        found[bucket] = int(offset)
    return Offsets(found)


def offsets_at(target: ResetTarget, catalog: Catalog, inputs: Iterable[str]) -> dict[Bucket, int]:
    """Return the offset that a target comes to, in each bucket that it is about.

    Raises:
        MaintenanceRefused: a bucket, or an offset in it, that is not on the bus.
    """
    names = list(inputs)
    if isinstance(target, Offsets):
        for bucket, offset in target.of.items():
            _expect_there(bucket, offset, catalog)
        return dict(target.of)
    return {
        Bucket(name, number): offset for name in names for number, offset in _offsets_in(target, catalog, name).items()
    }


def _offsets_in(target: Edge | datetime, catalog: Catalog, name: str) -> Mapping[int, int]:
    if isinstance(target, datetime):
        starts = catalog.describe(name).starts
        return {number: max(offset, starts[number]) for number, offset in catalog.at_time(name, target).items()}
    return catalog.describe(name).starts if target is Edge.EARLIEST else catalog.stable_ends(name)


def _expect_there(bucket: Bucket, offset: int, catalog: Catalog) -> None:
    state = catalog.describe(bucket.category)
    if bucket.number not in state.ends:
        raise MaintenanceRefused(
            f"{bucket.category} has no bucket {bucket.number}: it has {state.spec.buckets}, from 0 on. Nothing was changed."
        )
    start, end = state.starts[bucket.number], state.ends[bucket.number]
    if not start <= offset <= end:
        raise MaintenanceRefused(
            f"{bucket} has no offset {offset:,}: the bus keeps {start:,} to {end:,} of it (`penstock category describe "
            f"{bucket.category}`). What it has dropped is in the archive, if there is one: `penstock backfill`. Nothing was changed."
        )
