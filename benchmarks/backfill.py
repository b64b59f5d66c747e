"""Throughput of the archiver and of backfills in Spark, beside the same work by hand. Takes about an hour for 50 million events.

The flights of 2013 are repeated (see `replayed.py`), about 170 bytes each as JSON. Run nothing else meanwhile.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from figures import COLORS, drawing
from flights_app import Flight, flights
from replayed import DAYS, replayed
from rounds import broker, command, create, options, rate

from penstock.backfill.archive import Archiver
from penstock.backfill.warehouse import open_warehouse
from penstock.ops.kernel import ends_of, tune_memory
from penstock.transport import Outgoing
from penstock.transport.codecs import Codecs
from penstock.transport.kafka import KafkaBus, KafkaSettings

FLIGHTS = 336_776
WORKS = {"lates": "stateless", "days": "aggregator", "gaps": "stateful"}
WAYS = {
    "sql": "Spark SQL by hand",
    "columns": "Penstock, columns",
    "events": "Penstock, event by event",
    "naive": "applyInPandas",
}
FIRST = date(2013, 1, 1)
NAIVE_SHARE = 10
"""`applyInPandas` gets one of this many days, since it is slow and keeps a large group in memory."""


class Measured(NamedTuple):
    """The measurement of one job with one method."""

    events: int
    seconds: float
    processor_s: float
    worker_mib: float

    @property
    def per_core(self) -> float:
        """Events per second of processor time."""
        return self.events / self.processor_s


def main() -> None:
    """Write the events, archive them, run each backfill, and print the measurements."""
    parser = options(__doc__, messages=50_000_000, rounds=1)
    parser.add_argument("--archive-only", action="store_true", help="measure the archiver only")
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        warehouse = f"{folder}/warehouse"
        with broker() as bootstrap:
            print(f"written:   {make(bootstrap, arguments.messages):,.0f} events/s", flush=True)
            plain = rate("plain_read.py", bootstrap)
            archived = archive(bootstrap, warehouse, arguments.messages)
            print(
                f"read by a plain loop: {plain:,.0f} events/s; archived: {archived:,.0f}, {archived / plain:.2f} of that",
                flush=True,
            )
        if arguments.archive_only:
            return
        size = sum(file.stat().st_size for file in Path(warehouse).rglob("*.parquet"))
        print(f"archive:  {size / 2**20:,.0f} MiB", flush=True)
        measured = dict(measurements(warehouse, folder))
    show(measured)
    draw(measured)


def make(bootstrap: str, count: int) -> float:
    """Write the events, and return the events per second."""
    bus = KafkaBus(KafkaSettings(bootstrap))
    create(bus, [flights])
    encode, began_s = Codecs(bus).of(flights).encode, time.monotonic()
    with closing(bus.writer()) as writer:
        for day in replayed(count, -(-count // FLIGHTS)):
            writer.send(flights.name, map(Outgoing, keys_of(day), encode(day)))
        writer.flush()
    return count / (time.monotonic() - began_s)


def keys_of(events: list[Flight]) -> list[bytes]:
    """Return the encoded keys of events."""
    return [key.encode() for key in flights.keys_of(events)]


def archive(bootstrap: str, warehouse: str, count: int) -> float:
    """Archive all events, and return the events per second from the first ones to the end, as of the plain loop."""
    bus, began_s = KafkaBus(KafkaSettings(bootstrap)), 0.0
    targets = ends_of([flights], bus)
    tune_memory()

    def finished(archiver: Archiver) -> bool:
        nonlocal began_s
        began_s = began_s or (time.monotonic() if archiver.metrics.events else 0.0)
        return archiver.has_reached(targets)

    Archiver(bus, [flights], open_warehouse(warehouse)).run(finished)
    return count / (time.monotonic() - began_s)


def measurements(warehouse: str, output: str) -> Iterator[tuple[tuple[str, str], Measured]]:
    """Measure each method of each job in separate processes."""
    for work in WORKS:
        for way in WAYS:
            if (work, way) == ("gaps", "columns"):
                continue  # a stateful processor has no step over columns
            last = FIRST + timedelta(days=(DAYS // NAIVE_SHARE if way == "naive" else DAYS) + 1)
            arguments = command("backfill_run.py", warehouse, output, work, way, str(FIRST), str(last))
            printed = subprocess.run(arguments, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
            measured = Measured(int(printed[0]), *map(float, printed[1:]))
            print(
                f"{work:6} {way:8} {measured.per_core:12,.0f} events/s per core, {measured.worker_mib:,.0f} MiB",
                flush=True,
            )
            yield (work, way), measured


def show(measured: dict[tuple[str, str], Measured]) -> None:
    """Print a table for the documentation."""
    print("\n| kind | method | events/s | per core | ratio to SQL | ratio to applyInPandas | worker, MiB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for (work, way), measurement in measured.items():
        sql, naive = (measurement.per_core / measured[work, other].per_core for other in ("sql", "naive"))
        print(
            f"| {WORKS[work]} | {WAYS[way]} | {measurement.events / measurement.seconds:,.0f} | {measurement.per_core:,.0f} | {sql:.2f} | {naive:.1f} | "
            f"{measurement.worker_mib:,.0f} |"
        )


def draw(measured: dict[tuple[str, str], Measured]) -> None:
    """Draw the events per second and core."""
    with drawing("backfill.svg", len(WORKS), height=2.6) as panels:
        for axes, (work, kind) in zip(panels, WORKS.items(), strict=True):
            ways = [way for way in reversed(WAYS) if (work, way) in measured]
            rates = [measured[work, way].per_core / 1000 for way in ways]
            axes.barh([WAYS[way] for way in ways], rates, color=COLORS[0])
            axes.set_title(kind)
            axes.set_xlabel("1,000 events/s per core", loc="right")
            axes.grid(axis="x")


if __name__ == "__main__":
    main()
