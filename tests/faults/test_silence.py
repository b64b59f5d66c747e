"""Workers that are paused for longer than the idle timeout are not idle, and no event is late."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable

from confluent_kafka import Producer
from support.cli import LIMIT_S, Cli
from support.plain import values

from penstock.transport.kafka import KafkaBus
from penstock.transport.tables import WatermarkStatement, watermarks_on

MINUTE = 60_000
KEYS = "abcdef"
STILL_S = 6.0
NOT_HEARD = "has not been heard from since it stopped"

APP = """
from datetime import timedelta
import penstock as ps

class Order(ps.Record, frozen=True):
    key: str
    at: ps.EventTime
    euros: int

class Payment(Order, frozen=True):
    pass

class BigOrder(Order, frozen=True):
    pass

class BigPayment(Order, frozen=True):
    pass

class Paid(Order, frozen=True):
    pass

def category(record, name):
    return ps.Category("{prefix}." + name, record, key="key", event_time="at", buckets=2)

orders, payments = category(Order, "orders"), category(Payment, "payments")
big_orders, big_payments = category(BigOrder, "big_orders"), category(BigPayment, "big_payments")
paid = category(Paid, "paid")

class Common:
    watermark = ps.watermarks.BoundedOutOfOrderness()
    idle_after = timedelta(seconds=3)
    checkpoint = ps.CheckpointInterval(time=timedelta(milliseconds=200))

class BigOrders(Common, ps.Stateless):
    name = "{prefix}.orders"
    reads, writes = orders, big_orders
    def process(self, event):
        yield BigOrder(event.key, event.at, event.euros)

class BigPayments(Common, ps.Stateless):
    name = "{prefix}.payments"
    reads, writes = payments, big_payments
    def process(self, event):
        yield BigPayment(event.key, event.at, event.euros)

class Join(Common, ps.Join):
    name = "{prefix}.join"
    left, right, writes = big_orders, big_payments, paid
    how = ps.JoinType.LEFT
    output_semantics = ps.Semantics.EXACTLY_ONCE
    def join(self, left, right, context):
        yield Paid(left.key, left.at, right.euros if right else -1)
"""


def send(kafka: str, prefix: str, minutes: range) -> None:
    """Send an order and its payment for each key and minute."""
    producer = Producer({"bootstrap.servers": kafka, "partitioner": "murmur2_random"})
    for at in minutes:
        for key in KEYS:
            for name in ("orders", "payments"):
                value = json.dumps({"key": key, "at": at * MINUTE, "euros": 1})
                producer.produce(f"{prefix}.{name}", value, key)
    producer.flush()


def test_nothing_is_late_after_all_workers_were_paused(
    cli: Cli, prefix: str, kafka: str, kafka_bus: KafkaBus, wait_until: Callable[..., None]
) -> None:
    """One worker is paused for longer: its consumer waits, then continues, and is idle in the end."""
    (cli.folder / "app.py").write_text(APP.replace("{prefix}", prefix))
    cli.ok("category", "create", "app.py")
    catalog = kafka_bus.catalog

    def published() -> dict[tuple[str, int], WatermarkStatement]:
        return {place: one for place, one in watermarks_on(kafka_bus).items() if place[0].startswith(prefix)}

    def is_idle() -> bool:
        return all(one.idle for one in published().values())

    def held() -> list[str]:
        """Return what holds back the watermark of each shard of the join."""
        return [one.held_by for (name, _), one in published().items() if name == f"{prefix}.join"]

    send(kafka, prefix, range(10))
    workers = {name: cli.start("run", f"app.py:{name}", "--json") for name in ("BigOrders", "BigPayments", "Join")}
    wait_until(lambda: sum(catalog.ends(f"{prefix}.paid").values()) >= 10 * len(KEYS))
    wait_until(is_idle)
    _signal(workers, signal.SIGSTOP)
    send(kafka, prefix, range(10, 20))
    time.sleep(STILL_S)  # the length of the pause is under test
    _signal({name: workers[name] for name in ("BigOrders", "Join")}, signal.SIGCONT)
    wait_until(lambda: sum(catalog.committed(f"{prefix}.join", f"{prefix}.big_orders").values()) >= 20 * len(KEYS))
    time.sleep(STILL_S)
    wait_until(lambda: all(f"{prefix}.payments/" in by and NOT_HEARD in by for by in held()))
    _signal({"BigPayments": workers["BigPayments"]}, signal.SIGCONT)
    wait_until(lambda: len(values(kafka, f"{prefix}.paid")) >= 20 * len(KEYS))
    wait_until(is_idle)
    late = [_stopped(worker)["late"] for worker in workers.values()]

    assert late == [0, 0, 0]
    assert [one["euros"] for one in values(kafka, f"{prefix}.paid")] == [1] * 20 * len(KEYS)


def _signal(workers: dict[str, subprocess.Popen[str]], join_type: signal.Signals) -> None:
    for worker in workers.values():
        worker.send_signal(join_type)


def _stopped(worker: subprocess.Popen[str]) -> dict[str, int]:
    worker.send_signal(signal.SIGTERM)
    out, err = worker.communicate(timeout=LIMIT_S)
    assert worker.returncode == 0, err
    summary: dict[str, int] = json.loads(out.splitlines()[-1])
    return summary
