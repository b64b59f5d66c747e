"""`penstock run` of a whole app is killed; the workers of its processors save and end, although nothing tells them to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil
from support.cli import Cli
from support.exactness import large_readings
from support.meters import readings

from penstock.transport.kafka import KafkaBus

END_LIMIT_S = 240.0


def test_workers_end_after_their_parent_is_killed(
    cli: Cli, app: Path, prefix: str, kafka_bus: KafkaBus, wait_until: Callable[..., None]
) -> None:
    """Each saves a last checkpoint, and another run continues from there."""
    cli.ok("category", "create", str(app))
    cli.ok("category", "send", f"{prefix}.readings", "--app", str(app), stdin=readings(300))
    parent = cli.start("run", str(app))
    wait_until(lambda: kafka_bus.catalog.describe(f"{prefix}.totals").events > 0)
    workers = psutil.Process(parent.pid).children()
    parent.kill()
    parent.communicate(timeout=END_LIMIT_S)
    _, alive = psutil.wait_procs(workers, timeout=END_LIMIT_S)

    assert len(workers) == 3
    assert not alive
    cli.ok("run", str(app), "--until-end")
    written = [kafka_bus.catalog.describe(f"{prefix}.{name}").events for name in ("large", "totals")]
    assert written == [len(large_readings(300))] * 2
