"""The trace context of messages that a real worker reads from Kafka and writes to it."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Producer
from support.cli import Cli
from support.plain import read

APP = """
import penstock as ps

class Click(ps.Record, frozen=True):
    user: str
    at: ps.EventTime

clicks, copies, counts = (ps.Category("{prefix}." + name, Click, key="user", event_time="at", buckets=1) for name in ("clicks", "copies", "counts"))

class Copies(ps.Stateless):
    name, reads, writes, trace_context = "{prefix}.copies", clicks, copies, True

    def process(self, event):
        return [event] * (event.at % 3)

class Counts(ps.Stateful):
    name, reads, writes, state, trace_context = "{prefix}.counts", copies, counts, int, True
    output_semantics = ps.Semantics.EXACTLY_ONCE

    def process(self, event, state, context):
        return (state or 0) + 1, [event]
"""

EVENTS, BEGIN_MS = 60, 1_700_000_000_000


def test_a_trace_goes_through_two_workers(cli: Cli, kafka: str, prefix: str) -> None:
    """It begins at a plain producer and ends at a plain consumer. Messages without a trace context stay without one."""
    (cli.folder / "app.py").write_text(APP.replace("{prefix}", prefix))
    cli.ok("category", "create", "app.py")
    producer = Producer({"bootstrap.servers": kafka})
    for at in range(EVENTS):
        value = f'{{"user": "u{at % 4}", "at": {BEGIN_MS + at}}}'
        headers: list[tuple[str, str | bytes | None]] = (
            [("traceparent", b"00-%d" % at), ("other", b"x")] if at % 5 else []
        )
        producer.produce(f"{prefix}.clicks", value, f"u{at % 4}", headers=headers)
    assert producer.flush(30) == 0

    for processor in ("Copies", "Counts"):
        cli.ok("run", f"app.py:{processor}", "--until-end")

    expected = [
        [("traceparent", b"00-%d" % at)] if at % 5 else [] for at in range(EVENTS) for _ in range((BEGIN_MS + at) % 3)
    ]
    assert headers_in(kafka, f"{prefix}.counts") == expected


def headers_in(kafka: str, category: str) -> list[list[tuple[Any, ...]]]:
    """Return the headers of all committed messages of a category with one bucket, in order."""
    return [[tuple(header) for header in message.headers() or []] for message in read(kafka, category)]
