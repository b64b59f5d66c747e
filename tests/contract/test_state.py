"""Contract of every store of a shard's state."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.processors.keyed_state import Changes
from penstock.processors.shard import Overlay, StatePosition
from penstock.state import Delta, LocalState, MemoryStateFolder, ShardIdentity, StateError, StateFolder, StateUnwritable
from penstock.state.errors import ForeignState
from penstock.state.local import RocksStateFolder, opened_read_only, shard_folder

ME = ShardIdentity("scorer", 3, "float by route")
SAVES = st.lists(st.dictionaries(st.binary(max_size=4), st.none() | st.binary(max_size=8), max_size=6), max_size=8)


@pytest.fixture(params=["memory", "rocks"])
def states(request: pytest.FixtureRequest, tmp_path: Path) -> StateFolder:
    """Each implementation."""
    return MemoryStateFolder() if request.param == "memory" else RocksStateFolder(tmp_path)


KEYS = st.binary(max_size=2)
CHANGES = st.dictionaries(KEYS.filter(lambda key: key < b"\xff"), st.none() | st.binary(max_size=3), max_size=8)


@pytest.fixture
def scanned(states: StateFolder) -> Iterator[LocalState]:
    """Return a state whose deletion a test completes by itself."""
    state: LocalState = states.open(ME)  # type: ignore[assignment]  # both of these are local
    yield state
    state.close()


def test_a_new_shard_is_empty(states: StateFolder) -> None:
    """It has no values and no position."""
    state = states.open(ME)

    assert state.fetch([b"a", b"b"]) == [None, None]
    assert state.position() == StatePosition()
    state.close()


def test_saved_values_are_there_after_reopening(states: StateFolder) -> None:
    """Values and positions persist; a removed key is absent."""
    state = states.open(ME)
    state.save({b"a": b"1", b"b": b"2", b"": b"\x00"})
    state.save({b"a": None, b"b": b"3"})
    state.save_position(StatePosition({"flights": 17, "planes": 2}))
    state.save_position(StatePosition({"flights": 18}))
    state.close()

    state = states.open(ME)

    assert state.fetch([b"b", b"a", b"", b"zz"]) == [b"3", None, b"\x00", None]
    assert state.position() == StatePosition({"flights": 18, "planes": 2})
    state.close()


def test_shards_are_isolated(states: StateFolder) -> None:
    """Buckets and processors do not see one another's state."""
    others = [ShardIdentity("scorer", 4, ME.shape), ShardIdentity("ranker", 3, ME.shape)]
    state = states.open(ME)
    state.save({b"a": b"1"})

    for other in others:
        opened = states.open(other)
        assert opened.fetch([b"a"]) == [None]
        opened.close()
    state.close()


@given(saves=SAVES)
@settings(max_examples=40, deadline=None)
def test_saves_add_up_to_the_last_value_of_each_key(
    saves: list[Changes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Any series of saves reads back from RocksDB as it would from a dict."""
    truth: dict[bytes, bytes] = {}
    state = RocksStateFolder(tmp_path_factory.mktemp("state")).open(ME)
    for changes in saves:
        state.save(changes)
        for key, value in changes.items():
            if value is None:
                truth.pop(key, None)
            else:
                truth[key] = value
    keys = sorted({key for changes in saves for key in changes})
    found = state.fetch(keys)
    state.close()

    assert found == [truth.get(key) for key in keys]


def test_writes_of_many_shards_share_one_memory(
    tmp_path: Path, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    """Shards that each keep little go to files when they together keep too much."""
    states = RocksStateFolder(tmp_path, memory_bytes=16 * 2**20)
    shards = [states.open(ShardIdentity("scorer", number, "float by route")) for number in range(16)]
    empty = len(list(tmp_path.rglob("*.sst")))
    for number in range(32):
        for shard in shards:
            shard.save({b"%d" % number: bytes(64 * 2**10)})

    wait_until(lambda: len(list(tmp_path.rglob("*.sst"))) > empty)
    for shard in shards:
        assert shard.fetch([b"0", b"31"]) == [bytes(64 * 2**10)] * 2
        shard.close()


def test_checkpoints_write_to_the_log_alone(tmp_path: Path) -> None:
    """Small ones produce no files, each of which would cost several synchronizations of the disk."""
    state = RocksStateFolder(tmp_path).open(ME)
    for number in range(1, 20):
        state.save_together({b"a": b"%d" % number}, StatePosition({"events": 2 * number}))
        state.prepare(Delta({"events": 2 * number}, StatePosition({"events": 2 * number + 1}), {b"b": b"%d" % number}))
        state.apply()

    assert (state.fetch([b"a", b"b"]), state.position()) == ([b"19", b"19"], StatePosition({"events": 39}))
    assert list(tmp_path.rglob("*.sst")) == []
    state.close()


def test_the_log_of_checkpoints_is_limited(tmp_path: Path, wait_until: Callable[[Callable[[], bool]], None]) -> None:
    """A restart reads it, so families that rarely fill a file do not keep it."""
    state = RocksStateFolder(tmp_path).open(ME)
    for number in range(150):
        state.save_together({b"a": bytes(2**20)}, StatePosition({"events": number}))

    logs_of = state.folder.glob
    wait_until(lambda: sum(log.stat().st_size for log in logs_of("*.log")) <= 65 * 2**20)
    state.close()


def test_a_different_state_layout_is_refused_and_the_state_kept(tmp_path: Path) -> None:
    """A changed state type, window or monoid is not given bytes that it would misread."""
    states = RocksStateFolder(tmp_path)
    state = states.open(ME)
    state.save({b"a": b"1"})
    state.close()

    with pytest.raises(
        ForeignState,
        match=r"it is bucket 3 of scorer \(float by route\), expected bucket 3 of scorer \(int by route\)\.",
    ):
        states.open(ShardIdentity("scorer", 3, "int by route"))

    state = states.open(ME)
    assert state.fetch([b"a"]) == [b"1"]
    state.close()


def test_state_and_position_are_saved_atomically(states: StateFolder) -> None:
    """After a save of both, both are there."""
    state = states.open(ME)
    state.save_together({b"a": b"1", b"b": b"2"}, StatePosition({"flights": 3}))
    state.save_together({b"a": None}, StatePosition({"flights": 4}))
    state.close()

    state = states.open(ME)

    assert (state.fetch([b"a", b"b"]), state.position()) == ([None, b"2"], StatePosition({"flights": 4}))
    state.close()


def prepared_state(states: StateFolder) -> LocalState:
    """Return a reopened state at offset 3 with a prepared delta to offset 5."""
    state: LocalState = states.open(ME)  # type: ignore[assignment]  # both of these are local
    state.save_together({b"a": b"1", b"b": b"2"}, StatePosition({"flights": 3}))
    state.prepare(Delta({"flights": 3}, StatePosition({"flights": 4}), {b"a": b"dropped"}))
    state.prepare(Delta({"flights": 3}, StatePosition({"flights": 5}), {b"a": b"9", b"b": None}))
    state.close()
    return states.open(ME)  # type: ignore[return-value]  # both of these are local


def test_a_prepared_delta_does_not_count(states: StateFolder) -> None:
    """State and position are unchanged, and the last prepared delta is pending."""
    state = prepared_state(states)

    assert (state.fetch([b"a", b"b"]), state.position()) == ([b"1", b"2"], StatePosition({"flights": 3}))
    assert state.prepared() == Delta({"flights": 3}, StatePosition({"flights": 5}), {b"a": b"9", b"b": None})
    state.close()


def test_an_applied_delta_counts_once(states: StateFolder) -> None:
    """Values and position equal the delta's; a second application changes nothing."""
    state = prepared_state(states)
    state.apply()
    state.apply()
    state.close()
    state = states.open(ME)  # type: ignore[assignment]  # both of these are local

    assert (state.fetch([b"a", b"b"]), state.position()) == ([b"9", None], StatePosition({"flights": 5}))
    assert state.prepared() is None
    state.close()


def test_a_discarded_delta_has_no_effect(states: StateFolder) -> None:
    """State and position are unchanged, and no delta is pending."""
    state = prepared_state(states)
    state.discard()
    state.discard()

    assert (state.fetch([b"a", b"b"]), state.position()) == ([b"1", b"2"], StatePosition({"flights": 3}))
    assert state.prepared() is None
    state.close()


def test_a_cleared_state_contains_only_what_is_kept(scanned: LocalState) -> None:
    """Its values and offsets are deleted, without traces of deleted keys."""
    scanned.save_together({b"a": b"1", b"\xffb": b"2"}, StatePosition({"events": 3}, 4, 5, generation=6))
    scanned.clear()

    assert list(scanned.items()) == []
    assert scanned.position() == StatePosition(generation=6)


def test_a_state_is_inspected_without_disturbing_its_owner(tmp_path: Path) -> None:
    """A read of an open state returns the saved values, and the owner continues."""
    state = RocksStateFolder(tmp_path).open(ME)
    state.save_together({b"a": b"1"}, StatePosition({"flights": 1}))
    with opened_read_only(state.folder) as view:
        state.save_together({b"a": b"2"}, StatePosition({"flights": 2}))

        assert (view.fetch([b"a"]), view.position(), view.identity()) == ([b"1"], StatePosition({"flights": 1}), ME)
    assert state.fetch([b"a"]) == [b"2"]
    state.close()


def test_a_snapshot_is_a_point_in_time_copy(tmp_path: Path) -> None:
    """It contains values, position and the prepared delta, without later changes."""
    delta = Delta({"flights": 1}, StatePosition({"flights": 2}), {b"a": b"2"})
    state = RocksStateFolder(tmp_path / "state").open(ME)
    state.save_together({b"a": b"1"}, StatePosition({"flights": 1}))
    state.prepare(delta)
    state.snapshot(tmp_path / "snapshot")
    state.apply()
    state.close()
    with opened_read_only(tmp_path / "snapshot") as view:
        assert (view.fetch([b"a"]), view.position(), view.prepared()) == ([b"1"], StatePosition({"flights": 1}), delta)


def test_the_owner_of_a_bucket_reads_past_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that still locks a state keeps its own copy; its later writes do not affect the owner."""
    program = (
        "import sys; from pathlib import Path; from penstock.state.local.folder import RocksStateFolder;"
        "from penstock.processors.shard.position import StatePosition; from penstock.state.protocols import ShardIdentity;"
        f"state = RocksStateFolder(Path({str(tmp_path)!r})).open(ShardIdentity('scorer', 3, 'float by route'));"
        "state.save_together({b'a': b'1'}, StatePosition({'flights': 1})); print('open', flush=True); sys.stdin.readline();"
        "state.save_together({b'a': b'late'}, StatePosition({'flights': 9})); print('late', flush=True); sys.stdin.readline()"
    )
    monkeypatch.setattr("penstock.state.local.folder.LOCK_LIMIT_S", 0.2)
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "open\n"
        states = RocksStateFolder(tmp_path)
        state = states.open(ME)
        state.save_together({b"b": b"2"}, StatePosition({"flights": 2}))
        other.stdin.write("\n")
        other.stdin.flush()
        assert other.stdout.readline() == "late\n"
        state.close()
        other.kill()
    state = states.open(ME)

    assert (state.fetch([b"a", b"b"]), state.position()) == ([b"1", b"2"], StatePosition({"flights": 2}))
    assert len(list(shard_folder(tmp_path, ME).iterdir())) == 1, "the unused copy was not removed"
    state.close()


def test_a_state_of_another_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer version's state is not touched."""
    with monkeypatch.context() as newer:
        newer.setattr("penstock.state.local.rocksdb.FORMAT", 99)
        RocksStateFolder(tmp_path).open(ME).close()

    with pytest.raises(ForeignState, match="format 99"):
        RocksStateFolder(tmp_path).open(ME)


def test_a_folder_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    """The error says which folder, and that the last checkpoint is intact."""
    (tmp_path / "scorer").write_text("a file where a folder should be")

    with pytest.raises(StateUnwritable, match="scorer"):
        RocksStateFolder(tmp_path).open(ME)


def test_a_full_disk_loses_no_checkpoint(tmp_path: Path) -> None:
    """A write on a full disk fails with a clear error; all saved data is intact."""
    program = (
        "import os, resource, signal; from pathlib import Path; from penstock.state.local.folder import RocksStateFolder;"
        "from penstock.processors.shard.position import StatePosition; from penstock.state.protocols import ShardIdentity; from penstock.state.errors import StateUnwritable\n"
        f"state = RocksStateFolder(Path({str(tmp_path)!r})).open(ShardIdentity('scorer', 3, 'float by route'))\n"
        "state.save_together({b'a': b'1'}, StatePosition({'flights': 1}))\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try:\n"
        "    state.save_together({b'a': b'2', b'b': os.urandom(1_000_000)}, StatePosition({'flights': 2}))\n"
        "except StateUnwritable as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "cannot be read or written" in done.stdout, done.stderr
    state = RocksStateFolder(tmp_path).open(ME)

    assert (state.fetch([b"a", b"b"]), state.position()) == ([b"1", None], StatePosition({"flights": 1}))
    state.close()


def test_a_damaged_database_is_reported(tmp_path: Path) -> None:
    """Flipped bytes cause an error that names the folder; they never read as empty state."""
    states = RocksStateFolder(tmp_path)
    state = states.open(ME)
    state.save({b"a": b"1"})
    state.close()
    manifest = next(state.folder.glob("MANIFEST-*"))
    manifest.write_bytes(os.urandom(manifest.stat().st_size))

    with pytest.raises(StateError, match=str(shard_folder(tmp_path, ME))):
        states.open(ME)


@given(saved=CHANGES, sealed=CHANGES, waiting=CHANGES, start=KEYS, end=KEYS, limit=st.integers(1, 5))
@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_a_range_scan_sees_unsaved_changes(
    scanned: LocalState, saved: Changes, sealed: Changes, waiting: Changes, start: bytes, end: bytes, limit: int
) -> None:
    """It returns keys in order, with pending changes and those of a running checkpoint, without removed keys."""
    emptied: Changes = dict.fromkeys(key for key, _ in scanned.scan(b"", b"\xff", 1_000))
    scanned.save(emptied | saved)
    overlay = Overlay(scanned, lambda _, later: later)
    overlay.add(sealed)
    overlay.snapshot()
    overlay.add(waiting)

    truth = sorted((key, value) for key, value in {**saved, **sealed, **waiting}.items() if value is not None)
    assert overlay.scan(start, end, limit) == [(key, value) for key, value in truth if start <= key < end][:limit]
