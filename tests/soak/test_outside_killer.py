"""An app with default settings under random faults: killed, stopped and paused workers, lost disks, and broker outages.

`make soak-killer SECONDS=1800` prints the seed and the faults; with OUTAGE=330, the only fault is one broker outage of that many
seconds. Workers run as commands, and are restarted when they end, as a supervisor does it. The expected results are computed
without Penstock.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer
from soak import shop_app as shop
from support.databases import Postgres
from support.plain import values

import penstock as ps
from penstock.ops.start.dev_services.services import LocalServices

SECONDS = float(os.environ.get("SECONDS", "600"))
OUTAGE_S = float(os.environ.get("OUTAGE") or 0)
"""The length of the only broker outage, in seconds; 0 for random faults."""
END_LIMIT_S = 600.0
WORKERS = 2
PROCESSORS = ("Fulfilment", "Enrichment", "Sales", "Ledger", "Reminders", "Running")
RATE = 40
CUSTOMERS = 60
REGIONS = 7
HERE = Path(__file__).parent


def log(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)  # noqa: T201 - the log of faults


class Load:
    """Writes orders and shipments, a little out of order, with the current time as event time, and records them."""

    def __init__(self, kafka: str, rng: random.Random) -> None:
        self.orders: list[shop.Order] = []
        self.shipments: list[shop.Shipment] = []
        self._rng = rng
        self._ending = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": kafka,
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "message.timeout.ms": 0,
                "reconnect.backoff.max.ms": 1000,
                "log_level": 0,
                "error_cb": lambda _: None,
            }
        )
        for number in range(CUSTOMERS):
            self._send("customers", f"c{number}", {"customer": f"c{number}", "at": 1, "region": f"r{number % REGIONS}"})

    def _send(self, category: str, key: str, record: dict[str, Any]) -> None:
        self._producer.produce(category, json.dumps(record).encode(), key.encode())
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until all events are on the bus."""
        assert self._producer.flush(300) == 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Write until the block ends."""
        thread = threading.Thread(target=self._write)
        thread.start()
        try:
            yield
        finally:
            self._ending.set()
            thread.join()
            self.flush()

    def _write(self) -> None:
        while not self._ending.wait(1 / RATE):
            self.order(int(time.time() * 1000) - self._rng.randrange(shop.DISORDER_MS))

    def order(self, at: int) -> None:
        """Write an order, and sometimes shipments of an earlier one."""
        number = len(self.orders)
        order = shop.Order(
            f"o{self._rng.randrange(400)}.{number // 400}",
            f"c{self._rng.randrange(CUSTOMERS)}",
            at,
            number % 97,
            number,
        )
        self.orders.append(order)
        self._send("orders", order.order, {name: getattr(order, name) for name in order.__struct_fields__})
        if self._rng.random() < 0.7:
            other = self.orders[max(0, number - self._rng.randrange(200))]
            shipment = shop.Shipment(other.order, at, len(self.shipments))
            self.shipments.append(shipment)
            self._send(
                "shipments", shipment.order, {name: getattr(shipment, name) for name in shipment.__struct_fields__}
            )

    def tail(self, at: int) -> None:
        """Write events after all others to every bucket, so that all earlier windows complete."""
        for number in range(64):
            for category in ("orders", "shipments"):
                record = {"order": f"tail{number}", "customer": f"tail{number}", "at": at, "amount": 0, "number": -1}
                self._send(category, f"tail{number}", record)
        self._producer.flush(10)


@dataclass
class Place:
    """A worker's disk, and its process while it runs."""

    processor: str
    disk: Path
    command: list[str]
    environment: dict[str, str]
    process: subprocess.Popen[bytes] | None = None
    down_until_s: float = 0.0
    paused_until_s: float | None = None
    ends: list[str] = field(default_factory=list)

    def start(self) -> None:
        with (self.disk.parent / f"{self.disk.name}.log").open("ab") as out:
            self.process = subprocess.Popen(self.command, stdout=out, stderr=out, env=self.environment)

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def tail(self) -> str:
        return (self.disk.parent / f"{self.disk.name}.log").read_text(errors="replace")[-1_500:]


class Killer:
    """Injects faults into workers and broker."""

    def __init__(self, places: list[Place], services: LocalServices, rng: random.Random) -> None:
        self._places = places
        self._services = services
        self._rng = rng
        self._broker_back_s: float | None = None
        self.ended_by_themselves: list[str] = []

    def run_once(self) -> None:
        """End faults that are due, and restart workers that have ended."""
        now_s = time.monotonic()
        if self._broker_back_s is not None and now_s >= self._broker_back_s:
            self._broker_back_s = None
            self._services.up(["kafka"], lambda _: None)
            log("the broker is back")
        for place in self._places:
            if place.paused_until_s is not None and now_s >= place.paused_until_s:
                place.paused_until_s = None
                place.signal(signal.SIGCONT)
            if place.process is not None and (code := place.process.poll()) is not None:
                place.process, place.down_until_s = None, now_s + 1.0
                self.ended_by_themselves.append(f"{place.disk.name} ended with {code}: {place.tail()}")
                log(f"{place.disk.name} ended by itself with {code}")
            if place.process is None and now_s >= place.down_until_s:
                place.start()

    def inject_fault(self) -> None:
        """Inject a random fault, or the one long outage on request."""
        if OUTAGE_S:
            self._kill_broker_for(OUTAGE_S)
            return
        chosen: Callable[[], None] = self._rng.choices(
            [
                self._kill,
                self._lose_disk,
                self._pause,
                self._stop,
                self._pause_all,
                self._stop_processor,
                self._kill_broker,
            ],
            [6, 3, 5, 3, 1, 1, 1.5],
        )[0]
        chosen()

    def _running(self) -> list[Place]:
        return [place for place in self._places if place.process is not None and place.paused_until_s is None]

    def _end(self, place: Place, by: signal.Signals, away_s: float) -> None:
        process, place.process = place.process, None
        assert process is not None
        process.send_signal(by)
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            self.ended_by_themselves.append(f"{place.disk.name} did not end within 120 s of {by.name}: {place.tail()}")
            process.kill()
            process.wait()
        place.down_until_s = time.monotonic() + away_s

    def _kill(self) -> None:
        for place in self._chosen():
            away_s = self._rng.choice([0.0, 1.0, 10.0, 50.0])
            log(f"SIGKILL {place.disk.name}, away {away_s:.0f} s")
            self._end(place, signal.SIGKILL, away_s)

    def _lose_disk(self) -> None:
        for place in self._chosen():
            log(f"SIGKILL {place.disk.name}, and its disk is lost")
            self._end(place, signal.SIGKILL, self._rng.choice([0.0, 5.0]))
            shutil.rmtree(place.disk, ignore_errors=True)

    def _stop(self) -> None:
        for place in self._chosen():
            log(f"SIGTERM {place.disk.name}")
            self._end(place, signal.SIGTERM, self._rng.choice([0.0, 5.0]))

    def _pause(self) -> None:
        for place in self._chosen():
            self._pause_for(place, self._rng.uniform(10.0, 70.0))

    def _pause_for(self, place: Place, seconds: float) -> None:
        log(f"SIGSTOP {place.disk.name} for {seconds:.0f} s")
        place.signal(signal.SIGSTOP)
        place.paused_until_s = time.monotonic() + seconds

    def _pause_all(self) -> None:
        seconds = self._rng.uniform(15.0, 75.0)
        for place in self._running():
            self._pause_for(place, seconds)

    def _stop_processor(self) -> None:
        name, away_s = self._rng.choice(PROCESSORS), self._rng.uniform(30.0, 90.0)
        log(f"all of {name} are stopped for {away_s:.0f} s")
        for place in [place for place in self._running() if place.processor == name]:
            self._end(place, signal.SIGTERM, away_s)

    def _kill_broker(self) -> None:
        if self._broker_back_s is None:
            self._kill_broker_for(self._rng.choice([5.0, 20.0, 65.0, 105.0]))

    def _kill_broker_for(self, away_s: float) -> None:
        log(f"SIGKILL the broker, away {away_s:.0f} s")
        [status] = [one for one in self._services.status() if one.name == "kafka"]
        psutil.Process(status.pid).kill()
        self._broker_back_s = time.monotonic() + away_s

    def _chosen(self) -> list[Place]:
        running = self._running()
        return [self._rng.choice(running)] if running else []

    def heal(self) -> None:
        """End all faults."""
        for place in self._places:
            place.paused_until_s = None if place.paused_until_s is None else 0.0
            place.down_until_s = 0.0
        self._broker_back_s = None if self._broker_back_s is None else 0.0
        self.run_once()

    def end(self) -> None:
        for place in self._places:
            if place.process is not None:
                place.process.kill()
                place.process.wait()


Rows = Counter[tuple[Any, ...]]


def expected(load: Load) -> dict[str, Rows]:
    """Compute the expected records of each category."""
    shipped: dict[str, list[shop.Shipment]] = defaultdict(list)
    for shipment in load.shipments:
        shipped[shipment.order].append(shipment)
    joined: Rows = Counter()
    enriched: Rows = Counter()
    sums: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])
    for order in load.orders:
        met: list[int | None] = [
            one.number for one in shipped[order.order] if order.at <= one.at <= order.at + shop.SHIPPED_WITHIN_MS
        ]
        region = f"r{int(order.customer[1:]) % REGIONS}"
        for number in met or [None]:
            joined[order.number, number] += 1
            enriched[order.number, number, region] += 1
            slot = sums[region, order.at // shop.WINDOW_MS * shop.WINDOW_MS]
            slot[0] += 1
            slot[1] += order.amount
    return {
        "fulfilled": joined,
        "enriched": enriched,
        "sales": Counter((*slot, *amounts) for slot, amounts in sums.items()),
        "reminders": Counter((order.number, order.at + shop.REMIND_AFTER_MS) for order in load.orders),
    }


FIELDS = {
    "fulfilled": ("number", "shipment"),
    "enriched": ("number", "shipment", "region"),
    "sales": ("region", "at", "count", "total"),
    "reminders": ("number", "at"),
}


def found_in(kafka: str, before_ms: int) -> dict[str, Rows]:
    """Return the records of the categories, without those of the tail."""
    return {
        name: Counter(
            tuple(row[column] for column in columns)
            for row in values(kafka, name)
            if row.get("number") != -1 and row["at"] < before_ms and row.get("region") != "nowhere"
        )
        for name, columns in FIELDS.items()
    }


def differences(wanted: dict[str, Rows], found: dict[str, Rows]) -> dict[str, str]:
    """Return what is lost, duplicated or wrong, by category."""
    problems: dict[str, str] = {}
    for name, rows in wanted.items():
        lost, more = rows - found[name], found[name] - rows
        doubled = Counter({row: times for row, times in more.items() if row in rows})
        wrong = more - doubled
        if lost or more:
            problems[name] = (
                f"of {sum(rows.values()):,}: lost {sum(lost.values()):,} {list(lost)[:3]}, doubled {sum(doubled.values()):,} "
                f"{list(doubled)[:3]}, wrong {sum(wrong.values()):,} {list(wrong)[:3]}"
            )
    return problems


@pytest.mark.usefixtures("quick_java")
def test_random_faults_lose_duplicate_corrupt_and_block_nothing(tmp_path: Path, postgres: Postgres) -> None:
    """Every category, and the ledger, match the input after all faults."""
    seed = int(os.environ.get("SEED", random.randrange(2**32)))
    assert SECONDS > OUTAGE_S + 60, "an outage needs time before and after it: raise SECONDS"
    log(f"seed {seed}, {SECONDS:.0f} s, everything is in {tmp_path}")
    rng = random.Random(seed)
    services = LocalServices(tmp_path / "services")
    kafka = services.up(["kafka"], log)["kafka"].endpoints["bootstrap"]
    killer: Killer | None = None
    try:
        subprocess.run([*penstock(), "category", "create", str(HERE / "shop_app.py"), "--kafka", kafka], check=True)
        load = Load(kafka, rng)
        load.flush()
        killer = Killer(places_of(tmp_path, kafka, postgres.url), services, rng)
        deadline = time.monotonic() + SECONDS
        with load.running():
            fault_s = time.monotonic() + 20.0
            while time.monotonic() < deadline:
                time.sleep(0.2)
                killer.run_once()
                if time.monotonic() >= fault_s:
                    killer.inject_fault()
                    fault_s = time.monotonic() + rng.uniform(1.0, 12.0) if not OUTAGE_S else inf
            killer.heal()
        log(f"{len(load.orders):,} orders, {len(load.shipments):,} shipments; everything is healed")
        settle(killer, load, kafka, postgres.url)
        assert not killer.ended_by_themselves, "\n".join(killer.ended_by_themselves)
    finally:
        if killer is not None:
            killer.end()
        services.down(["kafka"], log)


def penstock() -> list[str]:
    return [sys.executable, "-m", "penstock"]


def places_of(folder: Path, kafka: str, store: str) -> list[Place]:
    environment = {**os.environ, "PENSTOCK_STORE": store, "PYTHONPATH": os.pathsep.join(sys.path)}
    places = []
    for processor in PROCESSORS:
        for number in range(WORKERS):
            disk = folder / f"{processor}.{number}"
            command = [*penstock(), "run", f"{HERE / 'shop_app.py'}:{processor}", "--kafka", kafka, "--dir", str(disk)]
            backups = ["--backup", str(folder / "backups"), "--backup-every", "5"]
            places.append(Place(processor, disk, [*command, *backups], environment))
    return places


def settle(killer: Killer, load: Load, kafka: str, store: str) -> None:
    """Wait until all results match; report the differences."""
    wanted, before_ms = expected(load), int(time.time() * 1000) + 60_000
    deadline = time.monotonic() + END_LIMIT_S
    while True:
        load.tail(int(time.time() * 1000) + 200_000)
        until_s = time.monotonic() + 15.0
        while time.monotonic() < until_s:
            time.sleep(0.2)
            killer.run_once()
        problems = differences(wanted, found_in(kafka, before_ms))
        problems |= other_differences(load, kafka, store)
        if not problems:
            return
        log("; ".join(f"{name} {what}" for name, what in problems.items()))
        assert time.monotonic() < deadline, problems


def other_differences(load: Load, kafka: str, store: str) -> dict[str, str]:
    """Return the differences of the ledger, and of the default row, whose outputs may repeat."""
    problems: dict[str, str] = {}
    ledger: Counter[str] = Counter()
    with ps.read_results(store, shop.Ledger) as results:
        for region, _, (count, total) in results.scan(100_000):
            ledger[f"{region} count"] += count
            ledger[f"{region} total"] += total
    wanted: Counter[str] = Counter()
    for (number, _, region), times in expected(load)["enriched"].items():
        wanted[f"{region} count"] += times
        wanted[f"{region} total"] += times * load.orders[number].amount
    if any(ledger[name] != figure for name, figure in wanted.items()):
        problems["ledger"] = str(
            {name: (ledger[name], figure) for name, figure in wanted.items() if ledger[name] != figure}
        )
    rows = [row for row in values(kafka, "balances") if row["number"] != -1]
    missing = {order.number for order in load.orders} - {row["number"] for row in rows}
    counts, totals = Counter(order.order for order in load.orders), Counter[str]()
    for order in load.orders:
        totals[order.order] += order.amount
    last = {
        order: max((row["count"], row["total"]) for row in rows if row["order"] == order)
        for order in {r["order"] for r in rows}
    }
    wrong = {order: found for order, found in last.items() if found != (counts[order], totals[order])}
    if missing or wrong:
        problems["balances"] = (
            f"lost {len(missing)} {sorted(missing)[:3]}, wrong {len(wrong)} {list(wrong.items())[:3]}"
        )
    return problems
