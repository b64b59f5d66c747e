"""Workers on a real Kafka that write to a real PostgreSQL are killed around the write of their rows."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql
from support.by_event import BY_EVENT
from support.databases import Postgres
from support.subjects import EXACT, Subject, events, table_of
from support.trials import create_job
from support.verdicts import state_of
from support.victims import Kill

import penstock as ps
from penstock.processors.declare import plan_of
from penstock.processors.shard import Gap, Step
from penstock.state.sinks.table_columns import create_table
from penstock.transport.kafka import KafkaBus

EVENTS = events(200)


@pytest.mark.parametrize("kind", ["stateless", "stateful"])
def test_rows_equal_the_truth_after_a_kill(
    kind: str, postgres: Postgres, kafka: str, kafka_bus: KafkaBus, tmp_path: Path, prefix: str
) -> None:
    """A worker dies before its rows are written. Its successor dies after they are written, before the group's commit."""
    subject = Subject(kind, EXACT, EXACT, sink=postgres.url)
    job = create_job(subject, EVENTS, prefix, kafka_bus, tmp_path)
    [table] = plan_of(subject.make(prefix)).sinks
    assert isinstance(table, ps.sinks.PostgresSink)
    with postgres.session() as session:
        session.execute(create_table(table.table, table.columns, []).encode())

    assert job.run(Kill(Gap(Step.WRITE_SINKS))) == -signal.SIGKILL
    assert job.run(Kill(Gap(Step.COMMIT_OFFSETS), checkpoint=1)) == -signal.SIGKILL
    assert job.run() == 0
    names = [column.name for column in table.columns]
    with postgres.session() as session:
        rows = session.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table_of(f"{prefix}.out")))).fetchall()
    outputs = [dict(zip(names, _plain(row), strict=True)) for row in rows]
    BY_EVENT[kind](subject, outputs, state_of(job.folder, f"{prefix}.subject"), EVENTS)


def _plain(values: Sequence[Any]) -> list[Any]:
    """Return the values of a row with event times as milliseconds."""
    return [round(value.timestamp() * 1000) if isinstance(value, datetime) else value for value in values]
