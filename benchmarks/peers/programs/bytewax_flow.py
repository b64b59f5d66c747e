"""The work in Bytewax: one process with one worker, snapshots in SQLite each second, counts of closed windows.

    python -m peers.programs.bytewax_flow BOOTSTRAP (W1|W2|W3) SOURCE SINK GROUP FOLDER MESSAGES

Runs in an environment of its own, see installation.py. Prints the time of the first message, and ends after the last.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op  # type: ignore[import-not-found]
import bytewax.operators.windowing as win  # type: ignore[import-not-found]
import orjson  # type: ignore[import-not-found]
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource  # type: ignore[import-not-found]
from bytewax.dataflow import Dataflow  # type: ignore[import-not-found]
from bytewax.recovery import RecoveryConfig, init_db_dir  # type: ignore[import-not-found]
from bytewax.run import cli_main  # type: ignore[import-not-found]
from peers.programs.task import FirstMessage, Task

ALIGNED_TO = datetime(2023, 1, 1, tzinfo=UTC)
LENGTH = timedelta(minutes=5)


def main(task: Task) -> None:
    """Run the dataflow to the end of its input."""
    first = FirstMessage()

    def decoded(message: Any) -> Any:
        first.note()
        return orjson.loads(message.value)

    flow = Dataflow(task.group)
    reading = {"fetch.queue.backoff.ms": "1", "queued.min.messages": "500000"}
    read = op.input("read", flow, KafkaSource([task.bootstrap], [task.source], tail=False, add_config=reading))
    events = op.map("decode", read, decoded)
    if task.work == "W1":
        results = op.map("project", op.filter("clicks", events, _is_click), _click)
    else:
        field = "topic" if task.work == "W2" else "dim_id"
        clock = win.EventClock(_event_time, timedelta(hours=1), to_system_utc=_never)
        windower = win.TumblingWindower(length=LENGTH, align_to=ALIGNED_TO)
        counted = win.count_window("count", events, clock, windower, key=lambda event: event[field])
        results = op.map("counts", counted.down, _count)
    # With the default of 100,000 task.messages, a large batch overflows the queue and ends the dataflow.
    op.output("write", results, KafkaSink([task.bootstrap], task.sink, {"queue.buffering.max.messages": "2000000"}))
    Path(task.folder).mkdir(parents=True, exist_ok=True)
    init_db_dir(Path(task.folder), 1)
    cli_main(flow, epoch_interval=timedelta(seconds=1), recovery_config=RecoveryConfig(task.folder))


def _is_click(event: Any) -> bool:
    return bool(event["event"] == "click")


def _click(event: Any) -> Any:
    kept = {name: event[name] for name in ("event_time", "dim_id", "topic")}
    return KafkaSinkMessage(event["dim_id"].encode(), orjson.dumps(kept))


def _count(result: Any) -> Any:
    key, (window, n) = result
    start_ms = int((ALIGNED_TO + window * LENGTH).timestamp()) * 1000
    return KafkaSinkMessage(key.encode(), orjson.dumps({"key": key, "window": start_ms, "n": n}))


def _event_time(event: Any) -> datetime:
    return datetime.fromtimestamp(event["event_time"] / 1000, UTC)


def _never(event_time: datetime) -> None:
    """Wake no key up by the clock: with 100,000 keys, Bytewax would spend its time on that."""


if __name__ == "__main__":
    main(Task(*sys.argv[1:]))
