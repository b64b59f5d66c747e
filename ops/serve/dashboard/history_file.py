"""The history of the dashboard on disk, so that its plots and the last known status survive a restart.

<dir>/dashboard/history-CLUSTER.jsonl    a sample per line; the older half is dropped when it is twice as long as needed
<dir>/dashboard/status-CLUSTER.json      the last known status
"""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path
from typing import Any

import msgspec

from ....processors import LogRateLimiter, file_remedy
from ....state.files import make_private_folder, replace_file
from .history import HISTORY_MS, Sample

_LOG = logging.getLogger("penstock.dashboard")
SHORTEN_EVERY_MS = HISTORY_MS
"""The time of samples that are written before the file is shortened."""

_decode = msgspec.json.Decoder(Sample).decode
_encode = msgspec.json.Encoder().encode


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class HistoryFile:
    """A file with the samples of the last hour. Several dashboards may share it. Errors are logged, and stop nothing.

    Args:
        folder: the value of `--dir`.
        cluster: the address of the Kafka cluster; each has files of its own.
        app: the app whose status is shown; None for all processors.
    """

    def __init__(self, folder: Path, cluster: str, app: str | None = None) -> None:
        self._path = folder / "dashboard" / f"history-{_digest(cluster)}.jsonl"
        shown = cluster if app is None else f"{cluster} {app}"
        self._status_path = folder / "dashboard" / f"status-{_digest(shown)}.json"
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

    def read_status(self) -> dict[str, Any] | None:
        """Return the stored status as JSON values; None without one."""
        try:
            status = msgspec.json.decode(self._status_path.read_bytes(), type=dict[str, Any])
        except (FileNotFoundError, msgspec.MsgspecError):
            return None
        except OSError as error:
            self._log(error)
            return None
        return status if isinstance(status.get("at_ms"), int) else None

    def replace_status(self, status: dict[str, Any]) -> None:
        """Store a status in place of the one before."""
        try:
            replace_file(self._status_path, msgspec.json.encode(status))
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
                "The history of the dashboard in %s cannot be used: %s. The page shows the time since its start. %s",
                self._path,
                error,
                file_remedy(error),
            )
