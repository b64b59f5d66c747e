"""How long outputs pause while a deployment is operated: deployed, scaled, killed, stopped, resized, and replaced by a clone.

    python benchmarks/standing_still.py [--rounds 3] [--rate 400] [--only deploy,scale]

Starts its own broker, deploys two workers under supervisord, and sends events at a steady rate. A reader of committed outputs records
the longest time without an output, over all keys, from the beginning of each operation until some seconds after its end. At the end it
checks that the counts of each key have no gap and no repetition. Prints a table.
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
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Lock, Thread

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from rounds import HERE, broker
from standing_still_app import INPUT_BUCKETS, OUTPUT_BUCKETS, Ping, Pong

from penstock.ops.deploy import DeploymentFiles
from penstock.ops.start import Daemon, wait_until

KEYS = 64
SETTLE_S = 6.0
"""How long the reader watches after an operation."""
QUIET_S = 10.0
FIRST_LIMIT_S = 120.0
STEP_S = 0.01
NAME = "count"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Pong).decode


class Feed:
    """Sends events at a steady rate, a key after the other, from a thread."""

    def __init__(self, kafka: str, rate: int) -> None:
        self._kafka = kafka
        self._rate = rate
        self._producer = self._connected()
        self._stop = Event()
        self._thread = Thread(target=self._send, daemon=True)
        self.sent = 0

    def start(self) -> None:
        """Begin to send."""
        self._stop.clear()
        self._thread = Thread(target=self._send, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Return when all sent events are on the bus. The next start learns the number of buckets anew."""
        self._stop.set()
        self._thread.join()
        self._producer.flush()
        self._producer = self._connected()

    def _connected(self) -> Producer:
        return Producer({"bootstrap.servers": self._kafka, "partitioner": "murmur2_random", "linger.ms": 0})

    def _send(self) -> None:
        began_s, before = time.monotonic(), self.sent
        while not self._stop.wait(STEP_S):
            due = before + int((time.monotonic() - began_s) * self._rate)
            for number in range(self.sent, due):
                key = f"key-{number % KEYS}"
                self._producer.produce("pings", _encode(Ping(key, time.time_ns() // 1_000_000)), key)
            self.sent = max(self.sent, due)
            self._producer.poll(0)


class Watch:
    """Reads committed outputs in a thread, and measures the longest time without an output of a key."""

    def __init__(self, kafka: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": kafka,
                "group.id": "standing-still",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
            }
        )
        self._consumer.assign([TopicPartition("pongs", number, OFFSET_BEGINNING) for number in range(OUTPUT_BUCKETS)])
        self._last_s: dict[str, float] = {}
        self._longest_s = 0.0
        self._lock = Lock()
        self.counts: dict[str, Counter[int]] = defaultdict(Counter)
        self.received = 0
        self._closed = Event()
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """Begin a measurement, at the last output of each key."""
        with self._lock:
            self._longest_s = 0.0

    def longest_s(self) -> float:
        """Return the longest time without an output of a key since `begin`, in seconds."""
        with self._lock:
            now_s = time.monotonic()
            return max(self._longest_s, *(now_s - last_s for last_s in self._last_s.values()))

    def close(self) -> None:
        """Stop reading."""
        self._closed.set()
        self._thread.join()
        self._consumer.close()

    def faults(self, sent: int) -> int:
        """Return how many counts are missing or repeated, after a number of sent events."""
        expected = Counter(f"key-{number % KEYS}" for number in range(min(sent, KEYS)))
        events = {key: len(range(int(key.partition("-")[2]), sent, KEYS)) for key in expected}
        return sum(
            abs(self.counts[key][count] - (1 <= count <= events[key]))
            for key in events
            for count in {*self.counts[key], *range(1, events[key] + 1)}
        )

    def _read(self) -> None:
        while not self._closed.is_set():
            messages = self._consumer.consume(10_000, 0.02)
            now_s = time.monotonic()
            with self._lock:
                for pong in (_decode(message.value() or b"") for message in messages if not message.error()):
                    self._longest_s = max(self._longest_s, now_s - self._last_s.get(pong.key, now_s))
                    self._last_s[pong.key] = now_s
                    self.counts[pong.key][pong.count] += 1
                    self.received += 1


class Site:
    """A deployed app, its input and its output, operated as a person would: with `penstock`, and with signals."""

    def __init__(self, folder: Path, kafka: str, rate: int) -> None:
        self._folder = folder
        self._app = folder / "app.py"
        self._environment = {**os.environ, "PENSTOCK_KAFKA": kafka, "PENSTOCK_DIR": str(folder / "dir")}
        self._versions = 0
        self.backup = ("--backup", str(folder / "backups"))
        self._buckets = INPUT_BUCKETS
        shutil.copy(HERE / "standing_still_app.py", self._app)
        self.penstock("category", "create", str(self._app))
        self.feed, self.watch = Feed(kafka, rate), Watch(kafka)

    def penstock(self, *arguments: str) -> str:
        """Run a command, and return its output."""
        done = subprocess.run(
            [sys.executable, "-m", "penstock", *arguments],
            env=self._environment,
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"penstock {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def deploy(self) -> None:
        """Deploy a new version."""
        self._versions += 1
        with self._app.open("a", encoding="utf-8") as app:
            app.write(f"# version {self._versions}\n")
        self.penstock("deploy", str(self._app), *self.backup)

    def scale(self, workers: int) -> None:
        """Change the number of workers."""
        self.penstock("scale", NAME, "--workers", str(workers))

    def kill_worker(self) -> None:
        """Kill a worker, and wait for its successor."""
        files = DeploymentFiles(self._folder / "dir", NAME)
        killed = files.last_start(0)
        if killed is None:
            raise RuntimeError("worker 0 has not started")
        os.kill(killed.pid, signal.SIGKILL)
        wait_until(lambda: files.last_start(0) != killed, FIRST_LIMIT_S)

    def kill_supervisor(self) -> None:
        """Kill supervisord; its workers continue."""
        process = Daemon("supervisord", self._folder / "dir" / "supervisor").process()
        if process is None:
            raise RuntimeError("supervisord does not run")
        process.kill()

    def take_down(self) -> None:
        """Stop the deployment."""
        self.penstock("undeploy", NAME)

    def take_down_and_deploy(self) -> None:
        """Stop the deployment, and deploy a new version."""
        self.take_down()
        self.deploy()

    def resize(self) -> None:
        """Double the number of the input's buckets. Its writers stop meanwhile, and everything is read before."""
        self.feed.stop()
        self.await_all()
        self.take_down()
        self._buckets *= 2
        self.penstock("category", "resize", "pings", str(self._buckets), "--app", str(self._app))
        text = self._app.read_text(encoding="utf-8")
        self._app.write_text(
            text.replace(f"INPUT_BUCKETS = {self._buckets // 2}", f"INPUT_BUCKETS = {self._buckets}"), encoding="utf-8"
        )
        self.feed.start()
        self.deploy()

    def take_snapshot(self) -> str:
        """Take a snapshot, and return its id."""
        taken = self.penstock("snapshot", "take", str(self._app), *self.backup, "--json")
        return str(msgspec.json.decode(taken)["id"])

    def promote(self) -> None:
        """Make and deploy a clone, and let it take over."""
        self._versions += 1
        clone = f"green{self._versions}"
        self.penstock("clone", str(self._app), self.take_snapshot(), "--as", clone, *self.backup)
        self.penstock("deploy", f"{self._app}@{clone}", *self.backup)
        self.penstock("promote", f"{self._app}@{clone}", "--yes", *self.backup)

    def await_all(self) -> None:
        """Wait until the reader has received as many outputs as events were sent up to now."""
        sent = self.feed.sent
        if not wait_until(lambda: self.watch.received >= sent, FIRST_LIMIT_S):
            raise RuntimeError(f"{sent} events were sent, and {self.watch.received} outputs came")


def operations(site: Site) -> dict[str, Callable[[], object]]:
    """Return the operations of a round, in order. Each begins and ends with two workers."""
    return {
        "nothing": lambda: time.sleep(QUIET_S),
        "deploy": site.deploy,
        "scale 2 to 3": lambda: site.scale(3),
        "scale 3 to 2": lambda: site.scale(2),
        "deploy after scaling": site.deploy,
        "kill -9 of a worker": site.kill_worker,
        "deploy after a kill": site.deploy,
        "kill -9 of supervisord": site.kill_supervisor,
        "repair after that": lambda: site.scale(2),
        "undeploy, deploy": site.take_down_and_deploy,
        "snapshot": site.take_snapshot,
        "promotion": site.promote,
        "resize": site.resize,
    }


@contextmanager
def deployed(folder: Path, kafka: str, rate: int) -> Iterator[Site]:
    """Deploy two workers for the block, and wait for the first outputs."""
    site = Site(folder, kafka, rate)
    try:
        site.feed.start()
        site.penstock("deploy", str(folder / "app.py"), "--workers", "2", *site.backup)
        if not wait_until(lambda: len(site.watch.counts) == KEYS, FIRST_LIMIT_S):
            raise RuntimeError("the workers have written no output")
        site.await_all()
        yield site
    finally:
        site.feed.stop()
        site.watch.close()
        Daemon("supervisord", folder / "dir" / "supervisor").stop(limit_s=60)


def measure(site: Site, operation: Callable[[], object]) -> tuple[float, float]:
    """Return the longest time without an output, and the duration of the operation, in seconds."""
    site.watch.begin()
    began_s = time.monotonic()
    operation()
    took_s = time.monotonic() - began_s
    time.sleep(SETTLE_S)
    site.await_all()
    return site.watch.longest_s(), took_s


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="the number of measurements of each operation")
    parser.add_argument("--rate", type=int, default=400, help="events per second")
    parser.add_argument("--only", default="", help="parts of the names of operations, with commas between")
    arguments = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    with (
        tempfile.TemporaryDirectory() as folder,
        broker() as kafka,
        deployed(Path(folder), kafka, arguments.rate) as site,
    ):
        for _ in range(arguments.rounds):
            for name, operation in operations(site).items():
                if any(part in name for part in arguments.only.split(",")):
                    found[name].append(measure(site, operation))
                    print(f"{name}: {found[name][-1][0]:.1f} s", flush=True)
        site.feed.stop()
        site.await_all()
        faults = site.watch.faults(site.feed.sent)
    show(found, faults)


def show(found: dict[str, list[tuple[float, float]]], faults: int) -> None:
    """Print the table."""
    print(f"\n{'operation':<26}{'pause, median s':>16}{'longest s':>11}{'command s':>11}")
    for name, measured in found.items():
        still, took = zip(*measured, strict=True)
        print(f"{name:<26}{statistics.median(still):>16.1f}{max(still):>11.1f}{statistics.median(took):>11.1f}")
    print(f"missing or repeated counts: {faults}")


if __name__ == "__main__":
    main()
