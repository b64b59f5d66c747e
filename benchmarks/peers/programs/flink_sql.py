"""The work in Flink SQL, which runs in a JVM: one slot, state in RocksDB, checkpoints each second, counts of closed windows.

    python -m peers.programs.flink_sql BOOTSTRAP (W1|W2|W3|W4) SOURCE SINK GROUP FOLDER MESSAGES JAR

Runs in an environment of its own, see installation.py. No code of ours sees the messages, so it prints the time at which the job
runs instead of the time of the first message.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from peers.programs.task import FirstMessage, Task
from pyflink.common import Configuration  # type: ignore[import-not-found]
from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]

EVENTS = """CREATE TABLE events (
  event_time BIGINT, event STRING, dim_id STRING, topic STRING, `text` STRING,
  happened AS TO_TIMESTAMP_LTZ(event_time, 3), WATERMARK FOR happened AS happened - INTERVAL '1' HOUR
) WITH (
  'connector' = 'kafka', 'topic' = '{source}', 'properties.bootstrap.servers' = '{bootstrap}',
  'properties.group.id' = '{group}', 'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset',
  'format' = 'json'
)"""
RESULTS = """CREATE TABLE results ({columns}) WITH (
  'connector' = 'kafka', 'topic' = '{sink}', 'properties.bootstrap.servers' = '{bootstrap}', 'format' = 'json',
  'sink.delivery-guarantee' = '{guarantee}', 'sink.transactional-id-prefix' = '{group}',
  'properties.transaction.timeout.ms' = '600000'
)"""
CLICKS = "INSERT INTO results SELECT event_time, dim_id, topic FROM events WHERE event = 'click'"
COUNTS = """INSERT INTO results SELECT {field}, UNIX_TIMESTAMP(CAST(window_start AS STRING)) * 1000, COUNT(*)
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(happened), INTERVAL '5' MINUTES)) GROUP BY {field}, window_start, window_end"""


def main(task: Task, jar: str) -> None:
    """Run the statement to the end of its input."""
    tables = _environment(Path(task.folder), jar)
    tables.execute_sql(EVENTS.format(source=task.source, bootstrap=task.bootstrap, group=task.group))
    filters = task.work in {"W1", "W4"}
    tables.execute_sql(
        RESULTS.format(
            columns="event_time BIGINT, dim_id STRING, topic STRING"
            if filters
            else "`key` STRING, `window` BIGINT, n BIGINT",
            sink=task.sink,
            bootstrap=task.bootstrap,
            guarantee="exactly-once" if task.work == "W4" else "at-least-once",
            group=task.group,
        )
    )
    field = "topic" if task.work == "W2" else "dim_id"
    running = tables.execute_sql(CLICKS if filters else COUNTS.format(field=field))
    while "RUNNING" not in str(running.get_job_client().get_job_status().result()):
        time.sleep(0.02)
    FirstMessage().note()
    running.wait()


def _environment(folder: Path, jar: str) -> TableEnvironment:
    settings = Configuration()
    for name, value in {
        "pipeline.jars": Path(jar).as_uri(),
        "parallelism.default": "1",
        "state.backend.type": "rocksdb",
        "execution.checkpointing.dir": folder.absolute().as_uri(),
        "execution.checkpointing.interval": "1 s",
        "table.local-time-zone": "UTC",
    }.items():
        settings.set_string(name, value)
    return TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(settings).build()
    )


if __name__ == "__main__":
    main(Task(*sys.argv[1:8]), sys.argv[8])
