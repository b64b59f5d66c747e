"""Repaired faults, brought back: the simulation must find each of them.

With each is the profile that makes the fault likely.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from . import guards


@dataclass(frozen=True)
class Mutant:
    """A repaired fault.

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


MUTANTS: dict[str, Mutant] = {
    "event time is not saved": Mutant(
        "Late events lie in windows that were written, after a restart.", "late", 100, guards.event_time_is_not_saved
    ),
    "chunks are dropped": Mutant("Sliding windows lack what lies far back.", "sliding", 60, guards.chunks_are_dropped),
    "rows stay": Mutant("Events are given rows that were deleted.", "tables", 60, guards.rows_stay),
    "rows go when they are read": Mutant(
        "A deletion takes effect at another time than its own.", "tables", 200, guards.rows_go_when_they_are_read
    ),
    "unanswered batches are skipped": Mutant(
        "Events are lost while a lookup waits for its rows.", "lookups", 60, guards.unanswered_batches_are_skipped
    ),
    "former keys stay": Mutant(
        "Records that are keyed anew lie where they lay.", "spread", 20, guards.former_keys_stay
    ),
    "schemas come later": Mutant(
        "Messages of a dead worker contain an unknown schema.", "avro", 100, guards.schemas_come_later
    ),
    "promises before their events": Mutant(
        "Windows are complete before their events are read, behind two processors.",
        "long",
        100,
        guards.promises_before_their_events,
    ),
    "one shard speaks for all": Mutant(
        "Windows are complete when the first of many shards upstream says so.",
        "buckets",
        100,
        guards.one_shard_speaks_for_all,
    ),
    "leftovers stay": Mutant(
        "Readers wait behind transactions whose markers were lost, or find them committed.",
        "markers",
        100,
        guards.leftovers_stay,
    ),
    "no sweeps": Mutant(
        "Readers wait forever for the open transaction of a vanished worker.", "markers", 300, guards.no_sweeps
    ),
    "stores take any write": Mutant(
        "A worker that was paused writes to the store over what its successor wrote.",
        "remote",
        100,
        guards.stores_take_any_write,
    ),
    "a bootstrap by the last file": Mutant(
        "A bootstrap leaves out what an archiver had not written when it died between two files.",
        "archive",
        120,
        guards.bootstrap_by_the_last_file,
    ),
    "expired positions make it new": Mutant(
        "A processor whose group's positions have expired begins anew.",
        "expired",
        150,
        guards.expired_positions_make_it_new,
    ),
    "deletions are missed": Mutant(
        "Deleted keys return from a changelog.", "deletions", 120, guards.deletions_are_missed
    ),
    "topics go by their names": Mutant(
        "Events of another topic of the same name are skipped and counted.",
        "recreated",
        60,
        guards.topics_go_by_their_names,
    ),
    "new buckets are read": Mutant(
        "Keys begin anew in buckets that were added.", "grown", 60, guards.new_buckets_are_read
    ),
    "early results are forgotten": Mutant(
        "Early results of open windows never come where their worker was another.",
        "early",
        60,
        guards.early_results_are_forgotten,
    ),
    "told again by a lost state": Mutant(
        "What silence or a watermark caused is written again where a state is lost.",
        "twice",
        120,
        guards.told_again_by_a_lost_state,
    ),
    "saved after a failure": Mutant(
        "Positions are committed of outputs that were never sent.", "full", 400, guards.saved_after_a_failure
    ),
    "archivers share an epoch": Mutant(
        "Events are archived, and written over by an archiver that was paused.",
        "archive",
        300,
        guards.archivers_share_an_epoch,
    ),
    "silence is idleness": Mutant(
        "An outage is taken for the silence of an input.", "silence", 300, guards.silence_is_idleness
    ),
    "idle before it is read": Mutant(
        "What an upstream shard wrote before it was idle comes too late.", "behind", 200, guards.idle_before_it_is_read
    ),
    "watermarks are no news": Mutant(
        "Windows behind a quiet stateless shard are never complete.", "promises", 80, guards.watermarks_are_no_news
    ),
}
"""The faults by name."""


def faulty(name: str | None) -> AbstractContextManager[object]:
    """Bring a fault back, in a block; none where none is named."""
    return nullcontext() if name is None else MUTANTS[name].faulty()
