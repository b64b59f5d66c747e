"""Faults that were mended, brought back: what finds them has to find them again.

A mutant puts the faulty behaviour in the place of a function of the library. With it is the profile that makes the fault likely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from math import inf
from unittest.mock import patch

from support.subjects import MOST
from support.warehouses import MemoryWarehouse

import penstock as ps
from penstock.backfill.archive import category_archive
from penstock.ops.worker import changelog_replay, shard_loader, topic_watch, worker
from penstock.ops.worker.checkpoint_executor import CheckpointExecutor
from penstock.ops.worker.shard import Shard
from penstock.ops.worker.watermark_subscriber import _Promiser
from penstock.ops.worker.worker import Worker
from penstock.processors.operators.early_results import EarlyResults
from penstock.processors.time.idleness import IdleDetector
from penstock.state import checkpoints

from . import archiving


@dataclass(frozen=True)
class Mutant:
    """A fault that was mended.

    Args:
        says: what goes wrong with it.
        profile: the profile that makes it likely.
        within: among how many seeds one is that finds it, by far. Which one depends on every line that the library runs.
        faulty: brings it back, in a block.
    """

    says: str
    profile: str
    within: int
    faulty: Callable[[], AbstractContextManager[object]]


def _silence_is_idleness() -> AbstractContextManager[object]:
    """Take a bucket for idle of which nothing came for long, whether or not the bus answers."""

    def is_idle(self: IdleDetector, now_s: float) -> bool:
        return now_s - self._heard_s >= self._patience.idle_after_s and self._heard_s > -inf

    return patch.object(IdleDetector, "is_idle", is_idle)


def _idle_before_it_is_read() -> AbstractContextManager[object]:
    """Believe a shard that is idle by now before what it had written is read."""

    def is_waited_for(self: _Promiser, _: object) -> bool:
        return not self.newest.idle

    return patch.object(_Promiser, "is_waited_for", is_waited_for)


def _watermarks_are_no_news() -> AbstractContextManager[object]:
    """Save, and promise, nothing where only event time has gone on."""

    def has_news(self: Shard) -> bool:
        moved = self.position != self.saved_position or self._reached() != self.committed
        return moved or bool(self.held) or bool(self.overlay.changes)

    return patch.object(Shard, "has_news", property(has_news))


def _early_results_are_forgotten() -> AbstractContextManager[object]:
    """Keep in memory alone which early results are pending."""
    return patch.object(EarlyResults, "_load", lambda *_: None)


def _told_again_by_a_lost_state() -> AbstractContextManager[object]:
    """Keep no changelog for outputs at most once that no event causes."""
    is_logged = checkpoints._is_logged

    def faulty_is_logged(processor: type[ps.Processor]) -> bool:
        return processor.output_semantics is not MOST and is_logged(processor)

    return patch.object(checkpoints, "_is_logged", faulty_is_logged)


def _saved_after_a_failure() -> AbstractContextManager[object]:
    """Let a worker whose state cannot be written save once more while it ends."""

    def abandon(self: Worker) -> None:
        self._saving.abandon()
        self._let_go(list(self._owned))

    def begin(self: CheckpointExecutor) -> None:
        self._waiting = []
        if self._transactional:
            self._transactions.enlist()

    def one_by_one(calls: Iterable[Callable[[], object]]) -> None:
        for call in calls:
            call()

    stack = ExitStack()
    stack.enter_context(patch.object(Worker, "_abandon", abandon))
    stack.enter_context(patch.object(CheckpointExecutor, "begin", begin))
    stack.enter_context(patch.object(worker, "do_all", one_by_one))
    return stack


def _archivers_share_an_epoch() -> AbstractContextManager[object]:
    """Let an archiver that was paused write over what its successor has written."""
    return patch.object(category_archive, "claim", lambda *_: 1)


def _expired_positions_make_it_new() -> AbstractContextManager[object]:
    """Take a group without positions for one that has never read."""
    return patch.object(shard_loader._Facts, "have_expired", lambda *_: False)


def _deletions_are_missed() -> AbstractContextManager[object]:
    """Bring a state up to date from where it was, however long ago that was."""
    return patch.object(changelog_replay, "_may_lack_deletions", lambda *_: False)


def _topics_go_by_their_names() -> AbstractContextManager[object]:
    """Go on in whatever has the name that a topic had."""
    return patch.object(shard_loader, "expect_same_topics", lambda *_: None)


def _new_buckets_are_read() -> AbstractContextManager[object]:
    """Read the buckets that another tool has added to a topic, and what lies in them."""
    stack = ExitStack()
    stack.enter_context(patch.object(topic_watch, "expect_buckets", lambda *_: None))
    stack.enter_context(patch.object(Worker, "_misplaced", lambda *_: []))
    return stack


def _bootstrap_by_the_last_file() -> AbstractContextManager[object]:
    """Take the largest offset in the files of a bucket for where its archive ends."""

    def by_files(_: object, warehouse: MemoryWarehouse, category: str) -> dict[int, int]:
        ends: dict[int, int] = {}
        for number, offset in archiving.events_in(warehouse, category):
            ends[number] = max(offset + 1, ends.get(number, 0))
        return ends

    return patch.object(archiving, "handed_over", by_files)


MUTANTS: dict[str, Mutant] = {
    "a bootstrap by the last file": Mutant(
        "A bootstrap leaves out what an archiver had not written when it died between two files.",
        "archive",
        120,
        _bootstrap_by_the_last_file,
    ),
    "expired positions make it new": Mutant(
        "A processor whose group's positions have expired begins anew.", "expired", 150, _expired_positions_make_it_new
    ),
    "deletions are missed": Mutant("Deleted keys return from a changelog.", "deletions", 120, _deletions_are_missed),
    "topics go by their names": Mutant(
        "Events of another topic of the same name are skipped and counted.", "recreated", 60, _topics_go_by_their_names
    ),
    "new buckets are read": Mutant("Keys begin anew in buckets that were added.", "grown", 60, _new_buckets_are_read),
    "early results are forgotten": Mutant(
        "Early results of open windows never come where their worker was another.",
        "early",
        60,
        _early_results_are_forgotten,
    ),
    "told again by a lost state": Mutant(
        "What silence or a watermark caused is written again where a state is lost.",
        "twice",
        120,
        _told_again_by_a_lost_state,
    ),
    "saved after a failure": Mutant(
        "Positions are committed of outputs that were never sent.", "full", 400, _saved_after_a_failure
    ),
    "archivers share an epoch": Mutant(
        "Events are archived, and written over by an archiver that was paused.",
        "archive",
        300,
        _archivers_share_an_epoch,
    ),
    "silence is idleness": Mutant(
        "An outage is taken for the silence of an input.", "silence", 300, _silence_is_idleness
    ),
    "idle before it is read": Mutant(
        "What an upstream shard wrote before it was idle comes too late.", "behind", 200, _idle_before_it_is_read
    ),
    "watermarks are no news": Mutant(
        "Windows behind a quiet stateless shard are never complete.", "promises", 80, _watermarks_are_no_news
    ),
}
"""The faults by name."""


def faulty(name: str | None) -> AbstractContextManager[object]:
    """Bring a fault back, in a block; none where none is named."""
    return nullcontext() if name is None else MUTANTS[name].faulty()
