"""Arguments and the mark of the first message, shared by the peers' Python programs.

Imports only the standard library: peers run without Penstock's packages.
"""

from __future__ import annotations

import time
from typing import NamedTuple


class Task(NamedTuple):
    """The arguments of a program.

    Args:
        bootstrap: the address of the broker.
        work: W1, W2, W3 or W4.
        source: the topic of the events.
        sink: the topic of the results.
        group: the name of the consumer group.
        folder: an absent folder for state.
        messages: the number of messages of the source.
    """

    bootstrap: str
    work: str
    source: str
    sink: str
    group: str
    folder: str
    messages: str


class FirstMessage:
    """Prints the time of its first call."""

    def __init__(self) -> None:
        self.note = self._print

    def _print(self) -> None:
        self.note = _ignore
        print(f"first {time.time():.6f}", flush=True)


def _ignore() -> None:
    """Do as little as possible for each further message."""
