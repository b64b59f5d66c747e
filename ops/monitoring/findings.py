"""Checks that turn the status of processors into findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from ...state.backups.backup_age import is_late
from ..humanize import human_duration
from .finding import Finding, Severity
from .reports import SILENT_AFTER_S, STOPPED

if TYPE_CHECKING:
    from .status import ProcessorStatus

LAG_S = 300.0
"""The lag above which a processor gets a finding."""
LATE_CHECKPOINT = 3
"""The number of checkpoint intervals after which unsaved progress is late."""
LATE_CHECKPOINT_S = 30.0
"""The least age of unsaved progress that is late, however short the interval."""
RETENTION_S = 3_600.0
"""The remaining retention of an unread event below which a processor gets a finding."""
NOT_BEGUN_S = 60.0
"""The time that a worker may run without a watermark."""
MANY_RESTARTS = 3
"""The number of restarts in an hour that is too high."""


def findings_of(processors: Iterable[ProcessorStatus]) -> tuple[Finding, ...]:
    """Return the findings of processors, the most severe first."""
    found = [finding for processor in processors for check in _CHECKS for finding in check(processor)]
    return tuple(sorted(found, key=lambda finding: (-finding.severity, finding.processor, finding.kind)))


def _unreadable(it: ProcessorStatus) -> Iterator[Finding]:
    if it.unread:
        yield Finding(
            Severity.WARNING,
            "unknown",
            it.node.name,
            f"Kafka did not return {'; '.join(it.unread)}. These figures are unknown and fire no alert; all other figures are correct. Monitoring "
            "retries with every poll.",
        )


def _not_run(it: ProcessorStatus) -> Iterator[Finding]:
    if not it.shards and not it.unread:
        yield Finding(
            Severity.CRITICAL,
            "no input",
            it.node.name,
            f"None of its input categories exists: {', '.join(it.node.inputs)}. Create the app's categories with `penstock category create`.",
        )
    elif not it.running and it.behind:
        yield Finding(
            Severity.CRITICAL,
            "not running",
            it.node.name,
            f"No worker runs it, and {_backlog(it)}. Start it with `penstock run` or `penstock deploy`.",
        )


def _recreated(it: ProcessorStatus) -> Iterator[Finding]:
    if it.recreated:
        yield Finding(
            Severity.CRITICAL,
            "recreated",
            it.node.name,
            f"{', '.join(it.recreated)} was deleted and created again: the committed offsets belong to the old topic. The processor reads nothing from "
            "the new topic. Start at its first event with `penstock reset APP:PROCESSOR --to earliest`; add `--state empty` if the processor "
            "is stateful.",
        )


def _failed(it: ProcessorStatus) -> Iterator[Finding]:
    for worker in it.workers:
        if worker.ended and worker.ended != STOPPED:
            yield Finding(
                Severity.WARNING if it.running else Severity.CRITICAL,
                "failed",
                it.node.name,
                f"Worker {worker.worker} on {worker.host} failed {human_duration(worker.silent_s)} ago: {worker.ended}",
            )


def _silent(it: ProcessorStatus) -> Iterator[Finding]:
    for worker in it.workers:
        if not worker.ended and worker.silent_s > SILENT_AFTER_S:
            yield Finding(
                Severity.CRITICAL,
                "silent",
                it.node.name,
                f"Worker {worker.worker} on {worker.host} (process {worker.pid}) has not reported for {human_duration(worker.silent_s)}: it hangs, was "
                "killed, or cannot reach Kafka. If it was killed, other workers take over its buckets when its session times out.",
            )


def _unowned(it: ProcessorStatus) -> Iterator[Finding]:
    lost = [shard for shard in it.shards if not shard.owner and shard.behind]
    if lost and it.running:
        buckets = ", ".join(str(shard.bucket) for shard in lost)
        yield Finding(
            Severity.WARNING,
            "without owner",
            it.node.name,
            f"No worker owns bucket {buckets}; its backlog is {sum(shard.behind or 0 for shard in lost):,} events. A rebalance takes seconds. The "
            "buckets of a killed worker move when its session times out. Restoring state takes longer.",
        )


def _lagging(it: ProcessorStatus) -> Iterator[Finding]:
    if it.behind_s is not None and it.behind_s > LAG_S and it.running:
        worst = max(it.shards, key=lambda shard: shard.behind_s or 0.0)
        rate = it.total("rate_in")
        throughput = f"its throughput is {rate:,.0f} events/s" if rate else "it reads nothing"
        yield Finding(
            Severity.WARNING,
            "lag",
            it.node.name,
            f"I{_backlog(it)[1:]}; its lag is {human_duration(it.behind_s)} (bucket {worst.bucket}); {throughput}. Add workers, up to "
            f"{len(it.shards)}, or find the bottleneck in the worker's log.",
        )


def _expiring(it: ProcessorStatus) -> Iterator[Finding]:
    # Also require that half of the retention has passed: a category may have a retention of minutes.
    near = [
        (shard.expires_s, shard.bucket)
        for shard in it.shards
        if shard.expires_s is not None and shard.expires_s < min(RETENTION_S, shard.behind_s or 0.0)
    ]
    if near:
        expires_s, bucket = min(near)
        yield Finding(
            Severity.CRITICAL,
            "retention",
            it.node.name,
            f"Unread events of bucket {bucket} expire {'now' if expires_s <= 0 else f'in {human_duration(expires_s)}'}. Expired events are never "
            "processed. Raise the category's retention, or add workers.",
        )


def _unsaved(it: ProcessorStatus) -> Iterator[Finding]:
    limit_s = max(LATE_CHECKPOINT * it.node.checkpoint_s, LATE_CHECKPOINT_S)
    for worker in it.running:
        unsaved_s = it.unsaved_s(worker)
        if unsaved_s is not None and unsaved_s > limit_s:
            yield Finding(
                Severity.WARNING,
                "checkpoint",
                it.node.name,
                f"Worker {worker.worker} reads, but has completed no checkpoint for {human_duration(unsaved_s)}; the interval is "
                f"{it.node.checkpoint_s:g} s. After a crash it processes these events again. Its log contains the cause.",
            )


def _stuck(it: ProcessorStatus) -> Iterator[Finding]:
    holder = it.holder if it.shards else None
    if holder is not None and holder.held_by and it.watermark_lag_s is not None and it.watermark_lag_s > LAG_S:
        yield Finding(
            Severity.NOTE,
            "held back",
            it.node.name,
            f"Its watermark lag is {human_duration(it.watermark_lag_s)}; bucket {holder.bucket} is held back by {holder.held_by}.",
        )


def _not_begun(it: ProcessorStatus) -> Iterator[Finding]:
    holder = it.holder if it.shards else None
    runs_s = max(((it.at_ms - worker.started_ms) / 1000 for worker in it.running), default=0.0)
    if holder is not None and holder.low_ms is None and holder.held_by and runs_s > NOT_BEGUN_S:
        yield Finding(
            Severity.NOTE,
            "no watermark",
            it.node.name,
            f"It has no watermark yet: bucket {holder.bucket} is held back by {holder.held_by}. Its windows and timers wait, and so do processors "
            "that read its outputs by event time. For inputs with few events, declare `watermark = penstock.watermarks.BoundedOutOfOrderness(…)`.",
        )


def _not_backed_up(it: ProcessorStatus) -> Iterator[Finding]:
    intervals = [worker.backup_every_s for worker in it.running if worker.backup_every_s is not None]
    age_s = it.backup_age_s
    if intervals and age_s is not None and is_late(age_s, max(intervals)):
        yield Finding(
            Severity.WARNING,
            "backup",
            it.node.name,
            f"The newest backup of a shard is {human_duration(age_s)} old; the interval is {max(intervals):g} s. After the loss of a disk, workers read all "
            "later changes from Kafka. Check that the backup store is reachable.",
        )


def _dead_letters(it: ProcessorStatus) -> Iterator[Finding]:
    rate, share = it.total("letters_rate"), it.dead_letters_share
    if not rate and it.dead_letters:
        yield Finding(
            Severity.NOTE,
            "dead letters",
            it.node.name,
            f"Kafka stores {it.dead_letters:,} dead letters of it; none is recent. Read them with `penstock category tail "
            f"{it.node.dead_letters} --from 0`.",
        )
    if rate > 0:
        stored = "" if it.dead_letters is None else f"; Kafka stores {it.dead_letters:,} dead letters"
        yield Finding(
            Severity.WARNING,
            "dead letters",
            it.node.name,
            f"It rejects {rate * 60:,.0f} events per minute{f', {share:.1%} of its input' if share else ''}{stored}. Read them with "
            f"`penstock category tail {it.node.dead_letters}`.",
        )


def _restarting(it: ProcessorStatus) -> Iterator[Finding]:
    for worker in it.running:
        if worker.restarts >= MANY_RESTARTS:
            yield Finding(
                Severity.WARNING,
                "restarts",
                it.node.name,
                f"Worker {worker.worker} restarted {worker.restarts} times in the last hour after failures. Its log contains the cause.",
            )


def _versions(it: ProcessorStatus) -> Iterator[Finding]:
    versions = sorted({worker.deployment or "started manually" for worker in it.running})
    if len(versions) > 1:
        yield Finding(
            Severity.NOTE,
            "versions",
            it.node.name,
            f"Its workers run different versions: {', '.join(versions)}. This is normal during a rolling update. After it, stop the workers of the old version.",
        )


_CHECKS: tuple[Callable[[ProcessorStatus], Iterator[Finding]], ...] = (
    _unreadable,
    _not_run,
    _recreated,
    _failed,
    _silent,
    _unowned,
    _lagging,
    _expiring,
    _unsaved,
    _stuck,
    _not_begun,
    _not_backed_up,
    _dead_letters,
    _restarting,
    _versions,
)


def _backlog(it: ProcessorStatus) -> str:
    size = "" if not it.behind_bytes else f" (about {it.behind_bytes / 1e6:,.1f} MB)"
    return f"its backlog is {it.behind:,} events{size}"
