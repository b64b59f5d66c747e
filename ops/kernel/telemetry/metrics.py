"""Metrics of a worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from threading import Lock
from typing import Any

from ....processors import counted
from ....processors.keyed_state import STATE_CACHE, StateCache
from ....processors.lookups import LookupMetrics
from ....transport import CLIENT_COUNTS, ClientCounts
from .histogram import FAST_S, SLOW_S, Histogram
from .loop_time import LoopTime
from .trace_context import SpanMetrics
from .waits import Waits


class Timings:
    """How long the work of a worker has taken since its start."""

    def __init__(self) -> None:
        self.processing = Histogram(FAST_S)
        """The processing of each batch by the code of the processor."""
        self.event_age = Histogram(SLOW_S)
        """From the arrival of each event in Kafka to the end of its processing."""
        self.checkpoint = Histogram(FAST_S)
        """The saving of each checkpoint."""


class Restores:
    """The states that a worker has restored from backups since its start. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.states = 0
        """The number of restored states."""
        self.bytes = 0
        """Their size."""
        self.seconds = 0.0
        """How long it took; restores at the same time count each."""

    def record(self, size_bytes: int, took_s: float) -> None:
        """Count a restored state."""
        with self._lock:
            self.states += 1
            self.bytes += size_bytes
            self.seconds += took_s


_OF_EVENTS = ("events_in", "events_out", "late", "dropped", "dead_letters", "retries", "unmatched")
"""The counts of events and of what they caused. They count again what is repeated after a failure."""


@dataclass
class Metrics:
    """The metrics of a worker since its start. `counts` and the text count each event once.

    Args:
        events_in: events read.
        events_out: records written.
        late: events that arrived after their shard's watermark.
        dropped: late events that belong to no open window, and were dropped or written to the late output, as the processor declares.
        dead_letters: events that could not be processed.
        retries: events that wait, or waited, for a further attempt.
        checkpoints: checkpoints saved.
        unmatched: events without a row in the lookup, which the processor declares to drop.
        bytes_in: the size of the values read.
        bytes_out: the size of the values written.
        saved_ms: when the last checkpoint was completed (milliseconds since 1970, UTC); None before the first.
        saving_s: how long it took.
        saving_since_s: when the checkpoint in progress began, on the loop's clock; None without one.
        lookups: the metrics of lookups, for a lookup join.
        spans: the spans of the events; None without spans.
        timings: how long the work has taken.
        loop: how the loop has spent its time.
        restores: the states restored from backups.
        standby_shards: returns the number of other workers' shards that this machine could take over without a download; None without copies.
        state_cache: the decoded states in memory.
        clients: the clients of the bus.
        waits: what the worker waits for.
    """

    events_in: int = 0
    events_out: int = 0
    late: int = 0
    dropped: int = 0
    dead_letters: int = 0
    retries: int = 0
    checkpoints: int = 0
    unmatched: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    saved_ms: int | None = None
    saving_s: float = 0.0
    saving_since_s: float | None = field(default=None, repr=False, compare=False)
    lookups: LookupMetrics | None = None
    spans: SpanMetrics | None = None
    timings: Timings = field(default_factory=Timings, repr=False, compare=False)
    loop: LoopTime = field(default_factory=LoopTime, repr=False, compare=False)
    restores: Restores = field(default_factory=Restores, repr=False, compare=False)
    standby_shards: Callable[[], int] | None = field(default=None, repr=False, compare=False)
    state_cache: StateCache = field(default=STATE_CACHE, repr=False, compare=False)
    clients: ClientCounts = field(default_factory=lambda: CLIENT_COUNTS, repr=False, compare=False)
    waits: Waits = field(default_factory=Waits, repr=False, compare=False)
    _begun: Counter[str] = field(default_factory=Counter, repr=False, compare=False)
    """The counts of events before the checkpoint that was begun last."""
    _saved: Counter[str] = field(default_factory=Counter, repr=False, compare=False)
    """Those before the last complete checkpoint, or before the last failure."""
    _repeated: Counter[str] = field(default_factory=Counter, repr=False, compare=False)
    """The counts of events between checkpoints and failures, whose events were read again."""

    def _of_events(self) -> Counter[str]:
        return Counter({name: getattr(self, name) for name in _OF_EVENTS})

    def begin_checkpoint(self) -> None:
        """Note what a checkpoint covers."""
        self._begun = self._of_events()

    def refuse_rows(self, number: int) -> None:
        """Count rows of the checkpoint that was begun last, which a sink refused and which are dead letters."""
        self.dead_letters += number
        self._begun["dead_letters"] += number

    def complete_checkpoint(self) -> None:
        """Count a checkpoint."""
        self.checkpoints += 1
        self._saved = self._begun

    def checkpoint_running_s(self) -> float | None:
        """Return for how many seconds the checkpoint in progress has run; None without one. Any thread."""
        since_s = self.saving_since_s
        return None if since_s is None else self.loop.now_s() - since_s

    def start_over(self) -> None:
        """Count as repeated what was processed since the last checkpoint. It will be read again."""
        now = self._of_events()
        self._repeated += now - self._saved
        self._saved = now

    def counts(self) -> dict[str, Any]:
        """Return the counts by name, without the figures that only Prometheus reads."""
        values: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(self) if one.compare}
        values |= {name: values[name] - self._repeated[name] for name in _OF_EVENTS}
        values |= {"repeated_in": self._repeated["events_in"], "repeated_out": self._repeated["events_out"]}
        return values | {
            name: asdict(value) for name, value in values.items() if isinstance(value, (LookupMetrics, SpanMetrics))
        }

    def __str__(self) -> str:
        once = self.counts()
        text = (
            f"{counted(once['events_in'], 'event')} in, {once['events_out']:,} out, {once['late']:,} late, {once['dropped']:,} dropped as too late, "
            f"{counted(once['dead_letters'], 'dead letter')}, {counted(self.checkpoints, 'checkpoint')}"
        )
        if once["repeated_in"]:
            text += f", {once['repeated_in']:,} read again after failures"
        if once["retries"]:
            text += f", {counted(once['retries'], 'failed attempt')} to retry"
        if self.lookups is not None:
            text += f"; {once['unmatched']:,} dropped without a row, {self.lookups}"
        return (
            text
            if self.spans is None
            else f"{text}; {counted(self.spans.ended, 'span')}, {self.spans.lost:,} not exported"
        )
