"""The work in Quix Streams: one process, state in RocksDB with changelog topics.

    python -m peers.programs.quix_app BOOTSTRAP (W1|W2|W3|W4) SOURCE SINK GROUP FOLDER MESSAGES

Runs in an environment of its own, see installation.py. Prints the time of the first message, and ends after the last.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from itertools import count
from typing import Any

from peers.programs.task import FirstMessage, Task
from quixstreams import Application  # type: ignore[import-not-found]


def main(task: Task) -> None:
    """Run the application to the end of its input."""
    first, handled = FirstMessage(), count(1)

    def event_time(value: dict[str, Any], *_: object) -> int:
        first.note()
        time_ms: int = value["event_time"]
        return time_ms

    def processed(*_: object) -> None:
        if next(handled) == int(task.messages):
            app.stop()

    def counted(result: dict[str, int], key: str, *_: object) -> dict[str, object]:
        return {"key": key, "window": result["start"], "n": result["value"]}

    app = Application(
        broker_address=task.bootstrap,
        consumer_group=task.group,
        auto_offset_reset="earliest",
        state_dir=task.folder,
        commit_interval=1.0,
        processing_guarantee="exactly-once" if task.work == "W4" else "at-least-once",
        on_message_processed=processed,
        consumer_extra_config={"fetch.queue.backoff.ms": 1, "queued.min.messages": 500_000},
    )
    events = app.topic(
        task.source, key_deserializer="string", value_deserializer="json", timestamp_extractor=event_time
    )
    output = app.topic(task.sink, key_serializer="string", value_serializer="json")
    frame = app.dataframe(events)
    if task.work in {"W1", "W4"}:
        frame = frame[frame["event"] == "click"][["event_time", "dim_id", "topic"]]
    else:
        windows = frame.tumbling_window(timedelta(minutes=5), grace_ms=timedelta(hours=1))
        frame = windows.count().current().apply(counted, metadata=True)
    frame.to_topic(output)
    app.run()


if __name__ == "__main__":
    main(Task(*sys.argv[1:]))
