"""The claims of the pages on guarantees, and the tests that fail if a claim is wrong."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = "".join(
    (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8") for page in ("guarantees", "failures", "bad-events")
)
DEATHS = "unit/test_crashes.py::test_guarantees_hold_whenever_workers_die"
KILLS = "faults/test_every_gap.py::test_guarantees_hold_after_a_kill"
LOST_DISKS = "faults/test_every_gap.py::test_guarantees_hold_without_the_disk"
REMOTE_KILLS = "faults/test_every_gap.py::test_guarantees_hold_in_a_remote_store"
SINK_DEATHS = (
    "contract/test_sink_writers.py::test_rows_in_postgresql_equal_the_truth_after_a_death_before_each_sort_of_operation"
)
SINK_KILLS = "faults/test_killed_sinks.py::test_rows_equal_the_truth_after_a_kill"
ZOMBIES = "faults/test_zombies.py::test_a_zombie_writes_nothing"
EVERY_EVENT = "unit/test_worker.py::test_every_event_is_processed_dead_lettered_or_stops_the_worker"

ROWS = {
    "at least once / at least once": (
        DEATHS,
        KILLS,
        LOST_DISKS,
        "unit/test_worker.py::test_at_least_once_really_repeats",
    ),
    "at most once / at most once": (DEATHS, KILLS, LOST_DISKS, "unit/test_worker.py::test_at_most_once_really_loses"),
    "exactly once / at least once": (DEATHS, KILLS, LOST_DISKS),
    "exactly once / at most once": (DEATHS, KILLS, LOST_DISKS),
    "exactly once / at most once, with a changelog": (
        DEATHS,
        KILLS,
        "unit/test_lost_states.py::test_no_output_repeats_whatever_state_is_lost",
    ),
    "exactly once / exactly once, local": (DEATHS, KILLS, LOST_DISKS, ZOMBIES),
    "exactly once / exactly once, remote": (
        DEATHS,
        REMOTE_KILLS,
        "contract/test_remote_fencing.py::test_a_zombie_changes_nothing",
    ),
    "stateless": (DEATHS, KILLS),
    "rows at least once": (DEATHS,),
    "rows at most once": (DEATHS,),
    "rows exactly once, stateless": (DEATHS, SINK_DEATHS, SINK_KILLS),
    "rows exactly once, local state": (DEATHS, SINK_DEATHS, SINK_KILLS),
    "a worker is killed and restarts within its session (45 s)": (
        "faults/test_moving.py::test_a_quick_restart_moves_nothing",
        KILLS,
    ),
    "a worker is killed while it gives up buckets, and restarts within its session": (
        "faults/test_moving.py::test_a_bucket_whose_owner_died_while_giving_it_up_gets_a_new_owner",
    ),
    "a worker is killed and does not restart": ("faults/test_killed_worker.py::test_killed_workers_lose_nothing",),
    "a worker is stopped (SIGTERM, Ctrl-C)": (
        "integration/test_run.py::test_sigterm_ends_with_a_last_checkpoint",
        "faults/test_broker_outage.py::test_a_worker_that_is_stopped_during_an_outage_ends_in_time",
        "unit/test_stopping.py::test_a_process_in_a_blocking_call_exits",
    ),
    "a worker pauses for longer than its session, then continues": (
        ZOMBIES,
        "contract/test_remote_fencing.py::test_a_zombie_changes_nothing",
        "contract/test_backup_owners.py::test_a_paused_owner_removes_nothing_of_a_later_owner",
    ),
    "the only replica of a bucket is killed with open transactions": (
        "faults/test_killed_broker.py::test_transactions_left_open_by_a_killed_broker_neither_count_nor_block",
        "unit/test_sweeping.py::test_open_transactions_of_silent_workers_are_aborted_after_the_limit",
    ),
    "the brokers confirm a commit and do not carry it out, as an overloaded lone broker may": (
        "unit/test_lost_markers.py::test_the_outputs_of_a_commit_without_markers_are_written_again",
        "contract/test_bus.py::test_a_commit_that_kafka_confirms_and_does_not_carry_out_does_not_count",
    ),
    "the brokers take the outputs of a checkpoint too slowly: a quota, a slow link, an overload": (
        "unit/test_output_pace.py::test_a_backlog_passes_a_bus_that_accepts_little",
        "unit/test_output_pace.py::test_checkpoints_grow_again_where_they_are_saved_quickly",
        "unit/test_output_pace.py::test_the_time_of_outputs_is_extended_up_to_what_the_brokers_allow",
        "contract/test_bus.py::test_kafka_refuses_a_transaction_that_is_longer_than_it_allows",
    ),
    "your code takes longer for a batch than `max.poll.interval.ms` (5 minutes)": (
        "unit/test_slow_code.py::test_a_worker_keeps_its_membership_while_code_of_a_processor_runs",
        "contract/test_bus.py::test_a_reader_that_is_kept_alive_keeps_its_buckets_without_polling",
        "unit/test_slow_code.py::test_a_reader_that_did_not_poll_blames_no_other_worker",
    ),
    "an archiver pauses for longer than its session, then continues": (
        "faults/test_archiver_zombies.py::test_a_paused_archiver_changes_nothing_of_its_successors",
        "unit/test_warehouse_fencing.py::test_a_paused_archiver_changes_nothing_of_its_successors",
    ),
    "one of three brokers is killed while it leads buckets or coordinates groups or transactions": (
        "faults/test_three_brokers.py::test_each_event_counts_once_while_one_broker_after_another_is_killed",
        "faults/test_three_brokers.py::test_a_category_survives_the_loss_of_any_broker",
    ),
    "Kafka is unreachable, for any length of time": (
        "faults/test_broker_outage.py::test_workers_of_every_row_outlast_a_long_outage",
        "faults/test_broker_outage.py::test_a_worker_that_starts_during_an_outage_waits",
        "unit/test_archiver_bus_outage.py::test_an_archiver_continues_after_a_recoverable_error",
        "unit/test_idleness.py::test_no_event_is_late_after_an_outage_longer_than_the_idle_timeout",
    ),
    "a disk or a store fails during a checkpoint": (
        "unit/test_worker_failures.py::test_guarantees_hold_after_a_failure_of_any_operation",
        "unit/test_worker_failures.py::test_guarantees_hold_if_the_disk_is_full_under_rocksdb",
    ),
    "the state folder is lost, or a bucket moves to a machine without it": (
        DEATHS,
        LOST_DISKS,
        "faults/test_lost_machine.py::test_a_lost_machine_is_restored_from_its_backup",
        "contract/test_backups.py::test_a_restore_succeeds_after_a_kill_at_any_step_of_another",
    ),
    "a second worker runs on a copy of a state folder": (
        "unit/test_worker_identity.py::test_a_copied_folder_has_another_identity",
        "unit/test_worker_failures.py::test_a_worker_whose_identity_another_process_uses_ends",
    ),
    "a backup is damaged": ("contract/test_backups.py::test_a_damaged_backup_is_replaced_by_the_previous_one",),
    "a file that several backups share is damaged": (
        "contract/test_backups.py::test_a_backup_shares_no_file_with_different_content",
        "contract/test_backups.py::test_each_backup_verifies_a_part_of_a_large_state",
        "integration/test_state_command.py::test_verify_finds_an_intact_backup_behind_a_damaged_one",
    ),
    "the backup store is unreachable": (
        "faults/test_hdfs_outage.py::test_a_long_hang_of_hdfs_affects_no_event",
        "faults/test_hdfs_outage.py::test_a_lost_state_waits_for_hdfs",
        "contract/test_backup_waiting.py::test_a_missing_state_waits_for_its_backup_store_and_logs_rarely",
    ),
    "PostgreSQL or Redis is unreachable": (
        "contract/test_remote_outages.py::test_a_save_whose_answer_is_lost_counts_once",
        "faults/test_stores.py::test_a_worker_waits_for_its_store_and_continues",
    ),
    "the state belongs to another processor, or has another type, window or key, or a newer format": (
        "contract/test_state.py::test_a_different_state_layout_is_refused_and_the_state_kept",
        "contract/test_state.py::test_a_state_of_another_format_is_refused",
        "contract/test_remote_writing.py::test_a_different_state_layout_is_refused_and_the_state_kept",
        "contract/test_backups.py::test_a_backup_of_a_different_state_layout_is_refused",
    ),
    "a position is before the first offset that Kafka retains": (
        "unit/test_resuming.py::test_expired_events_are_skipped_only_with_from_earliest",
        "integration/test_run.py::test_a_position_that_kafka_no_longer_retains_is_refused",
    ),
    "a position is after the end of a bucket: another cluster, or Kafka has lost events": (
        "unit/test_resuming.py::test_a_position_beyond_the_end_of_a_bucket_is_refused",
        "unit/test_resuming.py::test_the_state_of_another_bus_stays_unchanged",
    ),
    "a category was deleted and created again, or the state belongs to another cluster": (
        "unit/test_topics.py::test_a_topic_created_again_is_refused",
        "unit/test_topics.py::test_a_running_worker_notices_a_topic_created_again",
        "integration/test_wrong_bus.py::test_local_state_of_a_recreated_category_is_refused",
        "integration/test_wrong_bus.py::test_remote_state_of_a_recreated_category_is_refused",
    ),
    "another tool adds partitions to an input or output category": (
        "unit/test_topics.py::test_buckets_added_by_others_are_not_read",
        "unit/test_topics.py::test_a_worker_without_new_buckets_stops_too",
    ),
    "the disk is lost, there is no backup, and Kafka no longer retains the first event": (
        "faults/test_lost_machine.py::test_a_worker_refuses_to_start_without_state_backup_or_events",
    ),
    "an input is compacted, and a lost state would have to be rebuilt from it": (
        "unit/test_compacted_inputs.py::test_a_state_that_cannot_be_rebuilt_is_refused_before_the_first_event",
    ),
    "no worker has run for a week, and Kafka has expired the group's positions": (
        "unit/test_expired.py::test_another_machine_restores_the_backup",
        "unit/test_expired.py::test_the_last_worker_continues_with_its_state",
        "unit/test_expired.py::test_a_worker_without_state_does_not_start_from_the_beginning",
        "unit/test_lost_states.py::test_a_changelog_replaces_expired_positions_of_the_group",
    ),
    "a message that does not decode": (
        "unit/test_worker.py::test_an_undecodable_message_becomes_a_dead_letter",
        EVERY_EVENT,
    ),
    "a message without event time": (
        "unit/test_worker.py::test_an_event_without_event_time_stops_the_worker",
        EVERY_EVENT,
    ),
    "an event for which the processor raises an exception": (
        "unit/test_worker.py::test_a_failing_event_stops_the_worker_after_earlier_events_are_saved",
        "unit/test_worker.py::test_a_failing_event_becomes_a_dead_letter_if_declared",
        EVERY_EVENT,
    ),
    "an event of a lookup join whose key has no row": (
        "unit/test_lookups.py::test_each_event_is_joined_with_the_row_of_its_key",
        "unit/test_lookups.py::test_events_without_a_row_can_stop_the_worker",
    ),
    "a batch of a lookup join whose rows cannot be fetched": (
        "unit/test_lookups.py::test_an_unreachable_source_stops_the_worker_by_default",
    ),
    "an event time more than a day (`max_future`) after the event's arrival in Kafka": (
        "unit/test_worker.py::test_a_future_event_becomes_a_dead_letter_and_does_not_move_the_watermark",
        "unit/test_worker.py::test_a_future_event_can_stop_the_worker",
    ),
    "an event time outside the years 1 to 9999 (with `max_future = None`: beyond 62 bits)": (
        "unit/test_values.py::test_an_event_time_outside_the_calendar_becomes_a_dead_letter",
        "unit/test_values.py::test_without_a_limit_all_62_bit_event_times_are_accepted",
    ),
    "an event that is not in the bucket of its key, for processors with state per key": (
        "unit/test_placement.py::test_an_event_outside_of_its_keys_bucket_stops_the_worker",
    ),
    "more rejected events than `dead_letter_limit` allows": (
        "unit/test_rejections.py::test_a_stream_of_another_codec_does_not_become_dead_letters",
        "unit/test_rejections.py::test_a_worker_stops_if_more_than_half_of_the_last_thousand_events_are_bad",
    ),
    "a line at which the program of a pipe fails, or a message that is no line": (
        "unit/test_pipes.py::test_the_line_at_which_a_program_fails_is_found",
        "unit/test_pipes.py::test_a_message_that_is_no_line_is_rejected_alone",
        "integration/test_pipe_command.py::test_a_failing_line_stops_the_pipe_with_its_offset_and_loses_nothing",
    ),
    "a message of a table (`ps.TableJoin`) with a key and no value": (
        "unit/test_tables.py::test_a_message_without_a_value_deletes_the_row",
        DEATHS,
    ),
}
"""Tests per row; the key is the first cell of a row in the tables."""

SENTENCES = {
    "so a paused worker that wakes up writes nothing": (
        "contract/test_sink_writers.py::test_a_former_owner_writes_nothing",
    ),
    "A write whose answer was lost is repeated, and counts once": (
        "contract/test_sink_writers.py::test_a_write_whose_answer_is_lost_counts_once",
    ),
    "each row is in one file after any crash": (
        "unit/test_parquet_sink.py::test_files_contain_each_row_once_whenever_workers_die",
        "unit/test_parquet_sink.py::test_rows_of_an_unconfirmed_checkpoint_are_in_the_next_file",
    ),
    "wakes up finds the claim of its successor": (
        "unit/test_parquet_sink.py::test_a_worker_that_another_one_has_replaced_writes_nothing",
    ),
    "a request without an answer is repeated with the same `Idempotency-Key`": (
        "unit/test_http_sink.py::test_an_interrupted_request_is_repeated_under_its_key",
        "unit/test_http_sink.py::test_rows_have_the_declared_guarantee_whenever_workers_die",
    ),
    "At most once, no request is repeated": ("unit/test_http_sink.py::test_at_most_once_repeats_no_request",),
    "no transaction includes both": ("unit/test_sinks.py::test_combinations_that_cannot_hold_are_refused",),
    "The worker stops and says so": ("unit/test_sinks.py::test_a_sink_that_has_lost_rows_stops_the_worker",),
    "make the group's positions count again": ("unit/test_sinks.py::test_after_a_reset_the_group_decides_again",),
    "go to the dead letters, before the other rows of the checkpoint are written to a table": (
        "contract/test_sink_writers.py::test_refused_rows_are_left_out_and_the_others_are_written_once",
    ),
    "the worker stops before the checkpoint, and nothing of it is saved": (
        "contract/test_sink_writers.py::test_a_refused_row_can_stop_the_worker_and_writes_nothing",
    ),
    "Penstock refuses other pairs before the first event, and gives the reason": (
        "unit/test_declarations.py::test_an_invalid_declaration_is_refused",
    ),
    "A checkpoint starts after one second, 500,000 events or 256 MiB of input, whichever comes first": (
        "unit/test_worker.py::test_a_checkpoint_starts_at_the_first_limit_reached",
    ),
    "While a checkpoint is being saved, the worker reads and computes on": (
        "unit/test_worker.py::test_processing_continues_while_a_checkpoint_is_saved",
    ),
    "No other worker receives a bucket earlier": (
        "unit/test_worker.py::test_state_moves_with_the_buckets_between_two_workers",
        "faults/test_moving.py::test_buckets_move_while_they_are_opened",
    ),
    "appear once to readers of committed data": ("contract/test_bus.py::test_a_transaction_counts_as_a_whole", KILLS),
    "The same semantics apply to tombstones (`ps.Tombstone`), in order with the records of their key": (
        "unit/test_tombstones.py::test_tombstones_are_written_in_the_order_of_their_events",
        "unit/test_tombstones.py::test_each_tombstone_is_written_exactly_once_despite_crashes",
        "integration/test_written_tombstones.py::test_a_plain_client_reads_the_keys_and_null_values",
    ),
    "these may interleave differently, so the outputs may repeat": (DEATHS,),
    "A lost state is rebuilt from the changelog, exactly as it was committed": (
        DEATHS,
        "unit/test_changelog_in_sight.py::test_a_state_is_rebuilt_up_to_the_committed_checkpoint",
    ),
    "A state that may be further behind than half of that time is rebuilt from the whole changelog": (
        "unit/test_changelog_deletions.py::test_a_key_deleted_long_ago_stays_deleted",
    ),
    "A processor that had no changelog before and now needs one first writes its whole state to it": (
        "unit/test_worker.py::test_a_changelog_declared_later_contains_the_earlier_state",
        "faults/test_every_gap.py::test_a_changelog_that_begins_late_contains_the_earlier_state",
    ),
    "With exactly-once outputs no update is written twice": (DEATHS, KILLS),
    "the next owner commits them when it opens the bucket": (
        "unit/test_states_behind_outputs.py::test_the_groups_position_of_a_quiet_bucket_catches_up_with_its_state",
    ),
    "the worker checks every state and every partial of a checkpoint before it saves any of them": (
        "unit/test_values.py::test_an_invalid_partial_stops_the_worker_by_default",
        "unit/test_values.py::test_a_state_of_another_type_is_not_saved_beside_valid_states",
        "unit/test_values.py::test_an_invalid_state_stops_the_worker_by_default",
    ),
    "the event that produced it becomes a dead letter": (
        "unit/test_values.py::test_an_invalid_observation_becomes_a_dead_letter_in_any_storage",
    ),
    "Outputs that no transaction fences do not follow newer ones of its successor": (
        "unit/test_states_behind_outputs.py::test_a_paused_worker_sends_no_output_after_its_successor",
        "unit/test_states_behind_outputs.py::test_outputs_that_were_computed_before_a_pause_are_sent_by_the_owner_only",
    ),
    "inputs that have caught up wait for the others before the worker reads their new events": (
        "unit/test_states_behind_outputs.py::test_an_older_state_loses_no_new_event",
        "unit/test_states_behind_outputs.py::test_a_changelog_that_starts_after_the_outputs_loses_no_new_event",
        "unit/test_states_behind_outputs.py::test_updates_are_written_once_although_commit_markers_take_offsets",
        "unit/test_meeting.py::test_an_input_ahead_of_the_others_waits_at_its_stop_offset",
    ),
    "a worker whose remote store went back refuses to continue": (
        "contract/test_remote_fencing.py::test_a_store_that_lost_saves_is_noticed",
    ),
    "the store merges `Count`, `Sum`, `Mean`, `Min` and `Max` by its own arithmetic": (
        "contract/test_remote_merging.py::test_any_series_of_saves_folds_as_the_monoid_does",
    ),
    "Redis needs `appendonly yes`": (
        "contract/test_remote_refusals.py::test_a_redis_without_persistence_logs_one_warning",
    ),
    "A different number of buckets is refused": (
        "integration/test_run.py::test_co_partitioned_inputs_must_have_the_same_buckets",
    ),
    "so is a different partitioner or key codec": (
        "unit/test_keys.py::test_inputs_with_different_partitioning_are_refused",
    ),
    "Keys are assigned to buckets as the category's `partitioner` declares": (
        "unit/test_keys.py::test_outputs_are_in_the_buckets_of_the_declared_partitioner",
        "integration/test_partitioners.py::test_a_count_per_key_is_right_or_refused",
    ),
    "by default as Kafka's Java producers assign them (murmur2)": (
        "unit/test_windows_and_keys.py::test_murmur2_is_kafkas",
    ),
    "or as librdkafka's and Sarama's defaults, or by your own function": (
        "unit/test_keys.py::test_each_partitioner_is_librdkafkas",
        "unit/test_keys.py::test_hashes_are_the_published_ones",
    ),
    "with the declared key and partitioner that would match the messages of the batch": (
        "unit/test_keys.py::test_the_error_explains_the_bucket_of_a_message",
        "unit/test_keys.py::test_the_other_messages_of_the_batch_decide",
    ),
    "A category with an unknown partitioner (`partitioner=None`) is refused as its input": (
        "unit/test_keys.py::test_an_unknown_partitioner_needs_a_repartition",
    ),
    "A timer fires once, in order of time, and not before the watermark reaches it": (
        "unit/test_timers.py::test_timers_fire_once_in_order_and_not_early",
        DEATHS,
    ),
    "Pending early results (`AtWatermark(early=…)`), and the times at which they are due, are also part of the state": (
        "unit/test_windows_end.py::test_pending_early_results_survive_a_restart",
        "unit/test_windows_end.py::test_early_results_are_committed_without_further_events",
    ),
    "Outages are not idleness": (
        "unit/test_idleness.py::test_no_event_is_late_after_all_workers_paused",
        "unit/test_idleness.py::test_no_event_of_a_stopped_upstream_processor_is_late",
        "faults/test_silence.py::test_nothing_is_late_after_all_workers_were_paused",
    ),
    "A retried message is appended to its input category exactly once": (
        "unit/test_dead_letter_handling.py::test_retried_messages_pass_through_the_processor_once",
        "unit/test_dead_letter_handling.py::test_a_crash_before_the_commit_leaves_letters_pending",
        "unit/test_dead_letter_handling.py::test_a_second_command_ends_the_first",
        "faults/test_killed_retry.py::test_a_retry_killed_before_its_commit_repeats_nothing",
    ),
    "A dead letter contains the message's bytes, key, category, bucket, offset and the reason": (
        "unit/test_dead_letter_handling.py::test_a_letter_contains_the_traceback_of_the_users_code",
        "unit/test_dead_letter_handling.py::test_a_retried_message_keeps_its_headers",
        "contract/test_codecs.py::test_a_dead_letter_contains_the_bytes_and_fits_the_bus_limit",
        "unit/test_worker.py::test_an_undecodable_message_becomes_a_dead_letter",
    ),
    "and also its headers and timestamp": (
        "contract/test_codecs.py::test_a_dead_letter_contains_the_headers_or_counts_their_bytes",
        "unit/test_metadata.py::test_dead_letters_keep_headers_and_timestamps",
    ),
    "A processor's `on_undecodable` applies to every format": (
        "contract/test_formats.py::test_bad_messages_do_not_affect_good_ones",
        "contract/test_envelopes.py::test_other_messages_are_rejected",
    ),
    "A Protobuf message represents every field of its record, or the worker does not start": (
        "contract/test_protobuf.py::test_a_worker_refuses_a_record_that_does_not_fit_before_the_first_event",
        "contract/test_protobuf.py::test_a_record_that_does_not_fit_is_refused_with_fields_and_types",
    ),
    "A schema registry checks the schema of an output before the first event": (
        "integration/test_schema_registry.py::test_an_incompatible_change_is_refused_before_the_first_event",
        "contract/test_registry_keys.py::test_a_refused_schema_of_an_output_stops_a_worker_before_the_first_event",
        "contract/test_registry.py::test_an_incompatible_schema_is_refused_before_the_first_record",
        "contract/test_registry.py::test_an_unregistered_schema_is_refused_before_the_first_record",
    ),
    "If the registry does not answer, the worker stops, and no message counts as undecodable": (
        "contract/test_registry.py::test_an_unreachable_registry_is_an_error_and_no_bad_message",
    ),
    "Header fields of a record are saved and sent with it, under all semantics": (
        "unit/test_metadata.py::test_headers_are_sent_under_all_semantics",
        "contract/test_bus.py::test_messages_carry_headers",
    ),
    "The decision depends on the rejected events, not on batch boundaries": (
        "unit/test_rejections.py::test_the_dead_letter_limit_does_not_depend_on_batches",
    ),
    "Integers have 64 bits, signed, and floats are finite": (
        "contract/test_codecs.py::test_integers_have_64_bits",
        "contract/test_codecs.py::test_a_float_that_is_not_finite_is_refused_anywhere_in_a_record",
        "unit/test_values.py::test_a_backfill_refuses_the_same_values_as_the_stream",
    ),
    "Every output record is checked against its type": (
        "contract/test_codecs.py::test_every_record_of_a_batch_is_checked",
        "unit/test_values.py::test_a_nonfinite_output_stops_the_worker_before_its_batch_is_sent",
    ),
    "Stateless processors do not check": (
        "unit/test_placement.py::test_a_stateless_processor_accepts_events_in_any_bucket",
    ),
    "every attribute of a processor has its declared type, and no attribute is a near miss of a known name": (
        "unit/test_misspelled_declarations.py::test_a_value_of_another_type_is_refused",
        "unit/test_misspelled_declarations.py::test_a_misspelled_attribute_is_refused",
    ),
    "that the monoid satisfies its laws": (
        "unit/test_worker.py::test_a_monoid_that_breaks_a_law_is_refused_before_anything_is_saved",
    ),
    "event times are not in seconds, microseconds or nanoseconds": (
        "unit/test_worker.py::test_event_times_in_another_unit_are_refused",
    ),
    "Event times before 1970 are valid": (
        "unit/test_worker.py::test_event_times_before_1970_are_valid",
        DEATHS,
    ),
}
"""Tests per sentence; the key is a part of the sentence."""

TABLES = (
    "| state / output | durable steps",
    "| failure |",
    "| event | default |",
    "| rows of a sink | durable steps",
)


def first_cells() -> Iterator[str]:
    """Yield the first cell of each row in the tables of claims."""
    for table in TABLES:
        _, found, rest = PAGE.partition(f"\n{table}")
        assert found, f"no page has a table that begins with {table}"
        rows = rest.split("\n\n", 1)[0].splitlines()[2:]
        yield from (row.split(" | ")[0].removeprefix("| ") for row in rows)


@cache
def names_in(path: Path) -> frozenset[str]:
    """Return the names of a file's tests."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def test_each_row_of_the_page_has_tests() -> None:
    """Review the tests of a row when you add, remove or reword it."""
    assert sorted(first_cells()) == sorted(ROWS)


@pytest.mark.parametrize("words", SENTENCES)
def test_each_tested_sentence_is_on_the_page(words: str) -> None:
    """Each sentence is on the page, whatever its line breaks."""
    assert re.sub(r"\s+", " ", words) in re.sub(r"\s+", " ", PAGE)


@pytest.mark.parametrize("test", sorted({test for tests in (*ROWS.values(), *SENTENCES.values()) for test in tests}))
def test_the_tests_of_the_page_exist(test: str) -> None:
    """Update this map when you rename or remove a test."""
    path, name = test.split("::")

    assert name in names_in(ROOT / "tests" / path)
