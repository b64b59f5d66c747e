"""Workers are killed while events wait for a retry: each event is processed, or becomes a dead letter, exactly once."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable

from support.cli import Cli
from support.plain import messages

from penstock.processors.declare import DeadLetter
from penstock.transport import Outgoing
from penstock.transport.codecs import decode_dead_letter
from penstock.transport.kafka import KafkaBus

EVENTS = 600
KILLS = 3
WAIT_S, SHOWN_S = 2, 20
"""The first wait for a retry; and the one of the first worker, during which the status shows what waits: on a busy machine, it needs several seconds."""
APP = """
import random
from datetime import timedelta

import penstock as ps


class Call(ps.Record, frozen=True):
    key: str
    at: int
    number: int


calls = ps.Category("PREFIX.calls", Call, key="key", event_time="at", buckets=2)


class Fetch(ps.Stateless):
    name = "PREFIX.fetch"
    reads, writes = calls, ps.Category("PREFIX.done", Call, key="key", event_time="at", buckets=2)
    output_semantics = ps.Semantics.EXACTLY_ONCE
    checkpoint = ps.CheckpointInterval(events=40)
    on_error = ps.Retry(after=timedelta(seconds=WAIT_S), factor=1.5, attempts=4)

    def process(self, event):
        if event.number % 10 == 3 or random.random() < 0.3:
            raise TimeoutError("no answer")
        return [event]
"""


def letters(kafka: str, category: str) -> list[DeadLetter]:
    """Return the committed dead letters of a category."""
    return [decode_dead_letter(value or b"") for _, _, value in messages(kafka, category)]


def test_waiting_events_survive_kills_exactly_once(
    cli: Cli, kafka: str, kafka_bus: KafkaBus, prefix: str, wait_until: Callable[..., None]
) -> None:
    """Status shows the waiting events, and `--until-end` ends when no event waits."""
    app = cli.folder / "app.py"
    app.write_text(APP.replace("PREFIX", prefix).replace("WAIT_S", str(SHOWN_S)))
    (cli.folder / "impatient.toml").write_text(
        "[kafka-settings]\nsession.timeout.ms = 2000\nheartbeat.interval.ms = 500\ntransaction.timeout.ms = 2000\n"
    )
    cli.ok("category", "create", "app.py")
    done, first_wait = f"{prefix}.done", f"{prefix}.fetch.retry_1"

    def waiting() -> int:
        [status] = json.loads(cli.ok("status", "app.py", "--json"))["processors"]
        return int(status["retries"])

    for kill in range(KILLS):
        before = kafka_bus.catalog.stable_ends(first_wait)
        numbers = range(kill * EVENTS // KILLS, (kill + 1) * EVENTS // KILLS)
        writer = kafka_bus.writer()
        writer.send(
            f"{prefix}.calls",
            [
                Outgoing(
                    b"k%d" % (number % 9),
                    json.dumps({"key": f"k{number % 9}", "at": number, "number": number}).encode(),
                )
                for number in numbers
            ],
        )
        writer.flush()
        writer.close()
        worker = cli.start("run", "app.py:Fetch", "--config", "impatient.toml")
        wait_until(lambda before=before: kafka_bus.catalog.stable_ends(first_wait) != before)
        if kill == 0:
            wait_until(lambda: waiting() > 0)
            app.write_text(APP.replace("PREFIX", prefix).replace("WAIT_S", str(WAIT_S)))
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    last = json.loads(cli.ok("run", "app.py:Fetch", "--config", "impatient.toml", "--until-end", "--json"))
    processed = Counter(json.loads(value or b"")["number"] for _, _, value in messages(kafka, done))
    rejected = letters(kafka, f"{prefix}.fetch.dead_letters")

    assert last["retries"] > 0
    assert processed + Counter(json.loads(letter.value or b"")["number"] for letter in rejected) == Counter(
        range(EVENTS)
    )
    assert {letter.category for letter in rejected} == {f"{prefix}.calls"}
    assert all(letter.reason.startswith("after 4 attempts: ") for letter in rejected)
