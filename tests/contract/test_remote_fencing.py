"""Ownership of remote state: the last worker to open a shard owns it, and only its writes count."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import pytest
from psycopg import sql
from support.databases import Postgres
from support.stores import (
    APPENDING,
    OUTBOX,
    OVERWRITING,
    A,
    Place,
    StateOpener,
    aggregator,
    identity_of,
    lifted,
    new_database,
    values,
)

import penstock as ps
from penstock.processors.declare import WriteMode
from penstock.processors.shard import HeldOutput, StatePosition
from penstock.state import Outbox, RemoteState
from penstock.state.remote import StoreFenced, remote_states

WRITES: dict[str, Callable[[RemoteState], None]] = {
    "save": lambda state: state.save({A: b"\x05"}),
    "save_position": lambda state: state.save_position(StatePosition({"hits": 5})),
    "save_together": lambda state: state.save_together({A: b"\x05"}, StatePosition({"hits": 5})),
    "save_with_outbox": lambda state: state.save_with_outbox({A: b"\x05"}, OUTBOX),
    "clear_outbox": lambda state: state.clear_outbox(),
}


@pytest.mark.parametrize("writing", [OVERWRITING, APPENDING])
@pytest.mark.parametrize("write", WRITES)
def test_a_zombie_changes_nothing(url: str, opened: StateOpener, write: str, writing: WriteMode) -> None:
    """Every write of an older owner is refused with an error."""
    processor = aggregator(ps.monoids.Count())
    zombie = opened(url, processor, writing)
    zombie.save_with_outbox(
        {A: b"\x01"}, Outbox({}, StatePosition({"hits": 1}), [HeldOutput("pages", b"a", b"1", -1, None)])
    )
    owner = opened(url, processor, writing)
    before = owner.fetch([A]), owner.outbox()

    with pytest.raises(StoreFenced, match="another worker opened the shard with epoch 2"):
        WRITES[write](zombie)

    assert (owner.fetch([A]), owner.outbox()) == before
    assert opened(url, processor, writing).position() == StatePosition({"hits": 1})


@pytest.mark.parametrize("writing", [OVERWRITING, APPENDING])
def test_a_zombie_reads_nothing(url: str, opened: StateOpener, writing: WriteMode) -> None:
    """A read by an older owner fails: a result computed from its successor's values would count events twice."""
    processor = aggregator(ps.monoids.Count())
    zombie = opened(url, processor, writing)
    zombie.save({A: b"\x01"})
    assert values(zombie, ps.monoids.Count(), A) == [1]
    owner = opened(url, processor, writing)

    with pytest.raises(
        StoreFenced, match=r"another worker opened the shard with epoch 2\. The values read are not used"
    ):
        zombie.fetch([A])

    assert values(owner, ps.monoids.Count(), A) == [1]


def test_a_store_that_lost_saves_is_noticed(place: Place, opened: StateOpener) -> None:
    """After a failover that lost saves, the owner writes nothing; its error asks to open the shard again."""
    processor = aggregator(ps.monoids.Count())
    state = opened(place.url, processor)
    for offset in range(3):
        state.save_together({A: b"\x01"}, StatePosition({"hits": offset}))
    roll_back(place, processor, "saves")

    with pytest.raises(StoreFenced, match="The store lost saves"):
        state.save_together({A: b"\x01"}, StatePosition({"hits": 3}))

    assert values(opened(place.url, processor), ps.monoids.Count(), A) == [3]


@pytest.mark.parametrize("saves", [0, 1])
def test_an_epoch_that_a_failover_repeats_has_one_owner(place: Place, opened: StateOpener, saves: int) -> None:
    """A failover that loses a claim repeats its epoch; the earlier owner does not treat the next owner's saves as its own."""
    processor = aggregator(ps.monoids.Count())
    first = opened(place.url, processor)
    roll_back(place, processor, "epoch")
    second = opened(place.url, processor)
    for _ in range(saves):
        second.save({A: b"\x01"})

    with pytest.raises(StoreFenced, match="another worker opened the shard"):
        first.save({A: b"\x05"})

    second.save({A: b"\x01"})
    assert values(second, ps.monoids.Count(), A) == [saves + 1]


def roll_back(place: Place, processor: type[ps.Aggregator], counted: Literal["epoch", "saves"]) -> None:
    """Do to a shard what a failover does that loses the last claim or save."""
    if isinstance(place.server, Postgres):
        with place.server.session() as session:
            change = sql.SQL("UPDATE penstock_shards SET {0} = {0} - 1 WHERE processor = %s")
            session.execute(change.format(sql.Identifier(counted)), (processor.name,))
    else:
        with place.server.session() as client:
            client.hincrby(f"penstock:{{{processor.name}:0}}:shard", counted, -1)


def test_shards_can_be_opened_while_others_are_in_use(url: str, opened: StateOpener) -> None:
    """The shards of a worker share its connections, from any thread."""
    monoid = ps.monoids.Count()
    processor = aggregator(monoid)
    states = opened.folder(remote_states(url, processor, write_mode=APPENDING))
    working = states.open(identity_of(processor))
    with ThreadPoolExecutor(4) as pool:
        opening = [pool.submit(states.open, identity_of(processor, bucket)) for bucket in range(1, 13)]
        for _ in range(30):
            working.save(lifted(monoid, a=1))
        others = [future.result() for future in opening]

    assert values(working, monoid, A) == [30]
    assert [state.position() for state in others] == [StatePosition()] * 12


def test_workers_that_start_together_create_the_tables_once(postgres: Postgres) -> None:
    """Concurrent creation of the same tables succeeds for each worker."""
    url = new_database(postgres)
    processor = aggregator(ps.monoids.Count())
    folders = [remote_states(url, processor) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        states = list(pool.map(lambda pair: pair[1].open(identity_of(processor, pair[0])), enumerate(folders)))
    found = [state.fetch([A]) for state in states]
    for folder in folders:
        folder.close()

    assert found == [[None]] * 8
