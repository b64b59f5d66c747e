"""A topic with several record types on a real broker."""

from __future__ import annotations

import json
import random
from collections import defaultdict

from confluent_kafka import Producer
from support import plain
from support.cli import Cli

APP = """
import penstock as ps

class Placed(ps.Record, frozen=True, tag="placed"):
    order: str
    at: ps.EventTime
    cents: int

class Paid(ps.Record, frozen=True, tag="paid"):
    order: str
    at: ps.EventTime
    cents: int

class Open(ps.Record, frozen=True):
    order: str
    at: ps.EventTime
    cents: int

events = ps.Category("{prefix}.events", Placed | Paid, key="order", event_time="at", buckets=2, codec=ps.codecs.Json(other_types="skip"))
opens = ps.Category("{prefix}.open", Open, key="order", event_time="at", buckets=2)

class Balances(ps.Stateful[Placed | Paid, int, Open]):
    name = "{prefix}.balances"
    reads, writes, state = events, opens, int
    state_semantics = output_semantics = ps.Semantics.EXACTLY_ONCE

    def process(self, event: Placed | Paid, state: int | None, context: ps.Context) -> tuple[int, list[Open]]:
        cents = (state or 0) + (event.cents if isinstance(event, Placed) else -event.cents)
        return cents, [Open(event.order, event.at, cents)]
"""


def given_messages(count: int) -> list[dict[str, object]]:
    """Return messages of two types of the app, and of a third one."""
    dice = random.Random(3)
    kinds = ("placed", "paid", "shipped")
    return [
        {"type": dice.choice(kinds), "order": f"o{dice.randrange(9)}", "at": 1_700_000_000_000 + n, "cents": n}
        for n in range(count)
    ]


def test_a_worker_folds_all_types_of_a_topic(cli: Cli, kafka: str, prefix: str) -> None:
    """The balance of each order is computed from its events in order, across a restart. Messages of other types are skipped."""
    (cli.folder / "app.py").write_text(APP.replace("{prefix}", prefix))
    messages = given_messages(300)
    cli.ok("category", "create", "app.py")
    producer = Producer({"bootstrap.servers": kafka, "partitioner": "murmur2_random"})
    for half in (messages[:150], messages[150:]):
        for message in half:
            producer.produce(f"{prefix}.events", json.dumps(message).encode(), str(message["order"]).encode())
        assert producer.flush(30) == 0
        cli.ok("run", "app.py", "--until-end")
    cli.ok(
        "category",
        "send",
        f"{prefix}.events",
        "--app",
        "app.py",
        stdin='{"type":"paid","order":"o0","at":9,"cents":1}\n',
    )
    refused = cli("category", "send", f"{prefix}.events", "--app", "app.py", stdin='{"order":"o0","at":9}\n').stderr
    cli.ok("run", "app.py", "--until-end")
    plain.read(kafka, f"{prefix}.open")  # waits for the markers of the last transaction
    shown = cli.ok("category", "tail", f"{prefix}.open", "--from", "0", "--no-follow", "--json")
    *replayed, summary = cli.ok("replay", "app.py", "--from", "1h ago", "--json").splitlines()

    expected: defaultdict[str, list[int]] = defaultdict(list)
    for message in [*messages, {"type": "paid", "order": "o0", "cents": 1}]:
        if message["type"] != "shipped":
            balances = expected[str(message["order"])]
            sign = 1 if message["type"] == "placed" else -1
            balances.append((balances[-1] if balances else 0) + sign * int(str(message["cents"])))
    found: defaultdict[str, list[int]] = defaultdict(list)
    for line in shown.splitlines():
        record = json.loads(line)["value"]
        found[record["order"]].append(record["cents"])
    assert found == expected
    assert json.loads(summary)["summary"]["outputs"] == len(replayed) == sum(map(len, expected.values()))
    assert "is not a Placed | Paid" in refused
