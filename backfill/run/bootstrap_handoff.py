"""States that were built in batch become those that a processor's workers go on with.

noted as begun --> backups of their shards --> told to the changelog --> promises taken back --> positions set --> noted as done

This is a move of the processor, as a reset is. No worker starts between the two notes, and states that are elsewhere, however far they are, do
not count any more, since they lack the move's number. Up to the first note nothing of what was built counts; who dies after it
does all of it again, and every step may be repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import msgspec

from ...processors.declare.processor import Processor
from ...processors.shard.checkpoints import Step, steps_of
from ...processors.shard.position import Offsets
from ...state.backups.fetch import no_progress
from ...state.backups.manifest import Manifest
from ...state.backups.restore import opened_backup
from ...state.backups.shard import ShardBackups
from ...state.backups.writer import expect_owner, publish
from ...state.files.file_store import FileStore
from ...transport.bus import Bus
from ...transport.changelog import changelog_spec, rewrite_changelog_bucket
from ...transport.internal_topics import create_missing_categories
from ...transport.messages import Bucket, Position
from ...transport.tables.maintenance_log import (
    MaintenanceOperation,
    Retyped,
    newest_maintenance,
    record_maintenance,
)
from ...transport.tables.maintenance_start import expect_idle, record_begin
from ...transport.tables.registrations import register_positions
from ...transport.tables.upstream_watermarks import delete_watermarks
from ..errors import BackfillRefused

WHAT = "bootstrap"
"""What such a move is called."""


class HandoffStep(Enum):
    """One durable step; all of them may be repeated."""

    NOTE_BEGIN = "note that it begins"
    PUBLISH = "let a state count as the newest backup"
    REWRITE_CHANGELOG = "tell the changelog"
    TAKE_BACK_PROMISES = "take promises back"
    SET_POSITIONS = "set positions"
    NOTE_END = "note that it is done"


class HandoffGap(NamedTuple):
    """A place where it can die: before a step, of a bucket where it is about one."""

    before: HandoffStep
    bucket: int | None = None


@dataclass(frozen=True)
class BootstrapHandoff:
    """What is to be handed over, and how its processor stood before anything was built.

    Args:
        processor: whose states are built; they lie beside its workers.
        bus: where it runs.
        place: where its workers look for backups.
        earlier: its newest move.
        committed: its group's positions, by input and bucket.
    """

    processor: type[Processor]
    bus: Bus
    place: FileStore
    earlier: MaintenanceOperation | None
    committed: Mapping[str, Mapping[int, int]]

    @property
    def number(self) -> int:
        """The maintenance number that the positions of the built states need."""
        return 1 if self.earlier is None else self.earlier.next_number

    def untouched(self, built: Mapping[int, object]) -> list[int]:
        """Return the buckets in which it has come further than the first event, and that are not among those built."""
        begun = {number for offsets in self.committed.values() for number, offset in offsets.items() if offset}
        return sorted(begun.difference(built))

    def expect_keyed_alike(self, begins: Mapping[int, Offsets]) -> None:
        """See that no state is to be built of events from when keys lay in other buckets.

        Args:
            begins: the first offset of each input that is read, by bucket.

        Raises:
            BackfillRefused: one would be.
        """
        borders = {} if self.earlier is None else self.earlier.borders
        before = sorted(
            number
            for number, offsets in begins.items()
            if any(offset < borders.get(name, {}).get(number, 0) for name, offset in offsets.items())
        )
        if before:
            raise BackfillRefused(
                f"{self.processor.__name__}: the number of buckets of what it reads was changed, and the archive begins before that (bucket "
                f"{', '.join(map(str, before))}), when keys lay in other buckets. State is built bucket by bucket, and theirs would be split. "
                "Nothing was changed. Begin with a day after the change (`--from DAY`), if what came before does not count; or let a "
                "penstock.Repartition write all of it to a category of its own, and archive and read that."
            )

    def perform(self, built: Mapping[int, Manifest], at_gap: Callable[[HandoffGap], None] = lambda _: None) -> None:
        """Let workers go on with what was built; durable on return.

        Args:
            built: by bucket, the states that are stored.
            at_gap: called in each gap between two steps.

        Raises:
            GroupInUse: a worker runs; nothing was changed.
            BackfillRefused, BackupFenced: it has run, or was moved, meanwhile; nothing was changed.
            FileStoreUnreachable, BusError: no worker starts until the bootstrap is given again.
        """
        move = self._noted(built)
        at_gap(HandoffGap(HandoffStep.NOTE_BEGIN))
        self._begin(move, built)
        for bucket, manifest in built.items():
            at_gap(HandoffGap(HandoffStep.PUBLISH, bucket))
            publish(self._backups(bucket), manifest)
        for bucket, manifest in built.items():
            at_gap(HandoffGap(HandoffStep.REWRITE_CHANGELOG, bucket))
            self._tell_changelog(bucket, manifest)
        at_gap(HandoffGap(HandoffStep.TAKE_BACK_PROMISES))
        delete_watermarks(self.bus, self.processor.name, self._going_back(built))
        at_gap(HandoffGap(HandoffStep.SET_POSITIONS))
        register_positions(self.bus, self.processor, built)
        self.bus.catalog.set_committed(self.processor.name, self._positions(built))
        at_gap(HandoffGap(HandoffStep.NOTE_END))
        record_maintenance(self.bus, msgspec.structs.replace(move, done=True))

    def _noted(self, built: Mapping[int, Manifest]) -> MaintenanceOperation:
        earlier = self.earlier
        numbers: dict[int, int] = {} if earlier is None else dict(earlier.numbers)
        begins: dict[int, Offsets] = {} if earlier is None else dict(earlier.begins)
        replaced = dict.fromkeys(built, self.number)
        if earlier is not None and not earlier.done:
            self._expect_continues(earlier, built)
        return MaintenanceOperation(
            self.processor.name,
            WHAT,
            time.time_ns() // 1_000_000,
            done=False,
            numbers={**numbers, **replaced},
            begins={bucket: position for bucket, position in begins.items() if bucket not in built},
            rebuilds=earlier is None or earlier.rebuilds,
            empties=True,
            borders={} if earlier is None else earlier.borders,
            retyped=self._retyped(replaced),
        )

    def _retyped(self, replaced: dict[int, int]) -> Retyped | None:
        before, shape = None if self.earlier is None else self.earlier.retyped, self.processor.state_shape()
        return None if before is None or shape is None else Retyped(shape, {**before.numbers, **replaced})

    def _expect_continues(self, earlier: MaintenanceOperation, built: Mapping[int, Manifest]) -> None:
        """Refuse what would leave a part of an earlier try as it is."""
        newest = max(earlier.numbers.values(), default=0)
        left = sorted(bucket for bucket, number in earlier.numbers.items() if number == newest and bucket not in built)
        if left:
            raise BackfillRefused(
                f"{self.processor.__name__}: a {WHAT} is half done, and this one has nothing for bucket {', '.join(map(str, left))}, which it "
                "was about, too. Nothing was changed. Give the same command again, with the same archive and days."
            )

    def _begin(self, move: MaintenanceOperation, built: Mapping[int, Manifest]) -> None:
        if newest_maintenance(self.bus, self.processor.name) != self.earlier:
            raise BackfillRefused(self._gone_on("was moved"))

        def expect_as_found() -> None:
            if committed_by(self.processor, self.bus) != self.committed:
                raise BackfillRefused(self._gone_on("has run"))
            for bucket, manifest in built.items():
                expect_owner(self._backups(bucket), manifest.epoch)

        record_begin(self.processor, self.bus, move, self.earlier, expect_as_found)

    def _gone_on(self, what: str) -> str:
        return (
            f"{self.processor.__name__} {what} while its states were built. Nothing was changed: it goes on as it did. Stop its workers, and "
            "give the command again."
        )

    def _backups(self, bucket: int) -> ShardBackups:
        return ShardBackups(self.place, self.processor.name, bucket)

    def _tell_changelog(self, bucket: int, manifest: Manifest) -> None:
        if Step.LOG_CHANGES in steps_of(self.processor):
            changelog = changelog_spec(self.processor)
            create_missing_categories(self.bus, changelog)
            with opened_backup(self._backups(bucket), manifest, no_progress) as state:
                rewrite_changelog_bucket(self.bus, changelog.name, bucket, state.items(), manifest.position)

    def _going_back(self, built: Mapping[int, Manifest]) -> set[int]:
        """Return the buckets of which something is written again."""
        return {
            bucket
            for bucket, manifest in built.items()
            for name, offsets in self.committed.items()
            if manifest.position.offsets.get(name, 0) < offsets.get(bucket, 0)
        }

    def _positions(self, built: Mapping[int, Manifest]) -> list[Position]:
        """Return where the group goes on; an input of which nothing is archived stays, but is of no checkpoint any more."""
        found = {
            Bucket(name, bucket): manifest.position.offsets.get(name, offsets.get(bucket))
            for bucket, manifest in built.items()
            for name, offsets in self.committed.items()
        }
        return [Position(bucket, offset) for bucket, offset in found.items() if offset is not None]


def plan_handoff(processor: type[Processor], bus: Bus, place: FileStore) -> BootstrapHandoff:
    """Look how a processor stands, before its states are built; nothing is changed.

    Raises:
        BackfillRefused: something else is half done.
        GroupInUse: a worker runs.
    """
    expect_idle(processor, bus)
    return BootstrapHandoff(processor, bus, place, settled_move(processor, bus), committed_by(processor, bus))


def settled_move(processor: type[Processor], bus: Bus) -> MaintenanceOperation | None:
    """Return a processor's newest move: one that is done, or a bootstrap that is given again.

    Raises:
        BackfillRefused: another one is half done.
    """
    move = newest_maintenance(bus, processor.name)
    if move is not None and not move.done and move.what != WHAT:
        raise BackfillRefused(
            f"{processor.__name__}: a {move.what} is half done. Nothing was started. Give that command again, which finishes it; then "
            "this one."
        )
    return move


def committed_by(processor: type[Processor], bus: Bus) -> dict[str, dict[int, int]]:
    """Return where a processor's group stands, by input and bucket."""
    return {
        category.name: dict(bus.catalog.committed(processor.name, category.name)) for category in processor.inputs()
    }
