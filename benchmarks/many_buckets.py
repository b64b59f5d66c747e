"""One worker with many buckets and keys: the time and the memory of the recovery of a lost state, and the time of a standby's takeover.

    python benchmarks/many_buckets.py [--keys 10000000] [--buckets 64]

Starts its own broker, builds the state, backs it up to a folder, loses it, and restarts. Then another machine, which has copies, takes over.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psutil

import penstock as ps
from penstock.ops.kernel import Environment, Targets, Worker, assemble_worker, ends_of, prepare
from penstock.ops.start.dev_services.services import running_kafka
from penstock.processors.declare import plan_of
from penstock.processors.shard import StatePosition
from penstock.state import ShardIdentity
from penstock.state.backups import StandbyCopies, newest_position
from penstock.state.files import FileStore, LocalFileStore
from penstock.transport import CategorySpec, Outgoing
from penstock.transport.kafka import KafkaBus, KafkaSettings

BATCH = 50_000


class KeyEvent(ps.Record, frozen=True):
    """An event of a key."""

    key: str
    at: ps.EventTime


def counter(buckets: int) -> type[ps.Stateful]:
    """Return a processor that counts each key."""

    class Counts(ps.Stateful):
        reads = ps.Category("seen", KeyEvent, key="key", event_time="at", buckets=buckets)
        state = int

        def process(self, event: KeyEvent, state: int | None, context: ps.Context) -> tuple[int, list[ps.Record]]:
            return (state or 0) + 1, []

    return Counts


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--keys", type=int, default=10_000_000)
    arguments.add_argument("--buckets", type=int, default=64)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_kafka(Path(folder) / "kafka") as bootstrap:
        measure(KafkaBus(KafkaSettings(bootstrap)), counter(given.buckets), given.keys, Path(folder))


def measure(bus: KafkaBus, processor: type[ps.Stateful], keys: int, folder: Path) -> None:
    """Build, back up, lose, and restore the state."""
    fill(bus, plan_of(processor).inputs[0], keys)
    targets = ends_of(plan_of(processor).inputs, bus)
    place = LocalFileStore(folder / "backups")
    around = Environment(folder / "state", place, timedelta(seconds=5))
    opened = prepare(processor, bus)
    with assemble_worker(opened, bus, around) as worker:
        began = time.monotonic()
        worker.run(lambda it: it.has_reached(targets) and is_backed_up(processor, place, targets))
        print(f"built and backed up in {time.monotonic() - began:.1f} s, {rss()}")
    size = sum(file.stat().st_size for file in around.state.rglob("*") if file.is_file())
    shutil.rmtree(around.state)
    restart(opened, bus, around, targets, f"{len(targets)} shards of {keys:,} keys, {size / 1e6:.0f} MB, back")
    standby = replace(around, state=folder / "standby", standby=True)
    copies = StandbyCopies(place, standby.state, processor.name)
    began = time.monotonic()
    for bucket in targets:
        copies.update(identity(processor, bucket.number), StatePosition)
    print(f"copied in {time.monotonic() - began:.1f} s")
    restart(opened, bus, standby, targets, "taken over")


def restart(opened: ps.Processor, bus: KafkaBus, around: Environment, targets: Targets, what: str) -> None:
    """Start a worker, and print the time until it has all of its states."""
    with assemble_worker(opened, bus, around) as worker:
        began = time.monotonic()
        assigned: list[float] = []

        def is_open(worker: Worker) -> bool:
            if worker.owned and not assigned:
                assigned.append(time.monotonic())
            return worker.has_reached(targets)

        worker.run(is_open)
        now = time.monotonic()
        print(f"{what} in {now - began:.1f} s, {now - assigned[0]:.1f} s after the assignment, {rss()}")


def is_backed_up(processor: type[ps.Stateful], place: FileStore, targets: Targets) -> bool:
    """Tell whether the newest backup of each shard is at its end."""
    return all(
        _newest(processor, place, bucket.number).offsets.get(bucket.category) == end for bucket, end in targets.items()
    )


def _newest(processor: type[ps.Stateful], place: FileStore, number: int) -> StatePosition:
    return newest_position(place, identity(processor, number)) or StatePosition()


def identity(processor: type[ps.Stateful], number: int) -> ShardIdentity:
    """Return the identity of a shard."""
    return ShardIdentity(processor.name, number, plan_of(processor).state_shape)


def fill(bus: KafkaBus, category: ps.Category[KeyEvent], keys: int) -> None:
    """Write one event of each key."""
    bus.catalog.create(CategorySpec.of(category))
    writer = bus.writer()
    for start in range(0, keys, BATCH):
        numbers = range(start, min(start + BATCH, keys))
        writer.send(category.name, (Outgoing(b"k%d" % n, b'{"key":"k%d","at":%d}' % (n, n)) for n in numbers))
    writer.flush()
    writer.close()


def rss() -> str:
    """Return the memory of this process."""
    return f"{psutil.Process().memory_info().rss / 2**20:,.0f} MiB of memory"


if __name__ == "__main__":
    main()
