"""Checks that turn the status of processors into findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from ...processors import counted, human_duration
from .finding import Finding, Problem, Severity
from .state_findings import DISK_FREE_SHARE, backlog_of, last_wait_of, rollback_advice, state_problems
from .states import ProcessorState

if TYPE_CHECKING:
    from .status import ProcessorStatus, ShardStatus

LAG_S = 300.0
"""The lag and the watermark lag above which a processor gets a finding, in seconds."""
FALLING_BEHIND_S = 30.0
"""The lag above which a backlog that takes longer than `LAG_S` at the present throughput gets a finding, in seconds."""
SKEW_S = 60.0
"""The lag of one bucket above which it counts as skewed, in seconds."""
HOT_KEY_SHARE = 0.3
"""The share of a key in the events of a skewed bucket from which the key is the cause."""
LATE_CHECKPOINT = 3
"""The number of checkpoint intervals after which unsaved progress is late."""
LATE_CHECKPOINT_S = 30.0
"""The least age of unsaved progress that is late, however short the interval."""
RETENTION_S = 3_600.0
"""The remaining retention of an unread event below which a processor gets a finding, in seconds."""
DROPPED_SHARE = 0.02
"""The share of the events read that may be dropped as too late. The default watermark expects one late event in a hundred."""
NO_WATERMARK_S = 60.0
"""The time that a worker may run without a watermark, in seconds."""


def findings_of(processors: Iterable[ProcessorStatus], others: Iterable[Finding] = ()) -> tuple[Finding, ...]:
    """Return the findings of processors, and others, the most severe first."""
    found = [
        *others,
        *(
            Finding(status.node.name, *problem)
            for status in processors
            if status.state is not ProcessorState.PURGED
            for problem in _problems_of(status)
        ),
    ]
    return tuple(sorted(found, key=lambda finding: (-finding.severity, finding.processor, finding.kind)))


def _problems_of(status: ProcessorStatus) -> Iterator[Problem]:
    """Yield the problems of a processor; while it waits for a sink or a store, without the consequences."""
    waiting = status.waiting_worker
    for check in _CHECKS:
        if waiting is None or check not in _CONSEQUENCES_OF_A_WAIT:
            yield from check(status)


def _waits(status: ProcessorStatus) -> Iterator[Problem]:
    worker = status.waiting_worker
    if worker is not None:
        yield Problem(
            Severity.CRITICAL,
            "waits",
            f"Worker {worker.worker} on {worker.host} has waited for {worker.waits_for} for {human_duration(worker.waits_s)}: it does not answer, or is slow. The worker "
            "continues by itself when it answers, and nothing is lost. Check that service, and the worker's network to it.",
        )


def _slow_code(status: ProcessorStatus) -> Iterator[Problem]:
    worker = status.slow_code_worker
    if worker is not None:
        yield Problem(
            Severity.WARNING,
            "slow code",
            f"Worker {worker.worker} on {worker.host} has processed one batch for {human_duration(worker.waits_s)}: it is in {worker.waits_for}. It keeps its buckets, and nothing "
            f"is lost, but no checkpoint ends meanwhile.{_unopened(status)} If the line calls a service, give the call a time limit, so that its error reaches `on_error`.",
        )


def _unopened(status: ProcessorStatus) -> str:
    """Return which buckets no worker reads while one is in the processor's code, as a sentence to append."""
    unowned = _unowned(status)
    return (
        f" It opens no further bucket either: no worker reads {_named(unowned)} with a backlog of {_backlog(unowned)}."
        if unowned
        else ""
    )


def _unknown_figures(status: ProcessorStatus) -> Iterator[Problem]:
    if status.failed_queries:
        yield Problem(
            Severity.WARNING,
            "unknown",
            f"Kafka did not return {'; '.join(status.failed_queries)}. These figures are unknown, and alerts about them do not change; all other figures are correct. Monitoring "
            "retries with every poll.",
        )


def _without_input(status: ProcessorStatus) -> Iterator[Problem]:
    if not status.shards and not status.failed_queries:
        yield Problem(
            Severity.CRITICAL,
            "no input",
            f"None of its input categories exists: {', '.join(status.node.inputs)}. Create the app's categories with `penstock category create`.",
        )


def _failed_workers(status: ProcessorStatus) -> Iterator[Problem]:
    for worker in status.workers:
        if worker.has_failed and status.can_progress:
            yield Problem(
                Severity.WARNING,
                "failed",
                f"Worker {worker.worker} on {worker.host} failed {human_duration(worker.report_age_s)} ago: {worker.end_reason}{_left_behind(status)}",
            )


def _silent_workers(status: ProcessorStatus) -> Iterator[Problem]:
    for worker in status.workers:
        if worker.is_silent and status.state.is_working:
            yield Problem(
                Severity.CRITICAL,
                "silent",
                f"Worker {worker.worker} on {worker.host} (process {worker.pid}) has not reported for {human_duration(worker.report_age_s)}: it hangs, was "
                f"killed, or cannot reach Kafka.{last_wait_of(worker)}{_left_behind(status)} If the process still exists, end it with `kill -9 {worker.pid}` on {worker.host}"
                f"{', and its supervisor restarts it' if worker.deployment else ', and start it again'}.",
            )


def _left_behind(status: ProcessorStatus) -> str:
    """Return what failed and silent workers leave behind, as a sentence to append."""
    unowned = _unowned(status)
    if not unowned:
        return ""
    return f" No worker owns {_named(unowned)} with a backlog of {_backlog(unowned)}; others take over when the session times out."


def _unowned(status: ProcessorStatus) -> list[ShardStatus]:
    return [shard for shard in status.shards if not shard.owner and shard.backlog_events]


def _named(shards: list[ShardStatus]) -> str:
    return f"bucket{'s' * (len(shards) > 1)} {', '.join(str(shard.bucket) for shard in shards)}"


def _backlog(shards: list[ShardStatus]) -> str:
    return counted(sum(shard.backlog_events or 0 for shard in shards), "event")


def _unowned_buckets(status: ProcessorStatus) -> Iterator[Problem]:
    unowned = _unowned(status)
    is_explained = status.slow_code_worker is not None or any(
        worker.has_failed or worker.is_silent for worker in status.workers
    )
    if unowned and status.can_progress and not is_explained:
        yield Problem(
            Severity.WARNING,
            "without owner",
            f"No worker owns {_named(unowned)}; the backlog is {_backlog(unowned)}. A rebalance takes seconds. The "
            "buckets of a killed worker move when its session times out. Restoring state takes longer.",
        )


def _restarted_workers(status: ProcessorStatus) -> Iterator[Problem]:
    restarted = [worker for worker in status.running_workers if worker.restarts and worker.crash_loop_since_ms is None]
    if restarted and status.can_progress:
        names = " and ".join(f"{worker.worker} ({counted(worker.restarts, 'time')})" for worker in restarted)
        log = f"`penstock logs {status.node.name}`" if status.deployed is not None else "Its log"
        yield Problem(
            Severity.NOTE,
            "restarted",
            f"Within the last hour, it failed or was killed, and restarted: worker {names}. It runs again, and has processed the events since its last checkpoint "
            f"again. {log} shows the error; without one, it was killed, such as for lack of memory (`journalctl -k`).",
        )


def _lag(status: ProcessorStatus) -> Iterator[Problem]:
    if status.lag_s is None or not status.can_progress or status.skewed_shard is not None:
        return
    rate = status.per_s.events_in
    slowest = max(status.shards, key=lambda shard: shard.lag_s or 0.0, default=None)
    if slowest is None or not slowest.owner or slowest.blocked_by:
        return  # a bucket without an owner, or with an open transaction, lags for that reason, which is a finding of its own
    if status.lag_s > LAG_S or (status.lag_s > FALLING_BEHIND_S and _falls_behind(status)):
        shown = f"{rate:.2g}" if rate and rate < 10 else f"{rate or 0:,.0f}"
        throughput = f"its throughput is {shown} events/s" if rate else "it reads nothing"
        yield Problem(
            Severity.WARNING,
            "lag",
            f"I{backlog_of(status)[1:]}; its lag is {human_duration(status.lag_s)} (bucket {slowest.bucket}); {throughput}. Add workers, up to "
            f"{len(status.shards)}, or find the bottleneck in the worker's log.{rollback_advice(status, status.at_ms - round(status.lag_s * 1000))}",
        )


def _blocked(status: ProcessorStatus) -> Iterator[Problem]:
    blocked = [shard for shard in status.shards if shard.blocked_by]
    if blocked and status.can_progress:
        more = (
            f" So {'is' if len(blocked) == 2 else 'are'} {counted(len(blocked) - 1, 'further bucket')}."
            if len(blocked) > 1
            else ""
        )
        yield Problem(Severity.CRITICAL, "blocked", f"It waits. {blocked[0].blocked_by}{more}")


def _falls_behind(status: ProcessorStatus) -> bool:
    """Return whether the present throughput needs too long for the backlog."""
    runs_s = min(((status.at_ms - worker.started_ms) / 1000 for worker in status.running_workers), default=0.0)
    rate = status.per_s.events_in
    return runs_s > FALLING_BEHIND_S and (status.backlog_events or 0) > LAG_S * (rate or 0.0)


def _expiring_events(status: ProcessorStatus) -> Iterator[Problem]:
    # Also require that half of the retention has passed: a category may have a retention of minutes.
    expiring = [
        (shard.retention_remaining_s, shard.bucket)
        for shard in status.shards
        if shard.retention_remaining_s is not None
        and shard.retention_remaining_s < min(RETENTION_S, shard.lag_s or 0.0)
    ]
    if expiring:
        remaining_s, bucket = min(expiring)
        yield Problem(
            Severity.CRITICAL,
            "retention",
            f"Unread events of bucket {bucket} expire {'now' if remaining_s <= 0 else f'in {human_duration(remaining_s)}'}. Expired events are never "
            "processed. Raise the category's retention, or add workers.",
        )


def _late_checkpoint(status: ProcessorStatus) -> Iterator[Problem]:
    limit_s = max(LATE_CHECKPOINT * status.node.checkpoint_s, LATE_CHECKPOINT_S)
    for worker in status.running_workers:
        unsaved_s, running_s = status.unsaved_s(worker), worker.checkpoint_running_s or 0.0
        if running_s > limit_s:
            yield Problem(
                Severity.WARNING,
                "checkpoint",
                f"Worker {worker.worker} on {worker.host} has been saving a checkpoint for {human_duration(running_s)}; the interval is {status.node.checkpoint_s:g} s. "
                "After a crash it processes the events since the last one again. Kafka, its sink, or the disk with its state is slow, or does not answer.",
            )
        elif unsaved_s is not None and unsaved_s > limit_s:
            yield Problem(
                Severity.WARNING,
                "checkpoint",
                f"Worker {worker.worker} reads, but has completed no checkpoint for {human_duration(unsaved_s)}; the interval is "
                f"{status.node.checkpoint_s:g} s. After a crash it processes these events again. Its log contains the cause.",
            )


def _full_disk(status: ProcessorStatus) -> Iterator[Problem]:
    for worker in status.running_workers:
        if worker.disk_free_share is not None and worker.disk_free_share < DISK_FREE_SHARE:
            yield Problem(
                Severity.WARNING,
                "disk",
                f"The disk of worker {worker.worker} on {worker.host} has {worker.disk_free_share:.1%} free. When it is full, no checkpoint can be saved and the "
                "worker stops; no event is lost. Free space, or start the worker on a larger disk.",
            )


def _watermark_held_back(status: ProcessorStatus) -> Iterator[Problem]:
    shard = status.slowest_shard if status.shards else None
    if shard is not None and shard.held_by and status.watermark_lag_s is not None and status.watermark_lag_s > LAG_S:
        yield Problem(
            Severity.NOTE,
            "held back",
            f"Its watermark lag is {human_duration(status.watermark_lag_s)}; bucket {shard.bucket} is held back by {shard.held_by}. See docs/time.md.",
        )


def _without_watermark(status: ProcessorStatus) -> Iterator[Problem]:
    shard = status.slowest_shard if status.shards else None
    runs_s = max(((status.at_ms - worker.started_ms) / 1000 for worker in status.running_workers), default=0.0)
    if shard is not None and shard.low_watermark_ms is None and shard.held_by and runs_s > NO_WATERMARK_S:
        yield Problem(
            Severity.NOTE,
            "no watermark",
            f"It has no watermark yet: bucket {shard.bucket} is held back by {shard.held_by}. Its windows and timers wait, and so do processors "
            "that read its outputs by event time. For inputs with few events, declare `watermark = penstock.watermarks.BoundedOutOfOrderness(…)`. See docs/time.md.",
        )


def _dropped_events(status: ProcessorStatus) -> Iterator[Problem]:
    read, dropped = status.counts.events_in, status.counts.dropped
    if dropped > DROPPED_SHARE * read:
        yield Problem(
            Severity.WARNING,
            "late events",
            f"{counted(int(dropped), 'event')} of {int(read):,} read since its workers started were too late for their windows, and are missing in the results "
            f"({dropped / read:.1%}). If another processor writes the input, use its watermark, or declare its `max_output_delay`; for other inputs, declare "
            "`watermark = penstock.watermarks.BoundedOutOfOrderness(…)` with the lateness that occurs. docs/time.md has a table.",
        )


def _late_backup(status: ProcessorStatus) -> Iterator[Problem]:
    age_s, interval_s = status.shard_figures.backup_age_s, status.worker_figures.backup_interval_s
    if status.backup_outage_s is not None:
        yield Problem(
            Severity.WARNING,
            "backup",
            f"The backup store has not answered for {human_duration(status.backup_outage_s)}. The workers continue without new backups; after the loss of a disk, they read "
            "all later changes from Kafka. Check the store, and the workers' network to it.",
        )
    elif status.is_backup_late and age_s is not None:
        yield Problem(
            Severity.WARNING,
            "backup",
            f"A shard has had no new backup for {human_duration(age_s)}; the interval is {interval_s:g} s. After the loss of a disk, "
            "workers read all later changes from Kafka. Check that the backup store is reachable.",
        )


def _skew(status: ProcessorStatus) -> Iterator[Problem]:
    shard = status.skewed_shard
    # A bucket without an owner, or with an open transaction, lags for that reason, which is a finding of its own.
    if (
        shard is not None
        and shard.owner
        and not shard.blocked_by
        and (shard.lag_s or 0.0) > SKEW_S
        and status.can_progress
    ):
        yield Problem(
            Severity.WARNING,
            "skew",
            f"Bucket {shard.bucket}, owned by worker {shard.owner}, lags {human_duration(shard.lag_s or 0.0)}, and most other buckets less than a tenth of it. "
            f"{_cause_of_skew(shard)}",
        )


def _cause_of_skew(shard: ShardStatus) -> str:
    if not shard.hot_key or shard.hot_key_share is None:
        return "One key may have most of the events, or its worker is slow. More workers do not help with one key; repartition by another key."
    share = f"Key {shard.hot_key!r} has about {shard.hot_key_share:.0%} of its recent events"
    if shard.hot_key_share >= HOT_KEY_SHARE:
        return f"{share}, so more workers do not help: repartition by another key, or filter these events before."
    return f"{share}, so no single key is the cause: its worker is slow, or its backlog is old."


def _dead_letters(status: ProcessorStatus) -> Iterator[Problem]:
    rate, share = status.per_s.dead_letters, status.dead_letter_share
    if not rate and status.dead_letters:
        yield Problem(
            Severity.NOTE,
            "dead letters",
            f"{_count(status.dead_letters)} of this processor {_are(status.dead_letters)} pending; none is recent. List them with `penstock dead-letters show "
            f"{status.node.name}`.",
        )
    if rate > 0:
        stored = (
            ""
            if status.dead_letters is None
            else f"; {_count(status.dead_letters)} {_are(status.dead_letters)} pending"
        )
        yield Problem(
            Severity.WARNING,
            "dead letters",
            f"It rejects {counted(round(rate * 60), 'event')} per minute{f', {share:.1%} of its input' if share else ''}{stored}. Read the newest with "
            f"`penstock dead-letters show {status.node.name} --limit 1`.",
        )


def _are(dead_letters: int) -> str:
    return "is" if dead_letters == 1 else "are"


def _count(dead_letters: int) -> str:
    return counted(dead_letters, "dead letter")


def _versions(status: ProcessorStatus) -> Iterator[Problem]:
    versions = sorted({worker.deployment or "started manually" for worker in status.running_workers})
    if len(versions) > 1:
        yield Problem(
            Severity.NOTE,
            "versions",
            f"Its workers run different versions: {', '.join(versions)}. This is normal during a rolling update. After it, stop the workers of the old version.",
        )


_CONSEQUENCES_OF_A_WAIT = (_unowned_buckets, _lag, _late_checkpoint, _watermark_held_back, _without_watermark, _skew)

_CHECKS: tuple[Callable[[ProcessorStatus], Iterator[Problem]], ...] = (
    _unknown_figures,
    _without_input,
    state_problems,
    _waits,
    _slow_code,
    _failed_workers,
    _silent_workers,
    _unowned_buckets,
    _restarted_workers,
    _lag,
    _blocked,
    _expiring_events,
    _late_checkpoint,
    _full_disk,
    _watermark_held_back,
    _without_watermark,
    _dropped_events,
    _late_backup,
    _skew,
    _dead_letters,
    _versions,
)
