"""Memory of pending timers: timers are set and saved, then event time reaches the first of them.

    python benchmarks/pending_timers.py [--timers 10000000]

Each key has one timer. Prints the memory of the process at each step, for the shard that sets the timers and for a shard that reopens the state.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock.processors.time import Clock, Timers
from penstock.state import ShardIdentity
from penstock.state.local import RocksShardState, RocksStateFolder

SET_AT_ONCE = 100_000
"""The number of timers between two checkpoints."""
FIRED = 100_000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--timers", type=int, default=10_000_000, help="the number of timers")
    count = parser.parse_args().timers
    with TemporaryDirectory() as folder:
        show("before", count)
        with opened(Path(folder)) as state:
            fill(state, count)
            show("all are set", count)
        with opened(Path(folder)) as state:
            timers = Timers(Clock.EVENT, state)
            show("opened again", count)
            began = time.monotonic()
            fired = sum(1 for _ in timers.due(FIRED - 1))
            state.save(timers.drain())
            show(f"{fired:,} have fired ({fired / (time.monotonic() - began):,.0f}/s)", count)


@contextmanager
def opened(folder: Path) -> Iterator[RocksShardState]:
    """Open the state of a shard in the block."""
    state = RocksStateFolder(folder).open(ShardIdentity("reminders", 0, "int by who"))
    try:
        yield state
    finally:
        state.close()


def fill(state: RocksShardState, count: int) -> None:
    """Set timers of distinct keys, one per millisecond."""
    timers, began = Timers(Clock.EVENT, state), time.monotonic()
    for begin in range(0, count, SET_AT_ONCE):
        numbers = range(begin, min(begin + SET_AT_ONCE, count))
        timers.load([f"key-{number}" for number in numbers])
        for number in numbers:
            timers.set(f"key-{number}", "", number)
        state.save(timers.drain())
        if (begin // SET_AT_ONCE) % 10 == 0:
            show(f"{numbers.stop:,} are set ({numbers.stop / (time.monotonic() - began):,.0f}/s)", count)


def show(step: str, count: int) -> None:
    """Print the resident memory of the process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    print(f"{count:>12,} timers: {pages * 4096 / 2**20:8,.0f} MiB  {step}", flush=True)


if __name__ == "__main__":
    main()
