"""Compaction reduces the number of partials and keeps their results, during concurrent writes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from itertools import count
from typing import Any

import pytest
from support.databases import Postgres
from support.proxy import Proxy
from support.stores import EVER, LIMIT_S, OVERWRITING, A, B, Log, Place, StateOpener, aggregator, lifted, until, values

import penstock as ps
from penstock.processors import ProcessorFailed
from penstock.processors.keyed_state import encode_window_key
from penstock.state import RemoteState
from penstock.state.remote import StoredShard, compactor_of
from penstock.state.remote.addresses import address_of
from penstock.state.remote.compaction import Compactor
from penstock.state.remote.folder import store_at


def test_compaction_merges_partials_in_order(url: str, opened: StateOpener) -> None:
    """A slot with more partials than the limit is merged into one; other slots and all results are unchanged."""
    monoid = Log()
    processor = aggregator(monoid)
    state = opened(url, processor)
    for n in range(9):
        state.save(lifted(monoid, a=n) | (lifted(monoid, b=n) if n < 4 else {}))
    with closing(compactor_of(url, processor, partial_limit=4)) as compactor:
        assert compactor.compact() == 1
        assert compactor.compact() == 0
    state.save(lifted(monoid, a=9))

    assert values(state, monoid, A, B) == [list(range(10)), list(range(4))]
    assert crowd_sizes(url, processor) == {A: 2, B: 4}


def crowd_sizes(url: str, processor: type[ps.Aggregator]) -> dict[bytes, int]:
    with closing(store_at(address_of(url))) as store:
        found = store.unmerged_partials(StoredShard(processor.name, 0), 0)
        return {unmerged.slot: len(unmerged.partials) for batch in found for unmerged in batch}


def remove_and_append(state: RemoteState) -> None:
    state.save({A: None})
    for n in (7, 8, 9):
        state.save(lifted(Log(), a=n))


class Small(Log):
    """A log whose merge fails for more than four entries."""

    def combine(self, left: list[Any], right: list[Any]) -> list[Any]:
        if len(left) + len(right) > 4:
            raise OverflowError("a log has four entries at most")
        return super().combine(left, right)


def test_partials_that_cannot_be_combined_are_kept_and_reported(url: str, opened: StateOpener) -> None:
    """The monoid is the user's code. Its failure must neither stop the compactor's thread nor change the store."""
    monoid = Small()
    processor = aggregator(monoid)
    state = opened(url, processor)
    for n in range(9):
        state.save(lifted(monoid, a=n))

    reported = r"9 partials of Small .* a log has four entries at most.* nothing is lost"
    with (
        closing(compactor_of(url, processor, partial_limit=4)) as compactor,
        pytest.raises(ProcessorFailed, match=reported),
    ):
        compactor.compact()
    with pytest.raises(ProcessorFailed, match="cannot be combined"):
        values(state, monoid, A)
    assert crowd_sizes(url, processor) == {A: 9}


MEANWHILE: dict[str, tuple[Callable[[RemoteState, Compactor], object], list[Any] | None]] = {
    "appended": (lambda state, _: state.save(lifted(Log(), a=3)), [0, 1, 2, 3]),
    "merged": (lambda _, faster: faster.compact(), [0, 1, 2]),
    "removed": (lambda state, _: state.save({A: None}), None),
    "removed and appended": (lambda state, _: remove_and_append(state), [7, 8, 9]),
}


@pytest.mark.parametrize("meanwhile", MEANWHILE)
def test_writes_during_a_compaction_are_kept(url: str, opened: StateOpener, meanwhile: str) -> None:
    """A worker or another compactor may write between a compactor's read and its write."""
    monoid = Log()
    processor = aggregator(monoid)
    state = opened(url, processor)
    for n in range(3):
        state.save(lifted(monoid, a=n))
    happens, expected = MEANWHILE[meanwhile]
    shard = StoredShard(processor.name, 0)
    with closing(store_at(address_of(url))) as store, closing(compactor_of(url, processor, partial_limit=1)) as faster:
        (unmerged,) = [unmerged for batch in store.unmerged_partials(shard, 1) for unmerged in batch]
        happens(state, faster)
        store.replace(shard, [(unmerged, monoid.encode([0, 1, 2]))])

    assert values(state, monoid, A) == [expected]


def test_partials_rewritten_after_a_failover_are_not_replaced(postgres: Postgres, opened: StateOpener) -> None:
    """A failover loses saves between a compactor's read and its write, and the owner writes others with the same numbers."""
    monoid = Log()
    processor = aggregator(monoid)
    state = opened(postgres.url, processor)
    for n in range(3):
        state.save(lifted(monoid, a=n))
    shard = StoredShard(processor.name, 0)
    with closing(store_at(address_of(postgres.url))) as store, postgres.session() as session:
        (unmerged,) = [unmerged for batch in store.unmerged_partials(shard, 1) for unmerged in batch]
        session.execute(
            "UPDATE penstock_parts AS part SET encoded = %s FROM penstock_shards AS own "
            "WHERE part.shard = own.shard AND own.processor = %s AND part.place = %s",
            (monoid.encode([7]), processor.name, unmerged.last),
        )

        assert store.replace(shard, [(unmerged, monoid.encode([0, 1, 2]))]) == 0
    assert values(state, monoid, A) == [[0, 1, 7]]


def test_partials_that_a_whole_value_replaced_stay_replaced(url: str, opened: StateOpener) -> None:
    """The write mode changes while a compactor is at work."""
    monoid = Log()
    processor = aggregator(monoid)
    state = opened(url, processor)
    for n in range(3):
        state.save(lifted(monoid, a=n))
    shard = StoredShard(processor.name, 0)
    with closing(store_at(address_of(url))) as store:
        (unmerged,) = [unmerged for batch in store.unmerged_partials(shard, 1) for unmerged in batch]
        state = opened(url, processor, OVERWRITING)
        state.save({A: monoid.encode([0, 1, 2, 3])})

        assert store.replace(shard, [(unmerged, monoid.encode([0, 1, 2]))]) == 0
    assert values(state, monoid, A) == [[0, 1, 2, 3]]


def test_a_compactor_does_not_affect_the_owner(url: str, opened: StateOpener) -> None:
    """It runs in its own thread while the owner appends and reads."""
    monoid = Log()
    processor = aggregator(monoid)
    state = opened(url, processor)
    with closing(compactor_of(url, processor, lambda: [0], partial_limit=2, pause_s=0.001)) as compactor:
        compactor.start()
        for n in range(150):
            state.save(lifted(monoid, a=n, b=n))
            assert values(state, monoid, A) == [list(range(n + 1))]
        until(lambda: max(crowd_sizes(url, processor).values()) <= 2)

    assert values(state, monoid, A, B) == [list(range(150))] * 2


PROGRAM = """
import sys
sys.path[:0] = {path!r}
from support.stores import Log, aggregator
from penstock.state.remote import compactor_of
processor = aggregator(Log())
processor.name = {name!r}
compactor = compactor_of({url!r}, processor, lambda: [0], partial_limit=1)
while True:
    if compactor.compact():
        print("merged", flush=True)
"""


def test_a_compactor_may_be_killed_at_any_moment(url: str, opened: StateOpener) -> None:
    """Repeated kills lose nothing and count nothing twice."""
    monoid = Log()
    processor = aggregator(monoid)
    state = opened(url, processor)
    slots = [encode_window_key(f"key-{n}", EVER) for n in range(300)]
    program = PROGRAM.format(path=sys.path, name=processor.name, url=url)
    appended = count()
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as compacting:
            assert compacting.stdout is not None
            os.set_blocking(compacting.stdout.fileno(), False)
            deadline = time.monotonic() + LIMIT_S
            while not compacting.stdout.read():
                assert time.monotonic() < deadline, "nothing was merged"
                state.save(dict.fromkeys(slots, monoid.encode([next(appended)])))
            state.save(dict.fromkeys(slots, monoid.encode([next(appended)])))
            compacting.kill()

    assert values(state, monoid, *slots) == [list(range(next(appended)))] * len(slots)


def test_a_compactor_continues_after_a_lost_connection(place: Place, proxy: Proxy, opened: StateOpener) -> None:
    """It logs the failed pass and repeats it."""
    monoid = Log()
    processor = aggregator(monoid)
    state = opened(place.url, processor)
    with closing(
        compactor_of(place.through(proxy), processor, lambda: [0], partial_limit=2, pause_s=0.01)
    ) as compactor:
        proxy.refuse()
        compactor.start()
        for n in range(9):
            state.save(lifted(monoid, a=n))
        proxy.resume()
        until(lambda: crowd_sizes(place.url, processor)[A] <= 2)

    assert values(state, monoid, A) == [list(range(9))]
