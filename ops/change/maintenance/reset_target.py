"""Targets of a reset, and the offsets that they resolve to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from ....processors import counted
from ....transport import Bucket, Catalog
from ....transport.tables import MaintenanceRefused


class Edge(Enum):
    """The first or the last retained offset."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True)
class ExplicitOffsets:
    """The next unread offset of some buckets; other buckets stay where they are."""

    by_bucket: Mapping[Bucket, int]


ResetTarget = Edge | datetime | ExplicitOffsets


def describe_target(target: ResetTarget) -> str:
    """Return a target as text, for messages."""
    if isinstance(target, Edge):
        return target.value
    return f"{target:%Y-%m-%d %H:%M:%S}" if isinstance(target, datetime) else "offsets"


def parse_offsets(text: str, inputs: Iterable[str]) -> ExplicitOffsets:
    """Parse offsets from text: `0=120,1=44`, or, for several inputs, `clicks/0=120,buys/0=3`.

    Raises:
        MaintenanceRefused: the text is malformed, or names an unknown input.
    """
    names = list(inputs)
    offsets: dict[Bucket, int] = {}
    for part in text.split(","):
        left, _, offset = part.strip().partition("=")
        category, slash, number = left.rpartition("/")
        if not (number.isdecimal() and offset.isdecimal()):
            raise MaintenanceRefused(
                f"--to {text}: {part.strip()!r} is not an offset. Nothing was changed. Write earliest, latest, a time (2013-01-31T10:00, UTC), "
                'a duration ("2h ago"), or offsets as BUCKET=OFFSET, separated by commas: 0=120,1=44.'
            )
        if not slash and len(names) > 1:
            raise MaintenanceRefused(
                f"--to {text}: bucket {number} exists in several inputs ({', '.join(names)}). Nothing was changed. Name the input: "
                f"{names[0]}/{number}={offset}."
            )
        if slash and category not in names:
            raise MaintenanceRefused(
                f"--to {text}: {category} is not an input. Nothing was changed. Inputs are {', '.join(names)}."
            )
        bucket = Bucket(category or names[0], int(number))
        if bucket in offsets:
            raise MaintenanceRefused(f"--to {text}: {bucket} appears twice. Nothing was changed. Name it once.")
        offsets[bucket] = int(offset)
    return ExplicitOffsets(offsets)


def offsets_at(target: ResetTarget, catalog: Catalog, inputs: Iterable[str]) -> dict[Bucket, int]:
    """Return the offset of a target in each bucket that it includes.

    Raises:
        MaintenanceRefused: a bucket or an offset is not on the bus.
    """
    names = list(inputs)
    if isinstance(target, ExplicitOffsets):
        for bucket, offset in target.by_bucket.items():
            _require_retained(bucket, offset, catalog)
        return dict(target.by_bucket)
    return {
        Bucket(name, number): offset for name in names for number, offset in _offsets_in(target, catalog, name).items()
    }


def _offsets_in(target: Edge | datetime, catalog: Catalog, name: str) -> Mapping[int, int]:
    if isinstance(target, datetime):
        starts = catalog.describe(name).starts
        return {number: max(offset, starts[number]) for number, offset in catalog.at_time(name, target).items()}
    return catalog.describe(name).starts if target is Edge.EARLIEST else catalog.stable_ends(name)


def _require_retained(bucket: Bucket, offset: int, catalog: Catalog) -> None:
    category = catalog.describe(bucket.category)
    if bucket.number not in category.ends:
        raise MaintenanceRefused(
            f"{bucket.category} has no bucket {bucket.number}. Nothing was changed. It has {counted(category.spec.buckets, 'bucket')}, numbered from 0."
        )
    start, end = category.starts[bucket.number], category.ends[bucket.number]
    if not start <= offset <= end:
        raise MaintenanceRefused(
            f"{bucket} has no offset {offset:,}: Kafka retains {start:,} to {end:,}. Nothing was changed. `penstock category show "
            f"{bucket.category}` shows the retained offsets; `penstock backfill` processes expired events from the archive."
        )
