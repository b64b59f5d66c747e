"""Throughput of an app while snapshots of it are taken, beside no snapshots, and beside stopping all workers instead.

    python benchmarks/snapshots.py [--rounds 1] [--intervals 1,5,30] [--window 15]

Starts its own broker, and one worker of each of six processors with three shuffles, exactly once. The input always has a backlog, and a reader counts
the committed outputs of the last processor. All cases are measured in turn with the same workers, so a slow minute of the machine affects all of
them. Prints messages/s, and the longest time without an output.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Thread

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from rounds import HERE, broker, unique
from snapshots_app import BUCKETS, STAGES

from penstock.ops.change.snapshots.snapshot import SnapshotError
from penstock.ops.change.snapshots.taking import take_snapshot
from penstock.ops.start import wait_until
from penstock.processors.apps import App, load_app
from penstock.processors.declare import plan_of
from penstock.state.files import LocalFileStore
from penstock.transport import Outgoing
from penstock.transport.codecs import Codecs
from penstock.transport.kafka import KafkaBus, KafkaSettings

BATCH = 5_000
BACKLOG = 50_000
"""How many messages are sent ahead of the outputs."""
FIRST_LIMIT_S = 300.0
NONE, STOPPED = "none", "all workers stopped"


@dataclass
class Measured:
    """The measurements of one run.

    Args:
        rate: messages per second.
        pause_s: the longest time without an output.
        taken: the number of snapshots.
    """

    rate: float
    pause_s: float
    taken: int = 0


class Site:
    """The workers of a run, its input, and a reader of its output.

    Args:
        kafka: the broker.
        folder: the states and backups.
    """

    def __init__(self, kafka: str, folder: Path) -> None:
        self.run = unique("snapshots")
        os.environ["RUN"] = self.run
        self._folder = folder
        self._environment = {**os.environ, "PENSTOCK_KAFKA": kafka}
        self.bus = KafkaBus(KafkaSettings(kafka))
        self._file = folder / f"{self.run}.py"
        shutil.copy(HERE / "snapshots_app.py", self._file)
        self.app: App = load_app(self._file)
        self._workers: list[subprocess.Popen[bytes]] = []
        self._consumer = Consumer({"bootstrap.servers": kafka, "group.id": self.run, "fetch.wait.max.ms": 50})
        self.outputs = 0
        subprocess.run(
            [sys.executable, "-m", "penstock", "category", "create", str(self._file)],
            env=self._environment,
            check=True,
            capture_output=True,
        )
        places = [TopicPartition(f"{self.run}.{STAGES}", number, OFFSET_BEGINNING) for number in range(BUCKETS)]
        self._consumer.assign(places)

    def start(self) -> None:
        """Start a worker of each processor."""
        folders = ("--dir", str(self._folder), "--backup", str(self._folder / "backups"))
        self._workers = [
            subprocess.Popen(
                [sys.executable, "-m", "penstock", "run", f"{self._file}:Stage{number}", *folders],
                env=self._environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for number in range(STAGES)
        ]

    def stop(self) -> None:
        """Stop all workers, which save their states."""
        for worker in self._workers:
            worker.send_signal(signal.SIGTERM)
        for worker in self._workers:
            worker.wait()

    def close(self) -> None:
        """Stop, and close the reader."""
        self.stop()
        self._consumer.close()

    def feed(self, ended: Event) -> None:
        """Keep a backlog in the input until the end."""
        category = next(iter(plan_of(self.app.processors[0]).inputs))
        codec, writer, sent = Codecs(self.bus).of(category), self.bus.writer(), 0
        while not ended.is_set():
            if sent - self.outputs > BACKLOG:
                ended.wait(0.05)
                continue
            batch = [category.record(f"k{number % 997}", number, number) for number in range(sent, sent + BATCH)]
            writer.send(category.name, map(Outgoing, [one.key.encode() for one in batch], codec.encode(batch)))
            sent += BATCH
        writer.close()

    def await_outputs(self) -> None:
        """Wait until outputs come, at the beginning or after a stop."""
        if not wait_until(lambda: self.read(1.0).rate > 0, FIRST_LIMIT_S):
            raise RuntimeError(f"the app has written no output within {FIRST_LIMIT_S:.0f} s")

    def read(self, seconds: float) -> Measured:
        """Read outputs for a time."""
        began_s, before, longest_s = time.monotonic(), self.outputs, 0.0
        last_s = now_s = began_s
        while now_s < began_s + seconds:
            new = sum(message.error() is None for message in self._consumer.consume(10_000, 0.05))
            now_s = time.monotonic()
            self.outputs += new
            longest_s = max(longest_s, now_s - last_s)
            last_s = now_s if new else last_s
        return Measured((self.outputs - before) / (now_s - began_s), longest_s)

    def take(self) -> bool:
        """Take a snapshot; return whether it succeeded."""
        try:
            take_snapshot(self.run, self.app.processors, self.bus, LocalFileStore(self._folder / "backups"))
        except SnapshotError:
            return False
        return True

    def stop_and_start(self) -> bool:
        """Stop all workers, and start them again: the least that a snapshot of a stopped app takes."""
        self.stop()
        self.start()
        return True


@contextmanager
def repeating(action: Callable[[], bool], every_s: float) -> Iterator[list[bool]]:
    """Perform an action at an interval in the block, in a thread; yield the results."""
    done: list[bool] = []
    ended = Event()

    def repeat() -> None:
        while not ended.wait(every_s):
            done.append(action())

    thread = Thread(target=repeat)
    thread.start()
    try:
        yield done
    finally:
        ended.set()
        thread.join()


def measure(site: Site, case: str, window_s: float) -> Measured:
    """Read outputs for some time, with snapshots at an interval, or with stops."""
    site.await_outputs()
    action, every_s = _action(site, case)
    with repeating(action, every_s) as done:
        measured = site.read(window_s if case == NONE else max(window_s, 2.2 * every_s))
    return replace(measured, taken=sum(done))


@contextmanager
def running(kafka: str) -> Iterator[Site]:
    """Run the app and feed it in the block, from its first outputs on."""
    with tempfile.TemporaryDirectory() as folder:
        site, ended = Site(kafka, Path(folder)), Event()
        feeder = Thread(target=site.feed, args=(ended,))
        try:
            site.start()
            feeder.start()
            yield site
        finally:
            ended.set()
            feeder.join()
            site.close()


def _action(site: Site, case: str) -> tuple[Callable[[], bool], float]:
    """Return what is done at which interval, in seconds."""
    kind, _, every = case.partition(" every ")
    if case == NONE:
        return (lambda: False), FIRST_LIMIT_S
    return (site.stop_and_start if kind == STOPPED else site.take), float(every.removesuffix(" s"))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1, help="the number of measurements of each case")
    parser.add_argument("--window", type=float, default=15.0, help="the least seconds of a measurement")
    parser.add_argument("--intervals", default="1,5,30", help="seconds between snapshots, with commas between")
    arguments = parser.parse_args()
    intervals = arguments.intervals.split(",")
    cases = [NONE, *(f"snapshots every {each} s" for each in intervals), f"{STOPPED} every {intervals[-1]} s"]
    found: dict[str, list[Measured]] = defaultdict(list)
    with broker() as kafka, running(kafka) as site:
        for _ in range(arguments.rounds):
            for case in cases:
                found[case].append(measure(site, case, arguments.window))
                print(f"{case}: {found[case][-1]}", flush=True)
    show(found)


def show(found: dict[str, list[Measured]]) -> None:
    """Print the table."""
    without = statistics.median(one.rate for one in found[NONE])
    print(f"\n{'case':<34}{'messages/s':>12}{'of none':>9}{'pause, s':>10}{'taken':>7}")
    for case, measured in found.items():
        rate = statistics.median(one.rate for one in measured)
        pause_s, taken = max(one.pause_s for one in measured), sum(one.taken for one in measured)
        print(f"{case:<34}{rate:>12,.0f}{rate / without:>9.2f}{pause_s:>10.1f}{taken:>7}")


if __name__ == "__main__":
    main()
