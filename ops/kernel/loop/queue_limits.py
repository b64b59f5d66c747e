"""Limits of the messages that a worker has read and not yet processed: by number, and by size.

queue of a bucket --too long or too large--> the reader pauses the bucket --half of it is processed--> it resumes
"""

from __future__ import annotations

from collections.abc import Mapping

from ....transport import Bucket, RawBatch, Reader

MAX_QUEUED_BYTES = 64 * 1024 * 1024
"""The size of all queued payloads of a worker at which its buckets are paused: each bucket at an equal share."""


class QueueSize:
    """The number and size of the queued messages of one bucket."""

    def __init__(self) -> None:
        self.events = 0
        self.size_bytes = 0
        self.is_paused = False

    def add(self, batch: RawBatch) -> None:
        """Count a queued batch."""
        self.events += len(batch.messages)
        self.size_bytes += batch.size_bytes()

    def remove(self, batch: RawBatch) -> None:
        """Subtract a batch that was counted, or a part of one."""
        self.events -= len(batch.messages)
        self.size_bytes -= batch.size_bytes()


def limit_queues(queues: Mapping[Bucket, QueueSize], max_events: int, reader: Reader) -> None:
    """Pause the buckets with long or large queues, and resume those whose queues have become short and small."""
    max_bytes = MAX_QUEUED_BYTES // max(len(queues), 1)
    full = [
        bucket
        for bucket, size in queues.items()
        if not size.is_paused and (size.events >= max_events or size.size_bytes >= max_bytes)
    ]
    short = [
        bucket
        for bucket, size in queues.items()
        if size.is_paused and size.events < max_events // 2 and size.size_bytes < max_bytes // 2
    ]
    if full:
        reader.pause(full)
    if short:
        reader.resume(short)
    for bucket in (*full, *short):
        queues[bucket].is_paused = bucket in full
