"""The figures of the last hour, few enough to send all of them to a browser."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from ...status import ClusterStatus, ProcessorStatus

HISTORY_MS = 3_600_000
"""The length of the history."""


class ProcessorSample(NamedTuple):
    """The figures of one processor at one moment; see `ProcessorStatus`.

    Args:
        events_in_per_s: events read per second.
        events_out_per_s: records written per second.
        backlog_events: input events after the committed offsets; None if unknown.
        lag_s: the time since the oldest event of the backlog arrived, in seconds; None if unknown.
        watermark_lag_s: seconds between the low watermark and the current time; None without a low watermark.
        version: the version of the worker that started last; None without a deployment.
    """

    events_in_per_s: float
    events_out_per_s: float
    backlog_events: int | None
    lag_s: float | None
    watermark_lag_s: float | None
    version: int | None = None

    @staticmethod
    def of(status: ProcessorStatus) -> ProcessorSample:
        """Return the figures of a status."""
        lag_s, watermark_lag_s = status.lag_s, status.watermark_lag_s
        return ProcessorSample(
            round(status.per_s.events_in, 1),
            round(status.per_s.events_out, 1),
            status.backlog_events,
            None if lag_s is None else round(lag_s, 1),
            None if watermark_lag_s is None else round(watermark_lag_s, 1),
            next(iter(status.versions), None),
        )


class Sample(NamedTuple):
    """The figures of all processors at one moment.

    Args:
        at_ms: the moment (milliseconds since 1970, UTC).
        processors: the figures, by processor.
    """

    at_ms: int
    processors: Mapping[str, ProcessorSample]

    @staticmethod
    def of(cluster: ClusterStatus) -> Sample:
        """Return the figures of a cluster status."""
        return Sample(cluster.at_ms, {status.node.name: ProcessorSample.of(status) for status in cluster.processors})


STATUS_EVERY_MS = 60_000
"""The least time between two statuses that are stored for the next start."""


class SampleStore(Protocol):
    """A store of samples, and of the last status. One thread. An error stops no call."""

    def read(self) -> list[Sample]:
        """Return the stored samples in the order of time."""
        ...

    def append(self, sample: Sample) -> None:
        """Store a sample."""
        ...

    def read_status(self) -> dict[str, Any] | None:
        """Return the stored status as JSON values; None without one."""
        ...

    def replace_status(self, status: dict[str, Any]) -> None:
        """Store a status in place of the one before."""
        ...


class History:
    """The samples of the last hour, and the last known status. One thread at a time.

    Args:
        store: stores the samples for the next start; None to keep them in memory only.
    """

    def __init__(self, store: SampleStore | None = None) -> None:
        self._store = store
        self._samples: deque[Sample] = deque([] if store is None else store.read())
        self.last_status: dict[str, Any] | None = None if store is None else store.read_status()
        """The last known status as JSON values, perhaps of an earlier dashboard; None without one."""
        self._stored_ms: int | None = None

    def add(self, sample: Sample) -> None:
        """Add a sample, and drop samples that are more than an hour older."""
        self._samples.append(sample)
        if self._store is not None:
            self._store.append(sample)
        while self._samples[0].at_ms < sample.at_ms - HISTORY_MS:
            self._samples.popleft()

    def note_status(self, status: dict[str, Any]) -> None:
        """Note a status as the last known one."""
        self.last_status = status
        if self._stored_ms is None or status["at_ms"] - self._stored_ms >= STATUS_EVERY_MS:
            self.store_status()

    def store_status(self) -> None:
        """Store the last known status for the next start, unless it is stored."""
        if self._store is None or self.last_status is None or self.last_status["at_ms"] == self._stored_ms:
            return
        self._stored_ms = self.last_status["at_ms"]
        self._store.replace_status(self.last_status)

    def to_json(self) -> dict[str, Any]:
        """Return the times, and for each processor one list per figure. A missing processor has the value None."""
        names = dict.fromkeys(name for sample in self._samples for name in sample.processors)
        return {
            "at_ms": [sample.at_ms for sample in self._samples],
            "processors": {name: self._columns(name) for name in names},
        }

    def _columns(self, name: str) -> dict[str, list[Any]]:
        missing = (None,) * len(ProcessorSample._fields)
        rows = [sample.processors.get(name, missing) for sample in self._samples]
        return {
            field: list(column) for field, column in zip(ProcessorSample._fields, zip(*rows, strict=True), strict=True)
        }
