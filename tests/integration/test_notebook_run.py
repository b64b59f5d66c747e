"""Slices and replays for notebooks on a real broker, beside a deployed processor that they do not touch."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from support.cli import Cli

from penstock import notebook
from penstock.processors.declare import plan_of
from penstock.testing import load_app

APP = """
import penstock as ps

class Sale(ps.Record, frozen=True):
    shop: str
    at: ps.EventTime
    cents: int

sales = ps.Category("{prefix}.sales", Sale, key="shop", event_time="at", buckets=2)
doubled = ps.Category("{prefix}.doubled", Sale, key="shop", event_time="at", buckets=2)

class Double(ps.Stateless[Sale, Sale]):
    name = "{prefix}.double"
    reads, writes = sales, doubled

    def process(self, event: Sale) -> list[Sale]:
        return [Sale(event.shop, event.at, 2 * event.cents)]
"""


def test_a_notebook_reads_and_replays_the_topic_of_an_app(
    cli: Cli, kafka: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second replay has the same result. The deployed processor's output is complete and has no duplicates."""
    (cli.folder / "app.py").write_text(APP.replace("{prefix}", prefix))
    sent = [{"shop": f"s{number % 5}", "at": 1_700_000_000_000 + number, "cents": number} for number in range(500)]
    cli.ok("category", "create", "app.py")
    lines = "".join(json.dumps(sale) + "\n" for sale in sent)
    cli.ok("category", "send", f"{prefix}.sales", "--app", "app.py", stdin=lines)
    [processor] = load_app(cli.folder / "app.py").processors
    [sales], [doubled] = plan_of(processor).inputs, plan_of(processor).outputs
    monkeypatch.setenv("PENSTOCK_KAFKA", kafka)

    results = []
    for _ in range(2):
        found = notebook.read(sales, last=timedelta(hours=1))
        outputs = notebook.replay(processor, last=timedelta(hours=1))[doubled]
        results.append((sorted(found.to_pandas()["cents"]), sorted(outputs.to_pandas()["cents"])))
        cli.ok("run", "app.py", "--until-end")
    written = notebook.read(doubled, last=timedelta(hours=1))

    assert results == [(list(range(500)), list(range(0, 1000, 2)))] * 2
    assert sorted(sale.cents for sale in written) == list(range(0, 1000, 2))
