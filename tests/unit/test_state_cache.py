"""The memory for decoded states: bounded for all shards of a process together, and estimated well enough."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.ops.deploy import DeploymentSettings, Version, run_arguments
from penstock.ops.deploy.version import VersionShape
from penstock.ops.kernel import Driver
from penstock.ops.kernel.process.memory import LEAST_BYTES, MOST_BYTES, SHARE, default_memory_bytes
from penstock.processors.keyed_state import SizeEstimate, StateCache
from penstock.processors.operators import stateful


class _Table:
    """An owner of decoded states."""


@given(sizes=st.lists(st.integers(0, 1_000), min_size=1, max_size=8), limit=st.integers(0, 3_000))
def test_reports_of_all_tables_end_below_the_limit(sizes: list[int], limit: int) -> None:
    """Tables that are too large together are emptied, the largest first, and not more of them than needed."""
    cache, tables, sizes_left = StateCache(limit), [_Table() for _ in sizes], list(sizes)
    for _ in sizes:
        for at, table in enumerate(tables):
            if cache.must_forget(table, sizes_left[at]):
                sizes_left[at] = 0

    assert cache.size_bytes == sum(sizes_left) <= limit
    assert sizes_left == sizes or sum(sizes) > limit


def test_a_closed_table_counts_no_more() -> None:
    """Shards that moved to another worker leave their memory to the others."""
    cache, table = StateCache(100), _Table()
    cache.must_forget(_Table(), 90)

    assert not cache.must_forget(table, 90)
    assert cache.size_bytes == 90


class Point(msgspec.Struct):
    """A state of numbers."""

    x: int
    y: float


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (lambda n: n + 1_000, int),
        (lambda n: Point(n + 1_000, n / 7), Point),
        (lambda n: [f"word-{n}-{at}" for at in range(20)], list[str]),
        (lambda n: {f"field-{at}": n + at + 1_000 for at in range(10)}, dict[str, int]),
    ],
)
def test_the_estimate_is_near_the_memory_of_decoded_states(state: Callable[[int], Any], kind: Any) -> None:
    """It is between a third and three times as much, for states of common shapes."""
    encoded = [msgspec.msgpack.encode(state(n)) for n in range(5_000)]
    decoder = msgspec.msgpack.Decoder(kind)
    estimate = SizeEstimate()
    estimate.add(encoded)
    tracemalloc.start()
    try:
        states = {f"key-{n}": decoder.decode(one) for n, one in enumerate(encoded)}
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert held_bytes / 3 < estimate.of(len(states)) < held_bytes * 3


class Sale(ps.Record, frozen=True):
    """A sale of a shop."""

    shop: str
    at: ps.EventTime
    item: str


class Items(ps.Record, frozen=True):
    """The items of a shop."""

    shop: str
    at: ps.EventTime
    items: int


sales = ps.Category("sales", Sale, key="shop", event_time="at", buckets=4)
items = ps.Category("items", Items, key="shop", event_time="at", buckets=4)


class Assortment(ps.Stateful):
    """Counts the items that each shop has sold."""

    reads, writes = sales, items
    state = tuple[str, ...]

    def process(
        self, event: Sale, state: tuple[str, ...] | None, context: ps.Context
    ) -> tuple[tuple[str, ...], list[Items]]:
        after = (*(state or ()), event.item)
        return after, [Items(context.key, context.event_time, len(after))]


def test_shards_stay_within_the_memory_and_count_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """States that were forgotten are read again."""
    cache = StateCache(20_000)
    monkeypatch.setattr(stateful, "STATE_CACHE", cache)
    driver, sizes = Driver(Assortment), []
    for turn in range(6):
        driver.send(sales, [Sale(f"shop-{n}", turn + 1, f"item-{turn}") for n in range(100)])
        sizes.append(cache.size_bytes)

    assert max(sizes) <= 20_000
    assert max(sizes) > 0
    assert sorted(one.items for one in driver.read(items)) == sorted(turn + 1 for turn in range(6) for _ in range(100))


def test_hits_and_misses_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch counts each key once: as a miss if its state is read, even an empty one, and otherwise as a hit."""
    cache = StateCache()
    monkeypatch.setattr(stateful, "STATE_CACHE", cache)
    driver, counts = Driver(Assortment), []
    for batch in (["a", "b", "a"], ["a", "a"], ["a", "c"]):
        driver.send(sales, [Sale(shop, turn + 1, "item") for turn, shop in enumerate(batch)])
        counts.append((cache.hits, cache.misses))

    assert counts == [(0, 2), (1, 2), (2, 3)]


@pytest.mark.parametrize("mebibytes", [None, 64])
def test_deployed_workers_get_the_memory(tmp_path: Path, mebibytes: int | None) -> None:
    """Only the version that was deployed with it gets it."""
    settings = DeploymentSettings("kafka:9092", str(tmp_path), str(tmp_path), state_cache_mib=mebibytes)
    version = Version(
        1, "stock", "app.py", "app.py", "Assortment", "digest", settings, VersionShape.of(Assortment), 0, "ann"
    )
    arguments = run_arguments(version, tmp_path, "8080")

    assert ("--state-cache" in arguments) == (mebibytes is not None)
    assert mebibytes is None or arguments[arguments.index("--state-cache") + 1] == "64"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (str(64 * 2**20), LEAST_BYTES),
        (str(SHARE * 40 * 2**20), 40 * 2**20),
        ("max", None),
        (None, None),
    ],
)
def test_the_default_follows_the_memory_of_the_container(
    tmp_path: Path, content: str | None, expected: int | None
) -> None:
    """Without a limit of the container, it follows the machine's memory."""
    file = tmp_path / "memory.max"
    if content is not None:
        file.write_text(content + "\n")

    found = default_memory_bytes((file,))
    assert found == expected if expected is not None else LEAST_BYTES <= found <= MOST_BYTES
