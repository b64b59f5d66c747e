"""Workers on a real broker are killed at random times, and at-least-once semantics hold."""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from support.cli import Cli
from support.plain import values

from penstock.transport.kafka import KafkaBus

READINGS = 20_000
KILLS = 4


@pytest.mark.parametrize("seed", [1])
def test_killed_workers_lose_nothing(
    cli: Cli,
    app: Path,
    prefix: str,
    kafka: str,
    kafka_bus: KafkaBus,
    wait_until: Callable[..., None],
    tmp_path: Path,
    seed: int,
) -> None:
    """Every event counts at least once in the state, and every output exists."""
    rng = random.Random(seed)
    lines = (json.dumps({"meter": f"m{n % 50}", "at": n, "litres": 10}) + "\n" for n in range(READINGS))
    cli.ok("category", "create", str(app))
    cli.ok("category", "send", f"{prefix}.readings", "--app", str(app), stdin="".join(lines))
    cli.ok("run", f"{app}:Large", "--until-end")
    impatient = tmp_path / "impatient.toml"
    impatient.write_text("[kafka-settings]\nsession.timeout.ms = 2000\nheartbeat.interval.ms = 500\n")
    slow = app.read_text().replace("total = (state", "time.sleep(0.0002); total = (state")
    app.write_text(slow)
    for _ in range(KILLS):
        before = kafka_bus.catalog.describe(f"{prefix}.totals").events
        worker = cli.start("run", f"{app}:Totals", "--config", str(impatient))
        wait_until(lambda before=before: kafka_bus.catalog.describe(f"{prefix}.totals").events > before)
        time.sleep(rng.uniform(0, 1.5))
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    cli.ok("run", f"{app}:Totals", "--until-end", "--config", str(impatient))

    totals = values(kafka, f"{prefix}.totals")
    truth = Counter(f"m{n % 50}" for n in range(READINGS))
    assert {total["at"] for total in totals} == set(range(READINGS))
    for meter, count in truth.items():
        assert max(total["litres"] for total in totals if total["meter"] == meter) >= 10 * count
