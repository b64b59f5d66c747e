"""What compaction promises: partials become fewer, what is fetched stays, whoever writes meanwhile."""

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
from support.stores import EVER, LIMIT_S, OVERWRITING, A, B, Log, Opened, Place, aggregator, lifted, until, values

import penstock as ps
from penstock.processors.errors import ProcessorFailed
from penstock.processors.keyed_state.key_layout import encode_window_key
from penstock.state.protocols import RemoteState
from penstock.state.remote import Compactor, compactor_of
from penstock.state.remote.addresses import address_of
from penstock.state.remote.folder import store_at
from penstock.state.remote.protocols import Shard


def test_crowds_are_merged_in_order(url: str, opened: Opened) -> None:
    """What has more partials than the limit becomes one; the rest is left alone; what is fetched does not change."""
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
        found = store.unmerged_partials(Shard(processor.name, 0), 0)
        return {unmerged.slot: len(unmerged.partials) for batch in found for unmerged in batch}


def remove_and_append(state: RemoteState) -> None:
    state.save({A: None})
    for n in (7, 8, 9):
        state.save(lifted(Log(), a=n))


class Small(Log):
    """A log whose program fails for more than four entries."""

    def combine(self, left: list[Any], right: list[Any]) -> list[Any]:
        if len(left) + len(right) > 4:
            raise OverflowError("a log has four entries at most")
        return super().combine(left, right)


def test_partials_that_cannot_be_combined_are_kept_and_reported(url: str, opened: Opened) -> None:
    """The monoid is the user's program. A failure must not reach them as a failed thread, and must not change the store."""
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
def test_what_happens_while_a_crowd_is_merged_stays(url: str, opened: Opened, meanwhile: str) -> None:
    """Between a compactor's reading and its writing, anybody may write, and another compactor may be faster."""
    monoid = Log()
    processor = aggregator(monoid)
    state = opened(url, processor)
    for n in range(3):
        state.save(lifted(monoid, a=n))
    happens, expected = MEANWHILE[meanwhile]
    shard = Shard(processor.name, 0)
    with closing(store_at(address_of(url))) as store, closing(compactor_of(url, processor, partial_limit=1)) as faster:
        (unmerged,) = [unmerged for batch in store.unmerged_partials(shard, 1) for unmerged in batch]
        happens(state, faster)
        store.replace(shard, [(unmerged, monoid.encode([0, 1, 2]))])

    assert values(state, monoid, A) == [expected]


def test_other_partials_at_the_same_places_are_not_replaced(postgres: Postgres, opened: Opened) -> None:
    """After a failover that lost saves, between a compactor's reading and its writing."""
    monoid = Log()
    processor = aggregator(monoid)
    state = opened(postgres.url, processor)
    for n in range(3):
        state.save(lifted(monoid, a=n))
    shard = Shard(processor.name, 0)
    with closing(store_at(address_of(postgres.url))) as store, postgres.session() as session:
        (unmerged,) = [unmerged for batch in store.unmerged_partials(shard, 1) for unmerged in batch]
        session.execute(
            "UPDATE penstock_parts AS part SET encoded = %s FROM penstock_shards AS own "
            "WHERE part.shard = own.shard AND own.processor = %s AND part.place = %s",
            (monoid.encode([7]), processor.name, unmerged.last),
        )

        assert store.replace(shard, [(unmerged, monoid.encode([0, 1, 2]))]) == 0
    assert values(state, monoid, A) == [[0, 1, 7]]


def test_a_crowd_that_a_whole_value_replaced_stays_replaced(url: str, opened: Opened) -> None:
    """Where the way of writing was changed while a compactor was at work."""
    monoid = Log()
    processor = aggregator(monoid)
    state = opened(url, processor)
    for n in range(3):
        state.save(lifted(monoid, a=n))
    shard = Shard(processor.name, 0)
    with closing(store_at(address_of(url))) as store:
        (unmerged,) = [unmerged for batch in store.unmerged_partials(shard, 1) for unmerged in batch]
        state = opened(url, processor, OVERWRITING)
        state.save({A: monoid.encode([0, 1, 2, 3])})

        assert store.replace(shard, [(unmerged, monoid.encode([0, 1, 2]))]) == 0
    assert values(state, monoid, A) == [[0, 1, 2, 3]]


def test_a_compactor_disturbs_nobody(url: str, opened: Opened) -> None:
    """It runs in a thread of its own while the owner appends and reads."""
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


def test_a_compactor_may_be_killed_at_any_moment(url: str, opened: Opened) -> None:
    """Nothing is lost and nothing counts twice, however often."""
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


def test_a_compactor_goes_on_after_a_lost_connection(place: Place, proxy: Proxy, opened: Opened) -> None:
    """A pass that breaks is said and made again."""
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
