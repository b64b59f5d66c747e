"""Comparison of a clone with the original app: the outputs that both have written since the snapshot, by category.

original categories, from the snapshot on    --|
                                               |--by key and event time--> Comparison
the clone's own categories                   --|
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

import msgspec

from ....backfill.compare import EXAMPLES, Comparison, Sides
from ....processors.apps import App
from ....processors.declare import AnyCategory, Processor, plan_of
from ....processors.time import NEVER_MS
from ....transport import Bus
from ....transport.tables import (
    Clone,
    WatermarkStatement,
    lineage_of,
    newest_maintenance,
    registration_of,
    watermarks_on,
)
from ...look_back import OutputRecord, arrived_from, compare
from ..snapshots import began_ms
from .cloning import CloneRefused, original_of


@dataclass(frozen=True)
class ComparedTimes:
    """The event times of the compared outputs (milliseconds since 1970, UTC).

    Args:
        since: the first one.
        until: the end, not included; None for the time that both apps have reached, in each category.
        complete: the time before which both have written all of their outputs.
    """

    since: float = -inf
    until: float | None = None
    complete: float = inf


def compare_clone(clone: App, bus: Bus, times: ComparedTimes, name: str) -> list[Comparison]:
    """Compare the outputs of a clone with those of the original app, by original category. Both may run.

    Args:
        clone: the app under the clone's names, or one processor of it.
        bus: the bus of both.
        times: the range of event times.
        name: the name of the clone in the result.

    Raises:
        CloneRefused: there is no such clone, or an operation has moved its positions since it was made, or those of the original app since the
            snapshot.
    """
    sides = Sides("original", name)
    begins = {processor: _begins(processor, bus) for processor in clone.processors}
    watermarks = watermarks_on(bus)  # before the outputs, which are complete up to them
    found: dict[str, Comparison] = {}  # several processors may write one category
    for processor in clone.processors:
        both = (original_of(processor), processor)
        complete = replace(times, complete=min(complete_until(each, watermarks) for each in both))
        for comparison in _compared(processor, begins[processor], bus, complete, sides):
            found.setdefault(comparison.category, comparison)
    return list(found.values())


def _begins(processor: type[Processor], bus: Bus) -> Mapping[str, Mapping[int, int]]:
    operation = newest_maintenance(bus, processor.name)
    if operation is None or not operation.is_done:
        raise CloneRefused(
            f"There is no {processor.name}: its clone was never made, or is unfinished. Nothing was compared. Make it with `penstock clone`."
        )
    clone, reset = operation.lineage.clone, operation.lineage.last_reset
    if clone is None or reset is not None:
        changed = operation.kind if reset is None else reset.kind
        raise CloneRefused(
            f"{processor.name} has had a {changed} since it was made, so it has not written the same outputs as the original. Nothing was "
            "compared. Make another clone, and compare that one."
        )
    _expect_not_repeated(processor, clone, bus)
    return clone.begins


def _expect_not_repeated(processor: type[Processor], clone: Clone, bus: Bus) -> None:
    """Raise CloneRefused if the original app has gone elsewhere in its inputs since the snapshot, and so has repeated outputs, or skipped some."""
    name = original_of(processor).name
    reset = lineage_of(newest_maintenance(bus, name)).last_reset
    if reset is not None and reset.started_ms >= began_ms(clone.snapshot):
        raise CloneRefused(
            f"{name} has had a {reset.kind} since snapshot {clone.snapshot}, so its outputs are not those of one run. Nothing was "
            "compared. Make a clone of a later snapshot, and compare that one."
        )


def complete_until(processor: type[Processor], watermarks: Mapping[tuple[str, int], WatermarkStatement]) -> float:
    """Return the event time before which a processor has written all outputs, also of events that wait for a retry; infinity if no shard knows one.

    Idle shards, and shards that have had too few events for a watermark, do not count.
    """
    statements = [watermarks.get((processor.name, number)) for number in range(plan_of(processor).inputs[0].buckets)]
    return min(
        (one.watermark_ms for one in statements if one is not None and not one.idle and one.watermark_ms != NEVER_MS),
        default=inf,
    )


def _has_run(processor: type[Processor], bus: Bus) -> bool:
    """Return whether a worker has opened a shard of a clone's processor since the clone was made."""
    return any(shard.worker for shard in registration_of(bus, processor.name).shards.values())


def _compared(
    processor: type[Processor], begins: Mapping[str, Mapping[int, int]], bus: Bus, times: ComparedTimes, sides: Sides
) -> Iterator[Comparison]:
    original, has_run = original_of(processor), _has_run(processor, bus)
    for theirs, ours in zip(plan_of(original).outputs, plan_of(processor).outputs, strict=True):
        left = _outputs(bus, theirs, begins[theirs.name], theirs.name)
        # Before it has run, its categories contain the messages in flight at the cut, which the original app has written.
        right = _outputs(bus, ours, dict.fromkeys(range(ours.buckets), 0), theirs.name) if has_run else []
        common = _common(times, left, right)
        chosen = [_within(common, outputs, is_compacted=theirs.compacted) for outputs in (left, right)]
        [found] = [
            each for each in compare(original, chosen[0], chosen[1], sides, EXAMPLES) if each.category == theirs.name
        ]
        missing = [side for side, records in zip(sides, (left, right), strict=True) if not records]
        note = f"{theirs.name}: no outputs of {' and '.join(missing)} since the snapshot." if missing else ""
        yield replace(found, note=note if has_run else f"{theirs.name}: {processor.name} has not run yet.")


def _outputs(bus: Bus, category: AnyCategory, begins: Mapping[int, int], name: str) -> list[OutputRecord]:
    """Return the outputs of a category under its original name. Buckets that were added since the cut are read from their beginning."""
    starts = bus.catalog.describe(category.name).starts
    first = {number: max(begins.get(number, 0), start) for number, start in starts.items()}
    return [msgspec.structs.replace(one.output, category=name, bucket=0) for one in arrived_from(bus, category, first)]


def _common(times: ComparedTimes, *sides: Sequence[OutputRecord]) -> ComparedTimes:
    """Return the range of event times; without an end, up to the last time of the side that is behind, or to the time before which all is written."""
    if times.until is not None:
        return times
    reached = {max((one.event_time for one in side if one.event_time is not None), default=-inf) for side in sides}
    # The last outputs of the side that is behind may be incomplete.
    return replace(times, until=min(min(reached) + (len(reached) == 1), times.complete))


def _within(times: ComparedTimes, outputs: Iterable[OutputRecord], *, is_compacted: bool) -> list[OutputRecord]:
    """Return the outputs in a range: all, or the last one of each key. Tombstones have no event time, and belong to each range."""
    until = inf if times.until is None else times.until
    found = [one for one in outputs if one.event_time is None or times.since <= one.event_time < until]
    return list({one.key: one for one in found}.values()) if is_compacted else found
