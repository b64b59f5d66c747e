"""Rebuilding remote state from computed values: they replace and never add, and a kill does no harm."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import timedelta

import pytest
from support.stores import APPENDING, OVERWRITING, StateOpener, aggregator, values

import penstock as ps
from penstock.processors.declare import Aggregator, WriteMode
from penstock.processors.keyed_state import decode_window_key, encode_window_key
from penstock.processors.shard import StatePosition
from penstock.state.errors import ForeignState
from penstock.state.remote import StoreFenced, open_rebuild, read_results, rebuild
from penstock.state.remote.errors import StoreMoved
from penstock.state.remote.rebuild import ReplacedValues, StoreRebuild

HOUR = 3_600_000
COUNT = ps.monoids.Count()
FIRST_HOUR = [encode_window_key(f"k{number}", 0) for number in range(4)]
SECOND_HOUR = [encode_window_key(f"k{number}", HOUR) for number in range(4)]
SLOTS = [*FIRST_HOUR, *SECOND_HOUR]
END = {"hits": 7}


class Killed(Exception):
    """The process died."""


@pytest.fixture
def counted() -> type[Aggregator]:
    """An aggregator with a name that no other test uses."""
    return aggregator(COUNT, ps.windows.Tumbling(timedelta(hours=1)))


@pytest.fixture
def elsewhere(url: str, counted: type[Aggregator]) -> Iterator[StoreRebuild]:
    """The writer of computed values to its shards."""
    with closing(open_rebuild(url, counted)) as it:
        yield it


def computed(**counts: int) -> list[tuple[bytes, bytes]]:
    """Return computed counts of the first hour."""
    return [(encode_window_key(key, 0), COUNT.encode(count)) for key, count in counts.items()]


def in_first_hour(slot: bytes) -> bool:
    """Return whether the slot is in the computed hour."""
    return decode_window_key(slot)[1] == 0


def dying(rows: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Yield rows, then fail like a killed process."""
    yield from rows
    raise Killed


def count_once(url: str, counted: type[Aggregator], opened: StateOpener, writing: WriteMode = APPENDING) -> None:
    """Count one hit per slot with a worker."""
    opened(url, counted, writing).save_together({slot: COUNT.encode(1) for slot in SLOTS}, StatePosition(END))


@pytest.mark.parametrize("writing", [OVERWRITING, APPENDING])
def test_computed_values_replace_counted_ones(
    url: str, counted: type[Aggregator], elsewhere: StoreRebuild, opened: StateOpener, writing: WriteMode
) -> None:
    """Slots without a computed value are deleted, and other hours are unchanged. The next worker continues at the position."""
    count_once(url, counted, opened, writing)
    assert elsewhere.positions() == {0: END}
    assert elsewhere.replace(0, END, computed(k0=10, k9=90), in_first_hour) == ReplacedValues(2, 3)
    opened(url, counted, writing).save({encode_window_key("k3", 0): COUNT.encode(1)})
    assert elsewhere.replace(0, END, computed(k0=10, k9=90), in_first_hour) == ReplacedValues(2, 1)
    worker = opened(url, counted)
    assert worker.position() == StatePosition(END)
    assert values(worker, COUNT, *FIRST_HOUR, encode_window_key("k9", 0)) == [10, None, None, None, 90]
    assert values(worker, COUNT, *SECOND_HOUR) == [1, 1, 1, 1]
    worker.save({FIRST_HOUR[0]: COUNT.encode(5)})
    assert values(worker, COUNT, FIRST_HOUR[0]) == [15]


@pytest.mark.parametrize("written", range(4))
def test_a_kill_between_chunks_leaves_old_or_computed_values(
    url: str,
    counted: type[Aggregator],
    elsewhere: StoreRebuild,
    opened: StateOpener,
    written: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each slot has one or the other, valid at the same position; a repeated rebuild completes."""
    monkeypatch.setattr(rebuild, "CHUNK_SLOTS", 1)
    count_once(url, counted, opened)
    rows = computed(k0=10, k1=20, k2=30)
    elsewhere.positions()
    with pytest.raises(Killed):
        elsewhere.replace(0, END, dying(rows[:written]), in_first_hour)
    survivor = opened(url, counted)
    assert survivor.position() == StatePosition(END)
    assert values(survivor, COUNT, *FIRST_HOUR) == [*[10, 20, 30][:written], *[1] * (4 - written)]

    assert elsewhere.replace(0, END, rows, in_first_hour) == ReplacedValues(3, 1)
    assert values(opened(url, counted), COUNT, *FIRST_HOUR) == [10, 20, 30, None]


def test_a_shard_that_has_advanced_is_not_replaced(
    url: str, counted: type[Aggregator], elsewhere: StoreRebuild, opened: StateOpener
) -> None:
    """The computed values lack the events that the shard has counted since."""
    count_once(url, counted, opened)
    elsewhere.positions()
    opened(url, counted).save_together({FIRST_HOUR[0]: COUNT.encode(1)}, StatePosition({"hits": 8}))
    with pytest.raises(StoreMoved, match=r"is at .*8.* were computed up to .*7"):
        elsewhere.replace(0, END, computed(k0=10), in_first_hour)

    assert values(opened(url, counted), COUNT, FIRST_HOUR[0]) == [2]


def test_a_worker_that_takes_over_stops_the_replacement(
    url: str, counted: type[Aggregator], elsewhere: StoreRebuild, opened: StateOpener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops at the takeover, and the worker adds to the stored values."""
    monkeypatch.setattr(rebuild, "CHUNK_SLOTS", 1)
    count_once(url, counted, opened)

    def interrupted() -> Iterator[tuple[bytes, bytes]]:
        yield from computed(k0=10)
        opened(url, counted).save_together({slot: COUNT.encode(1) for slot in SLOTS}, StatePosition({"hits": 15}))
        yield from computed(k1=20)

    with pytest.raises(StoreFenced):
        elsewhere.replace(0, END, interrupted(), in_first_hour)

    assert values(opened(url, counted), COUNT, *FIRST_HOUR) == [11, 2, 2, 2]


@pytest.mark.parametrize("written", range(3))
def test_an_incomplete_rebuild_is_neither_used_nor_queried(
    url: str,
    counted: type[Aggregator],
    elsewhere: StoreRebuild,
    opened: StateOpener,
    written: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No worker counts on it and no query returns it; after completion workers continue behind the computed events."""
    monkeypatch.setattr(rebuild, "CHUNK_SLOTS", 1)
    rows = computed(k0=10, k1=20)
    elsewhere.begin()
    with pytest.raises(Killed):
        elsewhere.replace(0, END, dying(rows[:written]), lambda _: True)
    with pytest.raises(ForeignState, match="being built"):
        opened(url, counted)
    with read_results(url, counted) as results, pytest.raises(ForeignState, match="being built"):
        list(results.scan(10))
    assert (elsewhere.positions(), elsewhere.unfinished()) == ({}, list(range(4)))

    elsewhere.begin()
    assert elsewhere.replace(0, END, rows[:1], lambda _: True) == ReplacedValues(1, max(written - 1, 0))
    elsewhere.begin()
    assert (elsewhere.positions(), elsewhere.unfinished()) == ({0: END}, [1, 2, 3])
    worker = opened(url, counted)
    assert worker.position() == StatePosition(END)
    assert values(worker, COUNT, *FIRST_HOUR) == [10, None, None, None]


def test_a_state_saved_without_a_position_is_rebuilt(
    url: str, counted: type[Aggregator], elsewhere: StoreRebuild, opened: StateOpener
) -> None:
    """The worker died between its first two saves: it would count those events again."""
    opened(url, counted).save({slot: COUNT.encode(1) for slot in SLOTS})
    elsewhere.begin()
    elsewhere.replace(0, END, computed(k0=10), lambda _: True)

    assert values(opened(url, counted), COUNT, *SLOTS) == [10, *[None] * 7]
