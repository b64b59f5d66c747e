"""Laser beside Redis on the same machine: reads, the delay from a write to its read, memory over time, and restarts.

    python benchmarks/laser.py [--keys 1000000] [--seconds 3] [--delays 200]

Starts a broker, a Laser server and a Redis server, each a process of its own, with the same pairs: keys of 10 bytes, values of 100.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import redis
from laser_app import items
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis_load import key_of, load, value_of
from stores import redis_store

from penstock.ops.shell import choose_ports
from penstock.ops.start.dev_services.services import running_kafka
from penstock.transport import CategorySpec, Outgoing
from penstock.transport.kafka import KafkaBus, KafkaSettings

CONNECTIONS = (1, 4, 16, 64)
BATCH = 20_000
KEYS_PER_MGET = 100
START_LIMIT_S = 3_600.0
DELAY_LIMIT_S = 60.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000, help="the number of pairs")
    parser.add_argument("--seconds", type=float, default=3.0, help="the seconds of each load")
    parser.add_argument("--delays", type=int, default=200, help="the number of writes whose delay is measured")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_kafka(Path(folder) / "kafka") as bootstrap:
        bus = KafkaBus(KafkaSettings(bootstrap))
        bus.catalog.create(CategorySpec.of(items))
        write(bus, given.keys)
        site = Site(Path(folder), bootstrap)
        with site.serving("all events are read from Kafka"), redis_store(Path(folder)) as store:
            fill(store, given.keys)
            compare(site.port, store, given.keys, given.seconds)
            site.report_memory("after the loads")
            show_delays(bus, site.port, given.delays)
            update(bus, given.keys)
            site.report_memory(f"after {given.keys:,} updates")
            loaded = load(site.port, 16, given.keys, KEYS_PER_MGET, given.seconds)
            site.report_memory(f"after another load, {loaded}")
        with site.serving("restarted after kill -9"):
            site.report_memory("after the restart")


def write(bus: KafkaBus, keys: int, generation: int = 0) -> None:
    """Send a message for each key."""
    writer, at = bus.writer(), time.time_ns() // 1_000_000
    for start in range(0, keys, BATCH):
        numbers = range(start, min(start + BATCH, keys))
        writer.send(items.name, [_message(number, number + generation, at) for number in numbers])
    writer.flush()
    writer.close()


def update(bus: KafkaBus, keys: int) -> None:
    """Replace each value."""
    write(bus, keys, generation=keys)


def _message(number: int, value: int, at: int) -> Outgoing:
    key = key_of(number)
    return Outgoing(key, b'{"key":"%b","at":%d,"value":"%b"}' % (key, at, value_of(value)))


class Site:
    """A Laser server in a folder.

    Args:
        folder: contains its state and log.
        bootstrap: the address of the broker.
    """

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.port = choose_ports(["laser"], {})["laser"]
        self._folder = folder
        app = Path(__file__).with_name("laser_app.py")
        words = ["-m", "penstock", "serve", "laser", "items", "--app", str(app), "--key", "key", "--value", "value"]
        where = ["--port", str(self.port), "--kafka", bootstrap, "--dir", str(folder / "laser")]
        self._command = [sys.executable, *words, *where]
        self._process: subprocess.Popen[bytes] | None = None

    @contextmanager
    def serving(self, what: str) -> Iterator[None]:
        """Run the server in the block, and kill it afterwards. Print how long it takes until it answers."""
        began_s = time.monotonic()
        with (
            (self._folder / "log").open("ab") as log,
            subprocess.Popen(self._command, stdout=log, stderr=log) as process,
        ):
            self._process = process
            try:
                self._await_answers()
                print(f"Laser answers after {time.monotonic() - began_s:.1f} s: {what}")
                self.report_memory("at the start")
                yield
            finally:
                process.kill()

    def _await_answers(self) -> None:
        deadline_s = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline_s:
            if self._process is None or self._process.poll() is not None:
                raise RuntimeError((self._folder / "log").read_text())
            with closing(redis.Redis(port=self.port, retry=Retry(NoBackoff(), 0))) as client:
                try:
                    client.mget([key_of(number) for number in range(100)])
                except (redis.ConnectionError, redis.exceptions.BusyLoadingError):
                    time.sleep(0.05)
                else:
                    return
        raise RuntimeError("Laser does not answer")

    def report_memory(self, when: str) -> None:
        """Print the memory and the processor time of the server."""
        if self._process is None:
            raise RuntimeError("the server does not run")
        server = psutil.Process(self._process.pid)
        times = server.cpu_times()
        used = server.memory_info().rss / 2**20
        print(
            f"Laser {when}: {used:,.0f} MiB of memory, {times.user + times.system:,.1f} s of processor time", flush=True
        )


def fill(store: int, keys: int) -> None:
    """Write the same pairs to Redis."""
    with closing(redis.Redis(port=store)) as client:
        for start in range(0, keys, BATCH):
            numbers = range(start, min(start + BATCH, keys))
            client.mset({key_of(number): value_of(number) for number in numbers})


def compare(laser: int, store: int, keys: int, seconds: float) -> None:
    """Print the rates of both servers, in turn."""
    print(f"{'':<24}{'Laser: p50 and p99':<42}Redis: p50 and p99")
    for per_request in (1, KEYS_PER_MGET):
        for connections in CONNECTIONS:
            found = [load(port, connections, keys, per_request, seconds) for port in (laser, store)]
            name = f"{'GET' if per_request == 1 else f'MGET {per_request}'}, {connections} connections"
            print(f"{name:<24}{found[0]!s:<42}{found[1]}", flush=True)


def show_delays(bus: KafkaBus, port: int, count: int) -> None:
    """Print the time from the acknowledged write of a value to the first answer that has it."""
    writer, waited_ms = bus.writer(), list[float]()
    with closing(redis.Redis(port=port)) as client:
        for number in range(count):
            text = value_of(-number - 1)
            writer.send(items.name, [_message(number, -number - 1, time.time_ns() // 1_000_000)])
            writer.flush()
            began_s = time.monotonic()
            while client.get(key_of(number)) != text:
                if time.monotonic() - began_s > DELAY_LIMIT_S:
                    raise RuntimeError("a written value is not served")
                time.sleep(0.002)
            waited_ms.append((time.monotonic() - began_s) * 1000)
    writer.close()
    print(f"write to read: {_percentiles(waited_ms)}")


def _percentiles(values: Sequence[float]) -> str:
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return f"p50 {cuts[49]:,.0f} ms, p99 {cuts[98]:,.0f} ms, at most {max(values):,.0f} ms, of {len(values)}"


if __name__ == "__main__":
    main()
