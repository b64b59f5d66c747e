"""Outputs exactly once that need longer than the time limit of their transaction, over a slow link."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from support import plain
from support.cli import Cli
from support.kafka_proxy import KafkaProxy

from penstock.transport import CategorySpec, Outgoing, OutputsTimedOut
from penstock.transport.kafka import KafkaBus, KafkaSettings

LIMIT_S = 5.0
MESSAGES, MESSAGE_BYTES, BYTES_PER_S = 3_000, 1_000, 200_000
APP = """
from datetime import timedelta
from hashlib import sha256

import penstock as ps


class Visit(ps.Record, frozen=True):
    page: str
    at: ps.EventTime
    note: str


visits = ps.Category("{prefix}.visits", Visit, key="page", event_time="at", buckets=1)
counts = ps.Category("{prefix}.counts", Visit, key="page", event_time="at", buckets=1)


class Counts(ps.Aggregator):
    name, reads, writes = "{prefix}.counted", visits, counts
    monoid, window, emit = ps.monoids.Count(), ps.windows.Tumbling(timedelta(minutes=1)), ps.AtWatermark()
    output_semantics = ps.Semantics.EXACTLY_ONCE

    def observe(self, event):
        return 1

    def result(self, key, window, count):
        note = "".join(sha256(f"{key} {part}".encode()).hexdigest() for part in range(16))  # few bytes fewer when compressed
        return Visit(key, window.end - 1, f"{count} {note}")
"""
PAGES, PAGES_BYTES_PER_S = 3_000, 80_000
"""The results of one window need about 30 s, and their first transaction has 11 s."""


@pytest.mark.parametrize("most_queued", [10 * MESSAGES, MESSAGES // 6])
def test_what_was_accepted_in_time_says_how_long_all_outputs_need(
    through_proxy: tuple[str, KafkaProxy], prefix: str, most_queued: int
) -> None:
    """The bus accepts a part of the results of a window; with the time that follows from it, it accepts all, also if they exceed the client's queue."""
    address, proxy = through_proxy
    queue = {"queue.buffering.max.messages": str(most_queued), "compression.type": "none"}
    bus = KafkaBus(KafkaSettings(address, queue))
    bus.catalog.create(CategorySpec(prefix, 1))
    outputs = [Outgoing(b"k", bytes(MESSAGE_BYTES), 0)] * MESSAGES

    def write(limit_s: float) -> None:
        with closing(bus.transactional_writer(f"{prefix}.writer", None, limit_s, [prefix])) as writer:
            proxy.slow_down(BYTES_PER_S)
            try:
                writer.send(prefix, outputs)
                writer.flush()
                writer.commit([])
            finally:
                proxy.let_through()

    with pytest.raises(OutputsTimedOut) as found:
        write(LIMIT_S)
    accepted = found.value.accepted
    assert 0.0 < accepted < 1.0
    write(3 * LIMIT_S / accepted)  # a busy machine may need longer than in the first trial

    assert len(plain.messages(address, prefix)) == MESSAGES


def test_a_window_whose_results_exceed_a_transaction_is_written_once(
    through_proxy: tuple[str, KafkaProxy], prefix: str, tmp_path: Path
) -> None:
    """Its worker ends, and each page has one result."""
    address, proxy = through_proxy
    app, cli = tmp_path / "app.py", Cli(address, tmp_path)
    app.write_text(APP.replace("{prefix}", prefix))
    pages = [{"page": f"/{number}", "at": 1_700_000_000_000, "note": ""} for number in range(PAGES)]
    later = {"page": "/later", "at": 1_700_000_600_000, "note": ""}
    cli.ok("category", "create", str(app))
    cli.ok("category", "send", f"{prefix}.visits", "--app", str(app), stdin="\n".join(map(json.dumps, [*pages, later])))
    proxy.slow_down(PAGES_BYTES_PER_S)
    try:
        done = cli("run", str(app), "--until-end")
    finally:
        proxy.let_through()

    assert done.returncode == 0, done.stderr
    assert "The next checkpoint contains at most" in done.stderr
    written = [record["page"] for record in plain.values(address, f"{prefix}.counts")]
    assert sorted(page for page in written if page != "/later") == sorted(f"/{number}" for number in range(PAGES))
