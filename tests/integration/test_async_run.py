"""A processor that calls a slow HTTP service, on a real broker."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from support.cli import Cli
from support.meters import readings
from support.plain import values

APP = """
import asyncio
import penstock as ps

class Reading(ps.Record, frozen=True):
    meter: str
    at: ps.EventTime
    litres: int

class Priced(ps.Record, frozen=True):
    meter: str
    at: ps.EventTime
    litres: int
    price: int

readings = ps.Category("{prefix}.readings", Reading, key="meter", event_time="at", buckets=2)
priced = ps.Category("{prefix}.priced", Priced, key="meter", event_time="at", buckets=2)

class Prices(ps.Stateless):
    name = "{prefix}.prices"
    reads, writes, concurrency = readings, priced, 3
    state_semantics = output_semantics = ps.Semantics.EXACTLY_ONCE

    async def process(self, event):
        reader, writer = await asyncio.open_connection("127.0.0.1", {port})
        writer.write(f"GET /{{event.meter}}/{{event.litres}} HTTP/1.0\\r\\n\\r\\n".encode())
        answer = await asyncio.wait_for(reader.read(), timeout=60)
        writer.close()
        yield Priced(event.meter, event.at, event.litres, int(answer.split()[-1]))
"""

CONCURRENCY, BUSY_LIMIT_S = 3, 10.0


class PriceService(ThreadingHTTPServer):
    """Answers with three times the litres, after a moment. Records its concurrent requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), PriceRequest)
        self.lock = threading.Lock()
        self.running: Counter[str] = Counter()
        self.most = self.most_of_a_meter = 0
        self.is_busy = threading.Event()

    @contextmanager
    def request(self, meter: str) -> Iterator[None]:
        """Count a request while it runs."""
        with self.lock:
            self.running[meter] += 1
            self.most = max(self.most, self.running.total())
            if self.most >= CONCURRENCY:
                self.is_busy.set()
            self.most_of_a_meter = max(self.most_of_a_meter, self.running[meter])
        yield
        with self.lock:
            self.running[meter] -= 1


class PriceRequest(BaseHTTPRequestHandler):
    """One request."""

    server: PriceService

    def do_GET(self) -> None:
        """Answer."""
        _, meter, litres = self.path.split("/")
        with self.server.request(meter):
            self.server.is_busy.wait(BUSY_LIMIT_S)  # a busy machine may send the first requests one after the other
            time.sleep(0.02)  # the service is slow
        self.wfile.write(f"HTTP/1.0 200 OK\r\n\r\n{int(litres) * 3}".encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Log nothing."""


@pytest.fixture
def service() -> Iterator[PriceService]:
    """A running service."""
    with PriceService() as service:
        thread = threading.Thread(target=service.serve_forever)
        thread.start()
        yield service
        service.shutdown()
        thread.join()


def test_calls_run_concurrently_and_each_event_has_one_output(
    cli: Cli, prefix: str, kafka: str, service: PriceService
) -> None:
    """Up to the declared number of calls run at a time, and never two of a key. A replay makes the same calls."""
    (cli.folder / "prices.py").write_text(APP.format(prefix=prefix, port=service.server_address[1]))
    cli.ok("category", "create", "prices.py")
    cli.ok("category", "send", f"{prefix}.readings", "--app", "prices.py", stdin=readings(140))
    cli.ok("run", "prices.py", "--until-end")
    sent = [json.loads(line) for line in readings(140).splitlines()]
    expected = [reading | {"price": 3 * reading["litres"]} for reading in sent]
    written = values(kafka, f"{prefix}.priced")

    for meter in {reading["meter"] for reading in sent}:
        of_meter = [record for record in written if record["meter"] == meter]
        assert of_meter == [record for record in expected if record["meter"] == meter]
    assert len(written) == len(expected)
    assert service.most == CONCURRENCY
    assert service.most_of_a_meter == 1
    *replayed, _ = map(json.loads, cli.ok("replay", "prices.py", "--from", "1h ago", "--json").splitlines())
    assert len(replayed) == len(expected)
