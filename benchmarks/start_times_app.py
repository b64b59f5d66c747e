"""The app of the benchmark of starts: one processor, which leaves a file at its first event."""

from __future__ import annotations

import os
from pathlib import Path

import penstock as ps


class Started(ps.Record, frozen=True):
    """An event."""

    key: str
    at: ps.EventTime


started = ps.Category("started", Started, key="key", event_time="at", buckets=1)


class First(ps.Stateless):
    """Creates the file that the environment names. Each run has a name of its own, so it reads from the first event on."""

    name = os.environ.get("FIRST_EVENT_NAME", "first")
    reads = started

    def process(self, event: Started) -> tuple[()]:
        """Create the file."""
        Path(os.environ["FIRST_EVENT_FILE"]).touch()
        return ()
