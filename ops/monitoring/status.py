"""Where processors stand, as one looks: how much is left, how fast they are, how far event time is, and who runs what."""

from __future__ import annotations

from dataclasses import dataclass

from ...processors.time.watermarks import NEVER_MS
from .finding import Finding
from .reports import SILENT_AFTER_S, Node


@dataclass(frozen=True)
class ShardStatus:
    """Where a shard stands. What only its worker knows is None where none has said it lately.

    Args:
        bucket: its bucket number.
        owner: the worker that has it open; empty where none says so.
        behind: how many events of its inputs lie between what its group has committed and their ends; None where that cannot be read.
        behind_bytes: about how large those are, by the mean size of the events before them.
        behind_s: how long the first of them has waited on the bus; None where that cannot be read.
        expires_s: how long it stays there; None where it stays for ever, or there is none.
        rate_in: events read in a second.
        rate_out: records written in a second.
        low_ms: its low watermark as of its last checkpoint (milliseconds since 1970, UTC); None where it has none yet.
        idle: whether nobody waits for it, since nothing comes, and its worker says so.
        held_by: what holds that back beside its own events; may be empty.
        catching_up: whether it reads again, for its state alone, what was processed before.
        backup_age_s: how old its newest backup is.
    """

    bucket: int
    owner: str
    behind: int | None
    behind_bytes: int | None
    behind_s: float | None
    expires_s: float | None
    rate_in: float
    rate_out: float
    low_ms: int | None
    idle: bool
    held_by: str
    catching_up: bool
    backup_age_s: float | None


@dataclass(frozen=True)
class WorkerStatus:
    """Where a worker stands, as it said itself.

    Args:
        worker: its name.
        host: its machine.
        pid: its process.
        deployment: what deployed it; may be empty.
        started_ms: since when it runs.
        silent_s: how long ago it said something.
        buckets: those that it has open.
        rate_in: events read in a second.
        bytes_in: bytes read in a second.
        rate_out: records written in a second.
        bytes_out: bytes written in a second.
        saved_s: how long ago its last checkpoint was complete; None before the first.
        saving_s: how long that took.
        cpu: processors that it uses, on average.
        memory_bytes: the memory that it holds.
        restarts: how often it was started again in the last hour after an end that nobody had asked for.
        letters_rate: dead letters in a second.
        late: events that came after their watermark, since it started.
        dropped: those of them that came too late for every window.
        backup_every_s: how often it makes backups; None for never.
        ended: empty while it runs; then why it does not.
    """

    worker: str
    host: str
    pid: int
    deployment: str
    started_ms: int
    silent_s: float
    buckets: tuple[int, ...]
    rate_in: float
    bytes_in: float
    rate_out: float
    bytes_out: float
    saved_s: float | None
    saving_s: float
    cpu: float
    memory_bytes: int
    restarts: int
    letters_rate: float
    late: int
    dropped: int
    backup_every_s: float | None
    ended: str


@dataclass(frozen=True)
class ProcessorStatus:
    """Where a processor stands.

    Args:
        node: the processor.
        at_ms: when this was looked at (milliseconds since 1970, UTC).
        shards: its shards, by bucket.
        workers: those that run, or ended within the hour.
        dead_letters: how many the bus keeps; None where that cannot be read.
        unread: the figures that cannot be read now, each with the reason.
        watermark_still_s: for how long its low watermark has stood still although events wait, as far as whoever looks has seen.
        recreated: the inputs that were deleted and created again since it has read them.
    """

    node: Node
    at_ms: int
    shards: tuple[ShardStatus, ...]
    workers: tuple[WorkerStatus, ...]
    dead_letters: int | None
    unread: tuple[str, ...] = ()
    watermark_still_s: float = 0.0
    recreated: tuple[str, ...] = ()

    @property
    def running(self) -> tuple[WorkerStatus, ...]:
        """The workers that said something lately, and have not ended."""
        return tuple(worker for worker in self.workers if not worker.ended and worker.silent_s <= SILENT_AFTER_S)

    @property
    def dead_letters_share(self) -> float:
        """Which share of the events that it reads it sets aside lately."""
        rate_in = self.total("rate_in")
        return min(self.total("letters_rate") / rate_in, 1.0) if rate_in else 0.0

    @property
    def behind(self) -> int | None:
        """How many events of its inputs are left; None where some figure of that cannot be read."""
        if self.unread and not self.shards:
            return None
        known = [shard.behind for shard in self.shards if shard.behind is not None]
        return sum(known) if len(known) == len(self.shards) else None

    @property
    def behind_bytes(self) -> int | None:
        """About how large those are; None where nobody knows."""
        known = [shard.behind_bytes for shard in self.shards if shard.behind_bytes is not None]
        return sum(known) if known or self.behind == 0 else None

    @property
    def behind_s(self) -> float | None:
        """How long the first of them has waited, as far as is known; None where nothing of that is."""
        known = [shard.behind_s for shard in self.shards if shard.behind_s is not None]
        longest_s = max(known, default=0.0)
        is_whole = self.behind is not None and len(known) == len(self.shards)
        return longest_s if longest_s or is_whole else None

    @property
    def low_ms(self) -> int | None:
        """Its low watermark: that of the shard that is waited for longest; None where that has none yet."""
        return self.holder.low_ms if self.shards else None

    @property
    def watermark_lag_s(self) -> float | None:
        """How far that is behind the time of day; None where it has none yet, or nobody waits for it."""
        holder = self.holder if self.shards else None
        return None if holder is None or holder.low_ms is None or holder.idle else (self.at_ms - holder.low_ms) / 1000

    @property
    def holder(self) -> ShardStatus:
        """The shard that holds it back; where all are idle, the furthest, which was waited for last."""
        awake = [shard for shard in self.shards if not shard.idle]
        return min(awake, key=_how_far) if awake else max(self.shards, key=_how_far)

    @property
    def backup_age_s(self) -> float | None:
        """How old the oldest of its shards' newest backups is; None where none is known of."""
        return max((shard.backup_age_s for shard in self.shards if shard.backup_age_s is not None), default=None)

    def unsaved_s(self, worker: WorkerStatus) -> float | None:
        """Return for how long a worker that reads has saved nothing although something waits for that; None where nothing does."""
        waiting_s = [shard.behind_s or 0.0 for shard in self.shards if shard.owner == worker.worker and shard.behind]
        if not waiting_s or not worker.rate_in or worker.saved_s is None:
            return None
        return min(worker.saved_s, max(waiting_s))

    def total(self, what: str) -> float:
        """Return the sum of a field of its running workers."""
        return float(sum(getattr(worker, what) for worker in self.running))


def _how_far(shard: ShardStatus) -> int:
    return NEVER_MS if shard.low_ms is None else shard.low_ms


@dataclass(frozen=True)
class ClusterStatus:
    """All that is watched, as of one moment.

    Args:
        at_ms: when (milliseconds since 1970, UTC).
        standings: upstream ones first.
        findings: the problems found, the most severe first.
    """

    at_ms: int
    standings: tuple[ProcessorStatus, ...]
    findings: tuple[Finding, ...]
