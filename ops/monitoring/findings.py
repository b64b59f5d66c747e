"""What is wrong with processors, in words: what it is, what it means, what to do."""

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
"""How long the oldest event may wait."""
LATE_CHECKPOINT = 3
"""How many intervals a checkpoint may be old while there is something to save; and never less than the next figure."""
LATE_CHECKPOINT_S = 30.0
RETENTION_S = 3_600.0
"""How long before an unread event leaves the bus that is said."""
NOT_BEGUN_S = 60.0
"""How long a worker may run without a watermark."""
MANY_RESTARTS = 3
"""How many in an hour are too many."""


def findings_of(standings: Iterable[ProcessorStatus]) -> tuple[Finding, ...]:
    """Return what is wrong with processors, the worst first."""
    found = [finding for standing in standings for look in _LOOKS for finding in look(standing)]
    return tuple(sorted(found, key=lambda finding: (-finding.weight, finding.processor, finding.kind)))


def _unreadable(it: ProcessorStatus) -> Iterator[Finding]:
    if it.unread:
        yield Finding(
            Severity.WARNING,
            "unknown",
            it.node.name,
            f"The bus did not say {'; '.join(it.unread)}. These figures are shown as unknown and raise no alert; the others are right. They are "
            "asked for again with each look.",
        )


def _not_run(it: ProcessorStatus) -> Iterator[Finding]:
    if not it.shards and not it.unread:
        yield Finding(
            Severity.CRITICAL,
            "no input",
            it.node.name,
            f"None of its inputs is on the bus: {', '.join(it.node.inputs)}. Create the app's categories with `penstock category create`.",
        )
    elif not it.running and it.behind:
        yield Finding(
            Severity.CRITICAL,
            "not running",
            it.node.name,
            f"Nobody runs it, and {_left(it)}. Start it with `penstock run` or `penstock deploy`.",
        )


def _recreated(it: ProcessorStatus) -> Iterator[Finding]:
    if it.recreated:
        yield Finding(
            Severity.CRITICAL,
            "recreated",
            it.node.name,
            f"{', '.join(it.recreated)} was deleted and created again since it was read: its positions stand for other events now. Nothing of the "
            "new topic is processed. Begin with its first event: `penstock reset APP:PROCESSOR --to earliest`, with `--state empty` where it "
            "keeps state.",
        )


def _failed(it: ProcessorStatus) -> Iterator[Finding]:
    for worker in it.workers:
        if worker.ended and worker.ended != STOPPED:
            yield Finding(
                Severity.WARNING if it.running else Severity.CRITICAL,
                "failed",
                it.node.name,
                f"Worker {worker.worker} on {worker.host} ended {human_duration(worker.silent_s)} ago: {worker.ended}",
            )


def _silent(it: ProcessorStatus) -> Iterator[Finding]:
    for worker in it.workers:
        if not worker.ended and worker.silent_s > SILENT_AFTER_S:
            yield Finding(
                Severity.CRITICAL,
                "silent",
                it.node.name,
                f"Worker {worker.worker} on {worker.host} (process {worker.pid}) has said nothing for {human_duration(worker.silent_s)}: it hangs, was "
                "killed, or does not reach the bus. If it is gone, its buckets go to others when its session ends.",
            )


def _unowned(it: ProcessorStatus) -> Iterator[Finding]:
    lost = [shard for shard in it.shards if not shard.owner and shard.behind]
    if lost and it.running:
        buckets = ", ".join(str(shard.bucket) for shard in lost)
        yield Finding(
            Severity.WARNING,
            "without owner",
            it.node.name,
            f"No worker has bucket {buckets} open, and {sum(shard.behind or 0 for shard in lost):,} events wait there. Buckets that move are opened "
            "within seconds; those of a worker that died when its session ends; a state that has to be restored takes as long as that takes.",
        )


def _lagging(it: ProcessorStatus) -> Iterator[Finding]:
    if it.behind_s is not None and it.behind_s > LAG_S and it.running:
        worst = max(it.shards, key=lambda shard: shard.behind_s or 0.0)
        rate = it.total("rate_in")
        pace = f"it reads {rate:,.0f} events/s" if rate else "it reads nothing"
        yield Finding(
            Severity.WARNING,
            "lag",
            it.node.name,
            f"{_left(it)}, the oldest for {human_duration(it.behind_s)} (bucket {worst.bucket}); {pace}. Give it more workers, up to {len(it.shards)}, "
            "or look what holds it up.",
        )


def _expiring(it: ProcessorStatus) -> Iterator[Finding]:
    # More than half of its time there is gone as well: a category may be kept for minutes only.
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
            f"Unread events of bucket {bucket} leave the bus {'now' if expires_s <= 0 else f'in {human_duration(expires_s)}'}. What is gone is not "
            "processed: raise the category's retention, or see that they are read.",
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
                f"Worker {worker.worker} reads, but has saved nothing for {human_duration(unsaved_s)}; a checkpoint is due every "
                f"{it.node.checkpoint_s:g} s. After a crash all since then is done again. Its log says what it waits for.",
            )


def _stuck(it: ProcessorStatus) -> Iterator[Finding]:
    holder = it.holder if it.shards else None
    if holder is not None and holder.held_by and it.watermark_lag_s is not None and it.watermark_lag_s > LAG_S:
        yield Finding(
            Severity.NOTE,
            "held back",
            it.node.name,
            f"Its event time is {human_duration(it.watermark_lag_s)} behind the time of day; bucket {holder.bucket} is held back by {holder.held_by}.",
        )


def _not_begun(it: ProcessorStatus) -> Iterator[Finding]:
    holder = it.holder if it.shards else None
    runs_s = max(((it.at_ms - worker.started_ms) / 1000 for worker in it.running), default=0.0)
    if holder is not None and holder.low_ms is None and holder.held_by and runs_s > NOT_BEGUN_S:
        yield Finding(
            Severity.NOTE,
            "no watermark",
            it.node.name,
            f"Its event time has not begun: bucket {holder.bucket} is held back by {holder.held_by}. Windows and timers wait until it does, and so "
            "does what reads its outputs by event time. Where events are few, declare `watermark = penstock.watermarks.BoundedOutOfOrderness(…)`.",
        )


def _not_backed_up(it: ProcessorStatus) -> Iterator[Finding]:
    intervals = [worker.backup_every_s for worker in it.running if worker.backup_every_s is not None]
    age_s = it.backup_age_s
    if intervals and age_s is not None and is_late(age_s, max(intervals)):
        yield Finding(
            Severity.WARNING,
            "backup",
            it.node.name,
            f"The newest backup of a shard is {human_duration(age_s)} old; one is made every {max(intervals):g} s. If the disk is lost, all since then "
            "is read again from the bus. Look whether the place of backups answers.",
        )


def _setting_aside(it: ProcessorStatus) -> Iterator[Finding]:
    rate, share = it.total("letters_rate"), it.dead_letters_share
    if not rate and it.dead_letters:
        yield Finding(
            Severity.NOTE,
            "dead letters",
            it.node.name,
            f"{it.dead_letters:,} events that it set aside are kept, and none was added lately. Look at them with `penstock category tail "
            f"{it.node.dead_letters} --from 0`.",
        )
    if rate > 0:
        yield Finding(
            Severity.WARNING,
            "dead letters",
            it.node.name,
            f"It sets events aside, {rate * 60:,.0f} in a minute{f', {share:.1%} of what it reads' if share else ''}{'' if it.dead_letters is None else f'; {it.dead_letters:,} are kept'}. Look at them with "
            f"`penstock category tail {it.node.dead_letters}`.",
        )


def _restarting(it: ProcessorStatus) -> Iterator[Finding]:
    for worker in it.running:
        if worker.restarts >= MANY_RESTARTS:
            yield Finding(
                Severity.WARNING,
                "restarts",
                it.node.name,
                f"Worker {worker.worker} was started again {worker.restarts} times in the last hour after it ended unasked; its log says why.",
            )


def _versions(it: ProcessorStatus) -> Iterator[Finding]:
    versions = sorted({worker.deployment or "started by hand" for worker in it.running})
    if len(versions) > 1:
        yield Finding(
            Severity.NOTE,
            "versions",
            it.node.name,
            f"Its workers run different versions: {', '.join(versions)}. That is so while a deployment rolls on; afterwards stop those that are left.",
        )


_LOOKS: tuple[Callable[[ProcessorStatus], Iterator[Finding]], ...] = (
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
    _setting_aside,
    _restarting,
    _versions,
)


def _left(it: ProcessorStatus) -> str:
    size = "" if not it.behind_bytes else f" (about {it.behind_bytes / 1e6:,.1f} MB)"
    return f"{it.behind:,} events wait{size}"
