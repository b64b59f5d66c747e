"""A group with 90 % of the events, counted in one phase and in two: the processor time of the busiest worker.

    python benchmarks/hot_key.py [--events 1000000] [--workers 1,2]

Starts its own broker. In one phase, the busiest worker has the bucket of this group, however many workers there are; in two, the time is divided by
their number. The processor time does not depend on other programs that run on the machine.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import penstock as ps
from penstock.ops.start.dev_services.services import running_kafka
from penstock.transport import CategorySpec, Outgoing
from penstock.transport.kafka import KafkaBus, KafkaSettings

BATCH = 50_000
APP = """
CREATE CATEGORY visits (visitor text, page text, at bigint, spent bigint) WITH (category = '{visits}', key = 'visitor', time = 'at', buckets = 8);
CREATE TABLE {name} WITH (buckets = 8, semantics = 'exactly once'{setting}) AS
SELECT page, count(*) AS visits, sum(spent) AS spent, approx_count_distinct(visitor) AS visitors FROM visits GROUP BY page, tumble(at, interval '1 minute');
"""


class Visit(ps.Record, frozen=True):
    """A visit of a page."""

    visitor: str
    page: str
    at: ps.EventTime
    spent: int


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--events", type=int, default=1_000_000)
    arguments.add_argument("--workers", default="1,2")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_kafka(Path(folder) / "kafka") as bootstrap:
        fill(KafkaBus(KafkaSettings(bootstrap)), given.events)
        print(f"{given.events:,} events, 90 % of them of one page")
        for phases, setting in ((1, ""), (2, ", two_phase = true")):
            for workers in map(int, given.workers.split(",")):
                name = f"visits_{phases}_{workers}"
                file = Path(folder) / f"{name}.sql"
                file.write_text(APP.format(visits="visits", name=name, setting=setting))
                print(f"{phases} phases, {workers} workers: {measured(file, bootstrap, workers)}", flush=True)


def fill(bus: KafkaBus, events: int) -> None:
    """Write the events, in order of event time."""
    category = ps.Category("visits", Visit, key="visitor", event_time="at", buckets=8)
    bus.catalog.create(CategorySpec.of(category))
    writer, dice = bus.writer(), random.Random(1)
    for start in range(0, events, BATCH):
        numbers = range(start, min(start + BATCH, events))
        writer.send("visits", (_visit(dice, number) for number in numbers))
    writer.flush()
    writer.close()


def _visit(dice: random.Random, number: int) -> Outgoing:
    visitor, page = f"v{dice.randrange(5_000)}", 0 if dice.random() < 0.9 else dice.randrange(1, 1_000)
    value = f'{{"visitor":"{visitor}","page":"p{page}","at":{1_700_000_000_000 + number},"spent":{number % 60}}}'
    return Outgoing(visitor.encode(), value.encode())


def measured(file: Path, bootstrap: str, workers: int) -> str:
    """Run an app to the end of its inputs in several processes, and return their processor times without the time of a start."""
    used_s = _used_s(file, bootstrap, workers)
    start_s = min(_used_s(file, bootstrap, workers))  # again, with nothing to read
    worked_s = [max(each - start_s, 0.0) for each in used_s]
    return f"busiest worker {max(worked_s):.1f} s of {sum(worked_s):.1f} s (start {start_s:.1f} s)"


def _used_s(file: Path, bootstrap: str, workers: int) -> list[float]:
    used_s = []
    for process in [_started(file, bootstrap, number) for number in range(workers)]:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{file.name} failed: {process.returncode}")
        used_s.append(usage.ru_utime + usage.ru_stime)
    return used_s


def _started(file: Path, bootstrap: str, number: int) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "penstock",
        "run",
        str(file),
        "--until-end",
        "--create",
        "--dir",
        str(file.parent / f"{file.stem}-{number}"),
    ]
    return subprocess.Popen(command, env={**os.environ, "PENSTOCK_KAFKA": bootstrap}, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
