"""Mutants: repaired faults that the simulation must find when they return, and rules that it must find broken.

Each mutant names a profile that makes its fault likely.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from . import repaired_faults


@dataclass(frozen=True)
class Mutant:
    """A repaired fault.

    Args:
        symptom: the effect of the fault.
        profile: the profile that makes it likely.
        seeds: a number of seeds that surely contains several failing ones. Which seeds fail depends on every line that the library runs; the
            search stops at the first.
        faulty: returns the fault, in a block.
    """

    symptom: str
    profile: str
    seeds: int
    faulty: Callable[[], AbstractContextManager[object]]


MUTANTS: dict[str, Mutant] = {
    "event time is not saved": Mutant(
        "After a restart, late events are added to completed windows.",
        "late",
        1_000,
        repaired_faults.event_time_is_not_saved,
    ),
    "chunks are dropped": Mutant("Sliding windows lack old events.", "sliding", 60, repaired_faults.chunks_are_dropped),
    "ended events come back": Mutant(
        "A join writes events without a match again.", "twice", 100, repaired_faults.ended_events_come_back
    ),
    "watermarks come after the end": Mutant(
        "A run to the end of its input leaves windows open that are complete.",
        "ends",
        300,
        repaired_faults.watermarks_come_after_the_end,
    ),
    "an outage is silence": Mutant(
        "A run to the end of its input ends before those before it, after an outage.",
        "ends",
        600,
        repaired_faults.an_outage_is_silence,
    ),
    "rows stay": Mutant("Events are joined with deleted rows.", "tables", 60, repaired_faults.rows_stay),
    "rows go when they are read": Mutant(
        "A deletion takes effect at a wrong time.",
        "tables",
        200,
        repaired_faults.rows_go_when_they_are_read,
    ),
    "unanswered batches are skipped": Mutant(
        "Events are lost while a lookup waits for its rows.",
        "lookups",
        60,
        repaired_faults.unanswered_batches_are_skipped,
    ),
    "tables are used before they are read": Mutant(
        "Events are joined with no row, although their rows are in the category.",
        "lookups",
        150,
        repaired_faults.tables_are_used_before_they_are_read,
    ),
    "tables are served before they are read": Mutant(
        "After a loss of its disk, a tier of Laser answers with older values, or with none.",
        "laser",
        40,
        repaired_faults.tables_are_served_before_they_are_read,
    ),
    "expired pairs are served": Mutant(
        "A tier of Laser answers with values whose lifetime is over.",
        "laser",
        20,
        repaired_faults.expired_pairs_are_served,
    ),
    "former keys stay": Mutant(
        "Repartitioned records stay in their old buckets.", "spread", 20, repaired_faults.former_keys_stay
    ),
    "schemas come later": Mutant(
        "Messages of a dead worker contain an unknown schema.", "avro", 100, repaired_faults.schemas_come_later
    ),
    "schemas count before they are written": Mutant(
        "Messages after an outage contain an unknown schema.",
        "clusters",
        100,
        repaired_faults.schemas_count_before_they_are_written,
    ),
    "other clusters are not flushed": Mutant(
        "Outputs on another cluster are lost with the process that wrote them.",
        "clusters",
        60,
        repaired_faults.other_clusters_are_not_flushed,
    ),
    "promises before their events": Mutant(
        "Downstream of two processors, windows complete before their events are read.",
        "long",
        100,
        repaired_faults.promises_before_their_events,
    ),
    "watermarks pass waiting outputs": Mutant(
        "Windows behind an at-least-once processor complete before all their events are written.",
        "prompt",
        1_000,
        repaired_faults.watermarks_pass_waiting_outputs,
    ),
    "one shard speaks for all": Mutant(
        "Windows complete at the watermark of the fastest upstream shard.",
        "buckets",
        500,
        repaired_faults.one_shard_speaks_for_all,
    ),
    "leftovers stay": Mutant(
        "Transactions whose markers were lost block readers, or are committed later.",
        "markers",
        100,
        repaired_faults.leftovers_stay,
    ),
    "confirmed commits count": Mutant(
        "Outputs of a commit that the brokers have confirmed and not carried out are never written.",
        "markers",
        200,
        repaired_faults.confirmed_commits_count,
    ),
    "old outputs are sent": Mutant(
        "The last update of a key is one of a worker that was paused, and older than its successor's.",
        "zombies",
        300,
        repaired_faults.old_outputs_are_sent,
    ),
    "no sweeps": Mutant(
        "Readers wait forever for the open transaction of a vanished worker.", "markers", 300, repaired_faults.no_sweeps
    ),
    "stores take any write": Mutant(
        "A worker that was paused overwrites its successor's values in the store.",
        "remote",
        100,
        repaired_faults.stores_take_any_write,
    ),
    "sinks take any write": Mutant(
        "A worker that was paused writes rows of events that its successor has read.",
        "sinks",
        100,
        repaired_faults.sinks_take_any_write,
    ),
    "sinks do not decide": Mutant(
        "Rows are written again after a crash between their transaction and the group's commit.",
        "sinks",
        100,
        repaired_faults.sinks_do_not_decide,
    ),
    "a bootstrap by the last file": Mutant(
        "A bootstrap skips the events that an archiver had not written when it died between two files.",
        "archive",
        600,
        repaired_faults.bootstrap_by_the_last_file,
    ),
    "expired positions make it new": Mutant(
        "A processor whose group's positions have expired restarts from the beginning.",
        "expired",
        150,
        repaired_faults.expired_positions_make_it_new,
    ),
    "deletions are missed": Mutant(
        "Deleted keys return from a changelog.", "deletions", 120, repaired_faults.deletions_are_missed
    ),
    "topics go by their names": Mutant(
        "Events of another topic of the same name are skipped and counted.",
        "recreated",
        60,
        repaired_faults.topics_go_by_their_names,
    ),
    "new buckets are read": Mutant(
        "In added buckets, keys restart without state.", "grown", 60, repaired_faults.new_buckets_are_read
    ),
    "early results are forgotten": Mutant(
        "After a change of owner, early results of open windows are never written.",
        "early",
        400,
        repaired_faults.early_results_are_forgotten,
    ),
    "written early results stay pending": Mutant(
        "After a change of owner, early results come again although nothing has changed.",
        "early",
        400,
        repaired_faults.written_early_results_stay_pending,
    ),
    "told again by a lost state": Mutant(
        "After the loss of a state, outputs caused by idleness or a watermark are written again.",
        "twice",
        120,
        repaired_faults.told_again_by_a_lost_state,
    ),
    "saved after a failure": Mutant(
        "Positions are committed although their outputs were never sent.",
        "nearly-full",
        600,
        repaired_faults.saved_after_a_failure,
    ),
    "backups that the store has lost are not missed": Mutant(
        "After the store was put back to an older copy, quiet shards have no newest backup.",
        "backups",
        100,
        repaired_faults.backups_that_the_store_has_lost_are_not_missed,
    ),
    "manifests come before their files": Mutant(
        "A backup names files that are missing.", "backups", 20, repaired_faults.manifests_come_before_their_files
    ),
    "databases are restored in place": Mutant(
        "A state that was killed while it was restored is opened without some of its files.",
        "backups",
        100,
        repaired_faults.databases_are_restored_in_place,
    ),
    "archivers share an epoch": Mutant(
        "An archiver that was paused overwrites archived events.",
        "archive",
        900,
        repaired_faults.archivers_share_an_epoch,
    ),
    "silence is idleness": Mutant(
        "An outage makes an input idle.", "silence", 1000, repaired_faults.silence_is_idleness
    ),
    "idleness is older than the events": Mutant(
        "Events that are on the bus when another input resumes are late.",
        "resumed",
        400,
        repaired_faults.idleness_is_older_than_the_events,
    ),
    "idle before it is read": Mutant(
        "Outputs that an upstream shard wrote before it became idle are late.",
        "behind",
        200,
        repaired_faults.idle_before_it_is_read,
    ),
    "outputs go on during a snapshot": Mutant(
        "A snapshot contains messages whose sender had not processed their causes.",
        "snapshots",
        60,
        repaired_faults.outputs_go_on_during_a_snapshot,
    ),
    "snapshots begin without shards": Mutant(
        "A worker without buckets ends when a snapshot begins.",
        "spares",
        40,
        repaired_faults.snapshots_begin_without_shards,
    ),
    "a restored state is current": Mutant(
        "A processor that went back alone never reads the events since the snapshot.",
        "restores",
        60,
        repaired_faults.a_restored_state_is_current,
    ),
    "events of a loop hold nothing": Mutant(
        "Windows behind a loop lack events that circulated when they became complete.",
        "loops",
        60,
        repaired_faults.events_of_a_loop_hold_nothing,
    ),
    "rounds of a loop wait for no reader": Mutant(
        "Windows behind a loop lack events that circulated for longer than a round.",
        "loops",
        200,
        repaired_faults.rounds_of_a_loop_wait_for_no_reader,
    ),
    "sessions end before their last event": Mutant(
        "A session is split at an event that was on time when it arrived.",
        "estimates",
        400,
        repaired_faults.sessions_end_before_their_last_event,
    ),
    "sessions that touch merge": Mutant(
        "Two sessions that are exactly a gap apart are one.",
        "estimates",
        100,
        repaired_faults.sessions_that_touch_merge,
    ),
    "windows accept events at their close": Mutant(
        "An event at the very end of the allowed lateness is in its window.",
        "late",
        100,
        repaired_faults.windows_accept_events_at_their_close,
    ),
    "joins forget a moment early": Mutant(
        "An event has no match although one is on time.", "resumed", 100, repaired_faults.joins_forget_a_moment_early
    ),
    "outputs that time out come again as many": Mutant(
        "Behind a quota or a slow link, the same transaction is tried again and again.",
        "quotas",
        60,
        repaired_faults.outputs_that_time_out_come_again_as_many,
    ),
    "outputs without a transaction wait only at checkpoints": Mutant(
        "Behind a quota, the outputs of one event or watermark are tried again and again.",
        "quotas",
        300,
        repaired_faults.outputs_without_a_transaction_wait_only_at_checkpoints,
    ),
    "positions go back while a state catches up": Mutant(
        "Outputs come again after another crash of a worker whose state was catching up.",
        "catch-ups",
        400,
        repaired_faults.positions_go_back_while_a_state_catches_up,
    ),
    "transactions of lost buckets go on": Mutant(
        "Outputs of a worker that was paused come again after its successor's.",
        "stalls",
        1_500,
        repaired_faults.transactions_of_lost_buckets_go_on,
    ),
    "retries of a former owner hold nothing": Mutant(
        "Downstream of a new owner, windows complete before the retried events of its predecessor.",
        "retried",
        150,
        repaired_faults.retries_of_a_former_owner_hold_nothing,
    ),
    "watermarks are published when a checkpoint begins": Mutant(
        "Windows downstream complete before the outputs of the checkpoint are written.",
        "long",
        150,
        repaired_faults.watermarks_are_published_when_a_checkpoint_begins,
    ),
    "statements apply one event early": Mutant(
        "Windows complete before the last event in front of an upstream watermark is read.",
        "prompt",
        300,
        repaired_faults.statements_apply_one_event_early,
    ),
    "new readers take the newest watermarks": Mutant(
        "After a compaction and a restart, windows complete before the events in front of an upstream watermark are read.",
        "compacted",
        300,
        repaired_faults.new_readers_take_the_newest_watermarks,
    ),
    "closed windows stay in the state": Mutant(
        "A state grows with each window for ever.", "late", 60, repaired_faults.closed_windows_stay_in_the_state
    ),
    "headers of producers count": Mutant(
        "A dead letter names the place of an event of another program.",
        "foreign",
        20,
        repaired_faults.headers_of_producers_count,
    ),
    "prepared states count without their id": Mutant(
        "Scheduled lines of an interrupted checkpoint are never written.",
        "schedules",
        400,
        repaired_faults.prepared_states_count_without_their_id,
    ),
    "timers fire before events on time": Mutant(
        "A timer fires before an earlier event that was on time when it arrived.",
        "estimates",
        400,
        repaired_faults.timers_fire_before_events_on_time,
    ),
    "jumps of a clock count at once": Mutant(
        "Schedules fire at wrong times, and miss right ones, after the clock of a machine was wrong for a moment.",
        "clocks",
        30,
        repaired_faults.jumps_of_a_clock_count_at_once,
    ),
    "watermarks are no news": Mutant(
        "Windows downstream of a quiet stateless shard never complete.",
        "promises",
        500,
        repaired_faults.watermarks_are_no_news,
    ),
}
"""The faults by name."""


def faulty(name: str | None) -> AbstractContextManager[object]:
    """Return a fault, in a block; without a name, change nothing."""
    return nullcontext() if name is None else MUTANTS[name].faulty()
