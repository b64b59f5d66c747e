"""The positions from which shards resume, and the view of operators on unsaved changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.subjects import EXACT, LEAST, MOST, Subject

from penstock.ops.kernel.shards.backup_protocol import NoBackups
from penstock.ops.kernel.shards.resume_checks import expect_existing, first_available
from penstock.ops.kernel.shards.shard_loader import ShardLoader
from penstock.ops.kernel.shards.shard_opener import LoadedShard
from penstock.ops.kernel.shards.sink_writers import SinkWriters, open_sink
from penstock.ops.kernel.telemetry.waits import Waits
from penstock.processors.shard import Offsets, Overlay, StatePosition, is_committed, new_shard, resume
from penstock.processors.shard.checkpoints import next_id
from penstock.processors.shard.resume_point import AmbiguousTransaction
from penstock.state import Delta, MemoryShardState, ShardIdentity, StateFolder
from penstock.state.remote import StoreRefused, StoreUnreachable
from penstock.transport import Bucket, CategorySpec, OffsetOutOfRange, Outgoing, Position
from penstock.transport.memory import MemoryBus
from penstock.transport.memory.network import REQUEST_LIMIT_S, Network

T = TypeVar("T")
OFFSETS = st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 50))
SOME_OFFSETS = st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 3), min_size=1)
CHANGES = st.dictionaries(st.binary(max_size=2), st.none() | st.binary(max_size=3), max_size=5)
BUCKET = Bucket("x.events", 0)


@given(saved=OFFSETS, committed=OFFSETS)
def test_a_worker_resumes_at_the_position_of_its_state(saved: Offsets, committed: Offsets) -> None:
    """Reading starts at the state's position, without outputs up to the group's position."""
    resume_point = resume(Subject("stateful", EXACT, EXACT).make("x")(), StatePosition(saved), StatePosition(committed))

    assert resume_point.position == saved
    assert resume_point.state_only_until == {name: end for name, end in committed.items() if end > saved.get(name, 0)}


@given(saved=OFFSETS, committed=OFFSETS)
def test_at_most_once_never_repeats_an_event(saved: Offsets, committed: Offsets) -> None:
    """Both positions may have passed an event, so it is not read again."""
    resume_point = resume(Subject("stateful", MOST, MOST).make("x")(), StatePosition(saved), StatePosition(committed))

    assert all(
        resume_point.position[name] >= max(saved.get(name, 0), committed.get(name, 0)) for name in saved | committed
    )
    assert not resume_point.state_only_until


@given(committed=OFFSETS)
def test_without_state_a_worker_resumes_at_the_position_of_its_group(committed: Offsets) -> None:
    """A stateless processor resumes at its group's position."""
    assert resume(Subject("stateless", LEAST, LEAST).make("x")(), None, StatePosition(committed)).position == committed


@given(before=OFFSETS, after=SOME_OFFSETS, committed=SOME_OFFSETS)
def test_a_checkpoint_counts_if_its_positions_were_committed(
    before: Offsets, after: Offsets, committed: Offsets
) -> None:
    """The group's positions must equal the checkpoint's positions."""
    assert is_committed(before, StatePosition(after), StatePosition(committed), "a checkpoint") == all(
        committed.get(name) == offset for name, offset in after.items()
    )


@given(ids=st.lists(st.integers(0, 2**60), min_size=1))
def test_checkpoint_ids_increase_and_are_unique(ids: list[int]) -> None:
    """Two different checkpoints after the same one have different ids, except with a probability of one in a million."""
    assert all(next_id(each) > each for each in ids)
    assert len({next_id(ids[0]) for _ in range(3)}) > 1


def test_an_ambiguous_transaction_raises_an_error() -> None:
    """If the group's positions have expired, neither answer is safe; if it never had any, the checkpoint does not count."""
    with pytest.raises(AmbiguousTransaction, match="expired on the bus"):
        is_committed({"a": 1}, StatePosition({"a": 2}), StatePosition(), "a checkpoint")

    assert not is_committed({}, StatePosition({"a": 2}), StatePosition(), "a checkpoint")


def test_expired_events_are_skipped_only_with_from_earliest() -> None:
    """Otherwise the error reports their number."""
    assert first_available("p", BUCKET, 7, 5, from_earliest=False) == 7
    assert first_available("p", BUCKET, 5, 1005, from_earliest=True) == 1005
    with pytest.raises(OffsetOutOfRange, match="1,000 events expired"):
        first_available("p", BUCKET, 5, 1005, from_earliest=False)


def test_a_position_beyond_the_end_of_a_bucket_is_refused() -> None:
    """The end of a bucket is a valid position; an offset beyond it belongs to other events."""
    expect_existing("p", BUCKET, 1000, 1000, "its state")
    with pytest.raises(OffsetOutOfRange) as refused:
        expect_existing("p", BUCKET, 1001, 1000, "its state")

    for words in (
        "p has read x.events/0 up to offset 1,001, according to its state",
        "ends at offset 1,000",
        "created again",
    ):
        assert words in str(refused.value)


SUBJECT = Subject("stateful", EXACT, EXACT).make("x")


class SingleStateFolder(StateFolder):
    """A folder with one state, and actions when it is opened."""

    def __init__(self, state: MemoryShardState, on_open: Callable[[], object] = lambda: None) -> None:
        self._state = state
        self._on_open = on_open
        self.open_calls = 0

    def open(self, identity: ShardIdentity) -> MemoryShardState:
        self.open_calls += 1
        self._on_open()
        return self._state


@pytest.fixture
def bus() -> MemoryBus:
    """A bus with twenty messages in bucket 0 of the subject's input."""
    bus = MemoryBus()
    bus.create(CategorySpec(BUCKET.category, 2))
    more(bus, 20)
    return bus


def more(bus: MemoryBus, count: int) -> None:
    bus.writer().send(BUCKET.category, [Outgoing(None, b"{}", BUCKET.number)] * count)


def state_at(offset: int) -> MemoryShardState:
    state = MemoryShardState()
    state.save_position(StatePosition({BUCKET.category: offset}))
    return state


@pytest.fixture
def make_loader(bus: MemoryBus) -> Iterator[Callable[[StateFolder], ShardLoader]]:
    """Return a loader that opens shards in threads."""
    made: list[ShardLoader] = []
    with ThreadPoolExecutor(2) as threads:

        def make(states: StateFolder, network: Network | None = None) -> ShardLoader:
            made.append(
                ShardLoader(
                    SUBJECT(),
                    MemoryBus(cluster=bus.cluster, network=network),
                    states,
                    NoBackups(),
                    threads,
                    worker="it",
                    from_earliest=False,
                    now_ms=lambda: 0,
                    sinks=SinkWriters(SUBJECT, open_sink, Waits()),
                    waits=Waits(),
                )
            )
            return made[-1]

        yield make
        for each in made:
            each.close()


@pytest.fixture
def opened(
    make_loader: Callable[[StateFolder], ShardLoader], wait_until: Callable[[Callable[[], bool]], None]
) -> Callable[[StateFolder], LoadedShard]:
    """Open the shard of bucket 0, and wait for it."""

    def open_(states: StateFolder) -> LoadedShard:
        loader = make_loader(states)
        loader.begin([BUCKET.number])
        found: list[LoadedShard] = []

        def is_open() -> bool:
            found.extend(loader.opened())
            return bool(found)

        wait_until(is_open)
        return found[0]

    return open_


def test_the_state_of_another_bus_stays_unchanged(opened: Callable[[StateFolder], LoadedShard]) -> None:
    """The position is refused before the prepared checkpoint is resolved by a group of another bus."""
    state = state_at(21)
    state.prepare(Delta({}, StatePosition({BUCKET.category: 30}), {b"k": b"v"}))
    with pytest.raises(OffsetOutOfRange, match="another cluster"):
        opened(SingleStateFolder(state))

    assert state.prepared() is not None


def test_a_group_position_beyond_the_end_of_a_bucket_is_refused(
    bus: MemoryBus, opened: Callable[[StateFolder], LoadedShard]
) -> None:
    """The state is not even opened."""
    bus.set_committed(SUBJECT.name, [Position(BUCKET, 21)])
    states = SingleStateFolder(state_at(3))
    with pytest.raises(OffsetOutOfRange, match="group's committed position"):
        opened(states)

    assert states.open_calls == 0


def test_a_state_saved_after_the_end_was_fetched_is_accepted(
    bus: MemoryBus, opened: Callable[[StateFolder], LoadedShard]
) -> None:
    """The previous owner of the bucket may read and save until the state is opened."""
    shard = opened(SingleStateFolder(state_at(25), lambda: more(bus, 5))).shard

    assert shard.position == {BUCKET.category: 25}


def unreachable(times: int) -> Callable[[], None]:
    """Return a function that fails a number of times, like an unreachable store."""
    left = iter(range(times))

    def ask() -> None:
        if next(left, None) is not None:
            raise StoreUnreachable("The store is unreachable.")

    return ask


def test_opening_a_shard_retries_an_unreachable_store(
    opened: Callable[[StateFolder], LoadedShard], caplog: pytest.LogCaptureFixture
) -> None:
    """The shard opens when the store answers; meanwhile, one log message describes the wait."""
    states = SingleStateFolder(state_at(3), unreachable(4))
    shard = opened(states).shard

    assert shard.position == {BUCKET.category: 3}
    assert states.open_calls == 5
    messages = [record.message for record in caplog.records if "The store is unreachable" in record.message]
    assert len(messages) == 1
    assert messages[0].startswith("x.subject pauses its buckets")
    assert "nothing is lost" in messages[0]


@pytest.mark.parametrize("end", [lambda it: it.cancel([BUCKET.number]), ShardLoader.close], ids=["canceled", "closed"])
def test_retries_stop_when_the_shard_is_no_longer_needed(
    end: Callable[[ShardLoader], None],
    make_loader: Callable[[StateFolder], ShardLoader],
    wait_until: Callable[[Callable[[], bool]], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A bucket that has moved to another worker, or a worker that ends, stops waiting."""
    caplog.set_level("INFO")
    states = SingleStateFolder(state_at(3), unreachable(10**9))
    loader = make_loader(states)
    loader.begin([BUCKET.number])
    wait_until(lambda: states.open_calls > 1)
    end(loader)
    wait_until(lambda: "was not opened: The store is unreachable." in caplog.text)

    assert list(loader.opened()) == []


class SilentNetwork(Network):
    """A network without answers until it is released."""

    def __init__(self) -> None:
        self.is_asked = Event()
        self.is_released = Event()

    def request(self, what: str, effect: Callable[[], T], limit_s: float = REQUEST_LIMIT_S) -> T:
        """Wait for the release, and answer."""
        self.is_asked.set()
        assert self.is_released.wait(60)
        return super().request(what, effect, limit_s)


def test_a_canceled_opening_that_waited_for_the_bus_leaves_the_state_alone(
    make_loader: Callable[..., ShardLoader],
    wait_until: Callable[[Callable[[], bool]], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """After an outage, the shard's next opening may hold its state, and a second one would make an older copy the current state."""
    caplog.set_level("INFO")
    states, network = SingleStateFolder(state_at(3)), SilentNetwork()
    loader = make_loader(states, network)
    loader.begin([BUCKET.number])
    assert network.is_asked.wait(60)
    wait_until(loader._openings[BUCKET.number].shard.running)
    loader.cancel_all()
    network.is_released.set()
    wait_until(lambda: "its opening was canceled" in caplog.text)

    assert states.open_calls == 0


def test_a_store_error_other_than_an_outage_is_not_retried(opened: Callable[[StateFolder], LoadedShard]) -> None:
    """A wrong password stays wrong."""

    def refuse() -> None:
        raise StoreRefused("Wrong password.")

    states = SingleStateFolder(state_at(3), refuse)
    with pytest.raises(StoreRefused):
        opened(states)

    assert states.open_calls == 1


@given(first=st.integers(0, 20), size=st.integers(1, 20), begin=st.integers(0, 40), committed=st.integers(0, 40))
def test_a_batch_is_split_at_the_position_of_the_group(first: int, size: int, begin: int, committed: int) -> None:
    """Each unread message is in one part, in order; messages before the group's position have no outputs."""
    resume_point = resume(
        Subject("stateful", EXACT, EXACT).make("x")(),
        StatePosition({"x.events": begin}),
        StatePosition({"x.events": committed}),
    )
    shard = new_shard(Subject("stateful", EXACT, EXACT).make("x")(), 0, MemoryShardState(), resume_point, {})
    offsets = range(first, first + size)
    spans = list(shard.spans("x.events", offsets))

    assert [offset for span in spans for offset in offsets[span.begin : span.end]] == [
        at for at in offsets if at >= begin
    ]
    assert all((offset < committed) == span.state_only for span in spans for offset in offsets[span.begin : span.end])


@given(saved=CHANGES, rounds=st.lists(st.tuples(st.lists(CHANGES, max_size=2), st.booleans()), max_size=4))
def test_an_overlay_reads_as_if_all_changes_were_saved(
    saved: dict[bytes, Any], rounds: list[tuple[list[dict[bytes, Any]], bool]]
) -> None:
    """Unsaved changes overlay changes that are being saved, and these overlay saved ones, also after a rollback."""
    below, above = MemoryShardState(), MemoryShardState()
    below.save(saved)
    above.save(saved)
    overlay = Overlay(below, lambda _, later: later)
    keys = sorted({key for changes in (saved, *(each for waiting, _ in rounds for each in waiting)) for key in changes})
    for waiting, succeeds in rounds:
        snapshot = overlay.snapshot()
        for changes in waiting:
            overlay.add(dict(changes))
            above.save(changes)
        assert overlay.fetch(keys) == above.fetch(keys)
        if succeeds:
            below.save(snapshot)
        assert overlay.fetch(keys) == above.fetch(keys)
        overlay.finish({} if succeeds else snapshot)
        assert overlay.fetch(keys) == above.fetch(keys)


def test_partials_of_a_failed_checkpoint_merge_with_later_partials() -> None:
    """Earlier and later changes are kept, and each counts once."""
    overlay = Overlay(MemoryShardState(), lambda earlier, later: earlier + later)
    overlay.add({b"k": b"1", b"only": b"x"})
    snapshot = overlay.snapshot()
    overlay.add({b"k": b"2"})
    overlay.finish(snapshot)

    assert overlay.snapshot() == {b"k": b"12", b"only": b"x"}
