"""Archivers that are paused until they lose their membership, and then continue: their successor's archive stays as it is."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from io import BytesIO
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import msgspec
import psutil
import pyarrow.parquet as pq
import pytest
from support.archivers import Reading, readings_of, start
from support.victims import LIMIT_S

from penstock.backfill.archive import archived_ends, group_of
from penstock.backfill.warehouse import DAY_MS, ArchivedFile, Listing, Note, open_warehouse
from penstock.backfill.warehouse.layout import Stored
from penstock.transport import CategorySpec, Outgoing
from penstock.transport.kafka import KafkaBus


@pytest.fixture
def processes() -> Iterator[list[ForkServerProcess]]:
    """Processes that end with the test."""
    started: list[ForkServerProcess] = []
    yield started
    for process in started:
        if process.is_alive():
            process.kill()
            process.join(30)


@pytest.mark.parametrize("before", [ArchivedFile, Note])
def test_a_paused_archiver_changes_nothing_of_its_successors(
    before: type[Stored],
    kafka: str,
    kafka_bus: KafkaBus,
    prefix: str,
    tmp_path: Path,
    wait_until: Callable[..., None],
    processes: list[ForkServerProcess],
) -> None:
    """The archiver pauses right before it writes events or metadata; its successor archives more, and both continue."""
    category, warehouse = readings_of(f"{prefix}.readings"), open_warehouse(tmp_path)
    name = category.name
    kafka_bus.catalog.create(CategorySpec.of(category))
    writer = kafka_bus.writer()

    def send(first: int, end: int) -> None:
        events = [Reading("s", n % 3 * DAY_MS, n) for n in range(first, end)]
        writer.send(name, [Outgoing(b"s", msgspec.json.encode(event)) for event in events])
        writer.flush()

    def committed() -> int:
        return kafka_bus.catalog.committed(group_of(name), name).get(0, 0)

    def values() -> list[int]:
        files = [BytesIO(warehouse.read(file)) for file in Listing.of(warehouse, name).files]
        return sorted(row["value"] for file in files for row in pq.read_table(file, partitioning=None).to_pylist())

    send(0, 30)
    zombie = start(kafka, name, tmp_path, before)
    processes.append(zombie)
    wait_until(lambda: psutil.Process(zombie.pid).status() == psutil.STATUS_STOPPED)
    successor = start(kafka, name, tmp_path)
    processes.append(successor)
    send(30, 100)
    wait_until(lambda: committed() == 100)
    before_return = values()

    os.kill(zombie.pid or 0, signal.SIGCONT)
    send(100, 160)
    wait_until(lambda: committed() == 160)
    for process in (zombie, successor):
        process.terminate()
        process.join(LIMIT_S)

    assert before_return == list(range(100))
    assert [process.exitcode for process in (zombie, successor)] == [0, 0]
    assert values() == list(range(160))
    assert archived_ends(kafka_bus, warehouse, name) == {0: 160}
