"""An app whose records are standard dataclasses, and one with pydantic models, on a real broker, with the commands of any app."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer
from support import plain
from support.cli import Cli

DATACLASSES = """
from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
import penstock as ps

@dataclass
class Line:
    article: str
    count: int

@dataclass
class Order:
    id: str
    customer: str
    at: datetime
    lines: list[Line] = field(default_factory=list)

    def __post_init__(self):
        if not self.lines:
            raise ValueError("an order without lines")

@dataclass(frozen=True, slots=True, kw_only=True)
class Latest:
    customer: str
    at: datetime
    pieces: int
    lines: list[Line]

@dataclass(frozen=True)
class Pieces:
    count: int
    last: Line | None = None

orders = ps.Category("{prefix}.orders", Order, key="customer", event_time="at", buckets=2, codec={input})
latest = ps.Category("{prefix}.latest", Latest, key="customer", event_time="at", buckets=2, codec={output})

class Totals(ps.Stateful):
    name = "{prefix}.totals"
    reads, writes, state = orders, latest, Pieces
    state_semantics = output_semantics = ps.Semantics.EXACTLY_ONCE
    on_undecodable = ps.ErrorPolicy.DEAD_LETTER

    def process(self, event: Order, state: Pieces | None, context: ps.Context) -> tuple[Pieces, list[Latest]]:
        count = (state.count if state else 0) + sum(line.count for line in event.lines)
        output = Latest(customer=event.customer, at=event.at, pieces=count, lines=event.lines)
        return Pieces(count, event.lines[-1]), [output]
"""

MODELS = """
from __future__ import annotations

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator
import penstock as ps

class Line(BaseModel):
    product: str = Field(alias="article")
    count: int = Field(ge=1)

class Order(BaseModel):
    id: str
    buyer: str = Field(alias="customer")
    at: AwareDatetime
    lines: list[Line] = []

    @model_validator(mode="after")
    def has_lines(self):
        if not self.lines:
            raise ValueError("an order without lines")
        return self

class Latest(BaseModel):
    buyer: str = Field(alias="customer")
    at: AwareDatetime
    pieces: int
    lines: list[Line]

class Pieces(BaseModel):
    model_config = ConfigDict(frozen=True)
    count: int
    last: Line | None = None

orders = ps.Category("{prefix}.orders", Order, key="buyer", event_time="at", buckets=2, codec={input})
latest = ps.Category("{prefix}.latest", Latest, key="customer", event_time="at", buckets=2, codec={output})

class Totals(ps.Stateful):
    name = "{prefix}.totals"
    reads, writes, state = orders, latest, Pieces
    state_semantics = output_semantics = ps.Semantics.EXACTLY_ONCE
    on_undecodable = ps.ErrorPolicy.DEAD_LETTER

    def process(self, event: Order, state: Pieces | None, context: ps.Context) -> tuple[Pieces, list[Latest]]:
        count = (state.count if state else 0) + sum(line.count for line in event.lines)
        output = Latest(customer=event.buyer, at=event.at, pieces=count, lines=event.lines)
        return Pieces(count=count, last=event.lines[-1]), [output]
"""

ORDERS = 60
START = datetime(2024, 1, 1, tzinfo=UTC)


def _orders(first: int) -> list[dict[str, object]]:
    return [
        {
            "id": f"o{number}",
            "customer": f"c{number % 7}",
            "at": (START + timedelta(seconds=number)).isoformat(),
            "lines": [{"article": f"a{number}", "count": number + 1}, {"article": "b", "count": 1}],
        }
        for number in range(first, first + ORDERS)
    ]


@pytest.mark.parametrize(
    ("app", "input_codec", "output_codec"),
    [
        (DATACLASSES, '"json"', '"avro"'),
        pytest.param(DATACLASSES, "ps.codecs.MessagePack()", '"json"', marks=pytest.mark.exhaustive),
        (MODELS, '"json"', '"avro"'),
    ],
    ids=["dataclasses-json", "dataclasses-messagepack", "models-json"],
)
def test_the_commands_run_an_app_with_classes_of_other_libraries(
    cli: Cli, kafka: str, prefix: str, app: str, input_codec: str, output_codec: str
) -> None:
    """Records are sent, processed with state across restarts, shown and replayed; an invalid one is a dead letter."""
    text = app.replace("{prefix}", prefix).replace("{input}", input_codec).replace("{output}", output_codec)
    (cli.folder / "app.py").write_text(text)
    sent = _orders(0) + _orders(ORDERS)
    cli.ok("category", "create", "app.py")
    invalid = json.dumps({**sent[0], "lines": []}).encode()
    producer = Producer({"bootstrap.servers": kafka})
    producer.produce(f"{prefix}.orders", invalid, partition=0)
    assert producer.flush(30) == 0
    for batch in (sent[:ORDERS], sent[ORDERS:]):
        lines = "".join(json.dumps(order) + "\n" for order in batch)
        cli.ok("category", "send", f"{prefix}.orders", "--app", "app.py", stdin=lines)
        cli.ok("run", "app.py", "--until-end")

    expected: defaultdict[str, list[int]] = defaultdict(list)
    for order in sent:
        number = int(str(order["id"])[1:])
        before = expected[str(order["customer"])]
        before.append((before[-1] if before else 0) + number + 2)
    *replayed, summary = map(json.loads, cli.ok("replay", "app.py", "--from", "1h ago", "--json").splitlines())
    plain.read(kafka, f"{prefix}.latest")  # waits for the markers of the last transaction
    shown = cli.ok("category", "tail", f"{prefix}.latest", "--from", "0", "--no-follow", "--json")
    letters = cli.ok("dead-letters", "show", f"{prefix}.totals", "--limit", "3")

    found: defaultdict[str, list[int]] = defaultdict(list)
    for line in shown.splitlines():
        record = json.loads(line)["value"]
        found[record["customer"]].append(record["pieces"])
    assert {customer: sorted(pieces) for customer, pieces in found.items()} == expected
    assert summary["summary"]["outputs"] == len(replayed) == 2 * ORDERS
    assert ("an order without lines" in letters) == (input_codec == '"json"')
