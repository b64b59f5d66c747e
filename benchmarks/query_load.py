"""Queries a second of `penstock serve results`, idle and while its processor reads a steady stream.

    python benchmarks/query_load.py [--pages 1000] [--rates 0 20000 100000] [--seconds 5]

Starts a broker, a worker of the SQL app `query_load.sql`, a query server, a sender and the clients, each a process of its own. A query asks
for the windows of one page; a client sends the next one when it has the answer of the last one.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError

from penstock.ops.shell import choose_ports
from penstock.ops.start.dev_services.services import running_kafka
from penstock.processors.apps import AppName
from penstock.transport import CategorySpec, Outgoing
from penstock.transport.kafka import KafkaBus, KafkaSettings

APP = Path(__file__).with_suffix(".sql")
CONNECTIONS = (1, 16, 64)
START_LIMIT_S = 120.0
STEP_S = 0.05


def main() -> None:
    """Measure and print; or send events, as a process of the measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=1_000, help="the number of keys")
    parser.add_argument("--rates", type=int, nargs="+", default=[0, 20_000, 100_000], help="events a second")
    parser.add_argument("--seconds", type=float, default=5.0, help="the seconds of each load")
    parser.add_argument("--send", metavar="BOOTSTRAP", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.send:
        send(KafkaBus(KafkaSettings(given.send)), given.pages, given.rates[0])
        return
    with tempfile.TemporaryDirectory() as folder, running_kafka(Path(folder) / "kafka") as bootstrap:
        measure(bootstrap, Path(folder), given)


def measure(bootstrap: str, folder: Path, given: argparse.Namespace) -> None:
    """Start everything, and print a row for each rate and number of connections."""
    bus = KafkaBus(KafkaSettings(bootstrap))
    for category in AppName.parse(str(APP)).load().categories():
        bus.catalog.create(CategorySpec.of(category))
    port = choose_ports(["serve"], {})["serve"]
    where = ["--kafka", bootstrap, "--dir", str(folder / "site")]
    with running("run", str(APP), *where), running("serve", "results", str(APP), "--port", str(port), *where):
        write(bus, given.pages, given.pages)
        url = f"http://127.0.0.1:{port}/v1/processors/views_per_page/results?key={page_of(given.pages - 1)}"
        await_results(url)
        print(f"{'events/s':>10}{'connections':>13}{'queries/s':>11}{'p50 ms':>8}{'p99 ms':>8}")
        for rate in given.rates:
            with sending(bootstrap, given.pages, rate):
                for connections in CONNECTIONS:
                    times_ms = asyncio.run(load(port, connections, given.pages, given.seconds))
                    cuts = statistics.quantiles(times_ms, n=100)
                    answered = len(times_ms) / given.seconds
                    print(f"{rate:>10,}{connections:>13}{answered:>11,.0f}{cuts[49]:>8.1f}{cuts[98]:>8.1f}", flush=True)


@contextmanager
def running(*words: str) -> Iterator[None]:
    """Run a command of Penstock in the block."""
    with subprocess.Popen([sys.executable, "-m", "penstock", *words], stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


@contextmanager
def sending(bootstrap: str, pages: int, rate: int) -> Iterator[None]:
    """Send events at a rate in the block, from another process."""
    words = [sys.executable, __file__, "--send", bootstrap, "--pages", str(pages), "--rates", str(rate)]
    with subprocess.Popen(words) as process:
        try:
            time.sleep(1.0 if rate else 0.0)
            yield
        finally:
            process.kill()


def send(bus: KafkaBus, pages: int, rate: int) -> None:
    """Send events at a steady rate, until this process is killed."""
    began_s, sent = time.monotonic(), 0
    while rate:
        due = int((time.monotonic() - began_s) * rate)
        write(bus, due - sent, pages)
        sent = due
        time.sleep(STEP_S)


def write(bus: KafkaBus, count: int, pages: int) -> None:
    """Write events of the present time."""
    writer, now_ms = bus.writer(), time.time_ns() // 1_000_000
    keys = [page_of(number % pages).encode() for number in range(count)]
    writer.send("views", [Outgoing(key, b'{"seen":%d,"customer":"ann","page":"%b"}' % (now_ms, key)) for key in keys])
    writer.flush()
    writer.close()


def page_of(number: int) -> str:
    """Return the name of a page."""
    return f"page-{number:06d}"


def await_results(url: str) -> None:
    """Wait until the server has a result."""
    deadline_s = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline_s:
        try:
            with urllib.request.urlopen(url) as answer:  # noqa: S310 - a server of this script
                if b'"views"' in answer.read():
                    return
        except (URLError, ConnectionError):
            pass
        time.sleep(0.2)
    raise RuntimeError("the server has no results")


async def load(port: int, connections: int, pages: int, seconds: float) -> list[float]:
    """Ask over several connections for a time. Return the milliseconds of each answer."""
    deadline_s = time.monotonic() + seconds
    found = await asyncio.gather(*(ask(port, pages, deadline_s) for _ in range(connections)))
    return [taken for of_connection in found for taken in of_connection]


async def ask(port: int, pages: int, deadline_s: float) -> list[float]:
    """Ask one query after the other over one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    taken_ms: list[float] = []
    while (began_s := time.monotonic()) < deadline_s:
        page = page_of(random.randrange(pages))
        path = f"/v1/processors/views_per_page/results?key={page}&last=1h"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if not head.startswith(b"http/1.1 200"):
            raise RuntimeError(head.decode())
        size = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(size)
        taken_ms.append((time.monotonic() - began_s) * 1000)
    writer.close()
    return taken_ms


if __name__ == "__main__":
    main()
