"""`penstock promote` on a real broker: blue/green under load, with a killed command."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cli import Cli
from support.feeding import Feeding
from support.plain import values

from penstock.ops.start import Daemon
from penstock.transport.kafka import KafkaBus

APP = """
from datetime import timedelta

import penstock as ps

VERSION = 1
EVERY = ps.CheckpointInterval(time=timedelta(seconds=0.3))

class Order(ps.Record, frozen=True):
    number: int
    item: str
    at: ps.EventTime

class Sum(ps.Record, frozen=True):
    item: str
    orders: int
    numbers: int
    version: int
    at: ps.EventTime

class Window(ps.Record, frozen=True):
    item: str
    at: ps.EventTime
    orders: int

orders = ps.Category("{prefix}.orders", Order, key="number", event_time="at", buckets=2)
by_item = ps.Category("{prefix}.by_item", Order, key="item", event_time="at", buckets=2)
sums = ps.Category("{prefix}.sums", Sum, key="item", event_time="at", buckets=2)
windows = ps.Category("{prefix}.windows", Window, key="item", event_time="at", buckets=2)
too_late = ps.Category("{prefix}.too_late", Order, key="item", event_time="at", buckets=2)

class Split(ps.Stateless):
    name = "{prefix}.split"
    reads, writes, output_semantics, checkpoint = orders, by_item, ps.Semantics.EXACTLY_ONCE, EVERY

    def process(self, order):
        yield order

class Items(ps.Stateful):
    name = "{prefix}.items"
    reads, writes, state = by_item, sums, Sum
    output_semantics, checkpoint = ps.Semantics.EXACTLY_ONCE, EVERY

    def process(self, order, state, context):
        before = state or Sum(order.item, 0, 0, VERSION, 0)
        after = Sum(order.item, before.orders + 1, before.numbers + order.number, VERSION, order.at)
        return after, [after]

class Windows(ps.Aggregator):
    name = "{prefix}.windows"
    reads, writes, late = by_item, windows, too_late
    monoid, window, emit = ps.monoids.Count(), ps.windows.Tumbling(timedelta(milliseconds=WINDOW_MS)), ps.AtWatermark()
    output_semantics, checkpoint = ps.Semantics.EXACTLY_ONCE, EVERY

    def observe(self, order):
        return 1

    def result(self, item, window, orders):
        return Window(item, window.start, orders)
"""
WINDOW_MS = 50_000
ITEMS = 5


def orders_from(begin: int) -> list[tuple[str, str]]:
    """Return the keys and values of ten orders."""
    return [
        (str(number), json.dumps({"number": number, "item": f"i{number % ITEMS}", "at": 1_000 * number}))
        for number in range(begin, begin + 10)
    ]


@pytest.fixture
def shop(cli: Cli, prefix: str) -> Iterator[Path]:
    """The app, with its categories. Its deployments are stopped at the end."""
    path = cli.folder / "shop.py"
    path.write_text(APP.replace("{prefix}", prefix).replace("WINDOW_MS", str(WINDOW_MS)))
    cli.ok("category", "create", str(path))
    yield path
    cli.end_all()
    Daemon("supervisord", cli.folder / ".penstock" / "supervisor").stop(limit_s=60)


def expect_each_order_once(found: list[dict[str, Any]], sent: int) -> None:
    """Expect, for each item, its sums in order, without a gap or a repetition, first of the old version and then of the new one."""
    by_item = defaultdict[str, list[dict[str, Any]]](list)
    for one in found:
        by_item[one["item"]].append(one)
    for item in range(ITEMS):
        own, numbers = by_item[f"i{item}"], range(item, sent, ITEMS)
        assert [one["orders"] for one in own] == list(range(1, len(numbers) + 1))
        assert own[-1]["numbers"] == sum(numbers)
        versions = [one["version"] for one in own]
        assert versions == sorted(versions)
        assert set(versions) == {1, 2}


def expect_each_order_in_one_window(windows: list[dict[str, Any]], late: list[dict[str, Any]]) -> None:
    """Expect each window at most once, and in the complete ones each order that was not late."""
    found = Counter({(one["item"], one["at"]): one["orders"] for one in windows})
    assert len(found) == len(windows)
    last = {item: max(at for of, at in found if of == item) for item, _ in found}
    for one in late:
        found[one["item"], one["at"] - one["at"] % WINDOW_MS] += 1
    complete = [(item, at) for item in last for at in range(0, last[item] + 1, WINDOW_MS)]
    assert {key: found[key] for key in complete} == dict.fromkeys(complete, WINDOW_MS // 1_000 // ITEMS)


def test_a_blue_green_deploy_under_load_loses_and_repeats_no_record(
    cli: Cli, shop: Path, prefix: str, kafka: str, kafka_bus: KafkaBus, wait_until: Callable[..., None]
) -> None:
    """The command is killed while both apps are drained. Its repetition completes the deploy and removes the clone."""
    green = cli.folder / "changed" / "shop.py"
    green.parent.mkdir()
    green.write_text(shop.read_text().replace("VERSION = 1", "VERSION = 2"))
    clone = f"{green}@green"
    too_early = cli("promote", clone, "--yes", "--backup", "place")
    with Feeding(kafka, f"{prefix}.orders", orders_from, every_s=0.05) as feeding:
        cli.ok("deploy", str(shop), "--backup", "place")
        wait_until(lambda: len(values(kafka, f"{prefix}.sums")) > 100)
        taken = json.loads(cli.ok("snapshot", "take", str(shop), "--backup", "place", "--json"))
        cli.ok("clone", str(green), str(taken["id"]), "--as", "green", "--backup", "place")
        not_deployed = cli("promote", clone, "--yes", "--backup", "place")
        cli.ok("deploy", clone, "--backup", "place")
        killed = cli.start("promote", clone, "--yes", "--backup", "place")
        assert killed.stderr is not None
        for line in killed.stderr:
            if "on its way" in line:
                break
        killed.kill()
        killed.communicate()
        promoted = cli("promote", clone, "--yes", "--backup", "place", "--json")
        assert promoted.returncode == 0, promoted.stderr
        again = cli("promote", clone, "--yes", "--backup", "place")
        wait_until(lambda: any(one["version"] == 2 for one in values(kafka, f"{prefix}.sums")))
        feeding.stop()
        wait_until(lambda: len(values(kafka, f"{prefix}.sums")) >= feeding.sent)
    deployed = json.loads(cli.ok("deployments", "--json"))

    expect_each_order_once(values(kafka, f"{prefix}.sums"), feeding.sent)
    expect_each_order_in_one_window(values(kafka, f"{prefix}.windows"), values(kafka, f"{prefix}.too_late"))
    assert json.loads(promoted.stdout)["paused_s"] > 0
    assert {one["name"]: one["app"] for one in deployed} == dict.fromkeys(
        (f"{prefix}.split", f"{prefix}.items", f"{prefix}.windows"), str(green)
    )
    assert not [name for name in kafka_bus.catalog.names() if name.startswith(f"green.{prefix}")]
    assert "it does not exist" in too_early.stderr
    assert f"green.{prefix}.split is not deployed" in not_deployed.stderr
    assert (again.returncode, "have the states of shop@green already" in again.stderr) == (0, True)
    assert "Traceback" not in too_early.stderr + not_deployed.stderr + promoted.stderr + again.stderr
