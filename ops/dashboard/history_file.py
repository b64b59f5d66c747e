"""The history of the dashboard on disk, so that its plots survive a restart.

<dir>/dashboard/history-CLUSTER.jsonl    a sample per line; the older half is dropped when it is twice as long as needed
"""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path

import msgspec

from ...processors.retry import LogRateLimiter
from ...state.files.durable import make_private_folder, replace_file
from .history import HISTORY_MS, Sample

_LOG = logging.getLogger("penstock.dashboard")
SHORTEN_EVERY_MS = HISTORY_MS
"""The time of samples that are written before the file is shortened."""

_decode = msgspec.json.Decoder(Sample).decode
_encode = msgspec.json.Encoder().encode


class HistoryFile:
    """A file with the samples of the last hour. Several dashboards may share it. Errors are logged, and stop nothing.

    Args:
        folder: the value of `--dir`.
        cluster: the address of the Kafka cluster; each has a file of its own.
    """

    def __init__(self, folder: Path, cluster: str) -> None:
        digest = hashlib.sha256(cluster.encode()).hexdigest()[:12]
        self._path = folder / "dashboard" / f"history-{digest}.jsonl"
        self._shortened_ms: int | None = None
        self._log_limiter = LogRateLimiter()

    def read(self) -> list[Sample]:
        """Return the stored samples in the order of time. A line that was cut off by a crash is skipped."""
        try:
            lines = self._path.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            self._log(error)
            return []
        samples: dict[int, Sample] = {}
        for line in lines:
            try:
                sample = _decode(line)
            except msgspec.MsgspecError:
                continue
            samples[sample.at_ms] = sample
        return [samples[at_ms] for at_ms in sorted(samples)]

    def append(self, sample: Sample) -> None:
        """Store a sample."""
        try:
            make_private_folder(self._path.parent)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, "ab") as file:
                file.write(_encode(sample) + b"\n")
            self._shorten_if_due(sample.at_ms)
        except OSError as error:
            self._log(error)

    def _shorten_if_due(self, now_ms: int) -> None:
        """Drop the samples that are more than an hour old, from time to time and with the first sample."""
        if self._shortened_ms is not None and now_ms - self._shortened_ms < SHORTEN_EVERY_MS:
            return
        self._shortened_ms = now_ms
        kept = [sample for sample in self.read() if sample.at_ms >= now_ms - HISTORY_MS]
        replace_file(self._path, b"".join(_encode(sample) + b"\n" for sample in kept))

    def _log(self, error: OSError) -> None:
        if self._log_limiter.is_due():
            _LOG.warning(
                "The history of the dashboard in %s cannot be used: %s. The page shows the time since its start. Free disk space, or allow access to the file.",
                self._path,
                error,
            )
