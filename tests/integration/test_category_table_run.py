"""`penstock run` with a category as its lookup table, which changes while two workers run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.cli import Cli
from support.meters import readings

from penstock.transport.kafka import KafkaBus

APP = '''
from datetime import timedelta

import penstock as ps
from app import Reading, readings

class Tariff(ps.Record, frozen=True):
    meter: str
    at: int
    euros: float

class Billed(Reading, frozen=True):
    euros: float

tariffs = ps.Category("{prefix}.tariffs", Tariff, key="meter", event_time="at", buckets=3, compacted=True)

class Billing(ps.LookupJoin):
    """Bills a meter by its tariff."""
    name = "{prefix}.billing"
    reads = readings
    writes = ps.Category("{prefix}.billed", Billed, key="meter", event_time="at", buckets=4)
    source = ps.lookups.CategoryTable(tariffs)
    on_miss = ps.lookups.OnMiss.DROP
    output_semantics = ps.Semantics.EXACTLY_ONCE
    checkpoint = ps.CheckpointInterval(time=timedelta(seconds=0.5))
    def key_of(self, event):
        return event.meter
    def join(self, event, row):
        yield Billed(event.meter, event.at, event.litres, row.euros)
'''


def tariffs_of(euros: float) -> str:
    return "".join(
        json.dumps({"meter": f"m{number}", "at": 1, "euros": euros + number}) + "\n" for number in range(1, 7)
    )


def test_each_worker_joins_with_all_rows_and_sees_later_ones(
    cli: Cli, app: Path, prefix: str, kafka_bus: KafkaBus, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    """Rows come from all buckets; a row that is written while the workers run applies to later events."""
    billing = app.with_name("billing.py")
    billing.write_text(APP.replace("{prefix}", prefix))
    cli.ok("category", "create", str(billing))

    def billed() -> list[Any]:
        tail = cli.ok("category", "tail", f"{prefix}.billed", "--from", "0", "--no-follow", "--json")
        return [json.loads(line)["value"] for line in tail.splitlines()]

    cli.ok("category", "send", f"{prefix}.tariffs", "--app", str(billing), stdin=tariffs_of(1.0))
    cli.ok("category", "send", f"{prefix}.readings", "--app", str(billing), stdin=readings(700))
    workers = [cli.start("run", f"{billing}:Billing", "--json") for _ in range(2)]
    try:
        wait_until(lambda: len(billed()) == 600 or any(worker.poll() is not None for worker in workers))
        assert all(one["euros"] == 1.0 + int(one["meter"][1:]) for one in billed())
        cli.ok("category", "send", f"{prefix}.tariffs", "--app", str(billing), stdin=tariffs_of(100.0))
        sent = 0

        def uses_new_rows() -> bool:
            nonlocal sent
            sent += 1
            cli.ok("category", "send", f"{prefix}.readings", "--app", str(billing), stdin=readings(70))
            return {one["meter"] for one in billed() if one["euros"] >= 100.0} == {
                f"m{number}" for number in range(1, 7)
            }

        wait_until(uses_new_rows)
        # The rows that the last readings find may be new already for those before.
        positions = (f"{prefix}.billing", f"{prefix}.readings")
        wait_until(lambda: sum(kafka_bus.catalog.committed(*positions).values()) == 700 + 70 * sent)
    finally:
        for worker in workers:
            worker.terminate()
        ends = [worker.communicate(timeout=60) for worker in workers]

    assert [worker.returncode for worker in workers] == [0, 0], ends
    counts = [json.loads(out) for out, _ in ends]
    assert sum(count["events_in"] for count in counts) == 700 + 70 * sent
    assert all(one["euros"] in {base + int(one["meter"][1:]) for base in (1.0, 100.0)} for one in billed())
