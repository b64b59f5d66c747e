"""What every store of a shard's state promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.processors.cores import Changes
from penstock.state.errors import ForeignState, StateError, StateInUse, StateUnwritable
from penstock.state.rocks import RocksStateFolder
from penstock.state.store import MemoryStateFolder, ShardIdentity, StateFolder, shard_folder

ME = ShardIdentity("scorer", 3, "float by route")
SAVES = st.lists(st.dictionaries(st.binary(max_size=4), st.none() | st.binary(max_size=8), max_size=6), max_size=8)


@pytest.fixture(params=["memory", "rocks"])
def states(request: pytest.FixtureRequest, tmp_path: Path) -> StateFolder:
    """Each implementation in turn."""
    return MemoryStateFolder() if request.param == "memory" else RocksStateFolder(tmp_path)


def test_a_new_shard_is_empty(states: StateFolder) -> None:
    """It has no values and no position."""
    state = states.open(ME)

    assert state.fetch([b"a", b"b"]) == [None, None]
    assert state.position() == {}
    state.close()


def test_what_was_saved_is_there_after_reopening(states: StateFolder) -> None:
    """Values and positions last; a removed key is gone."""
    state = states.open(ME)
    state.save({b"a": b"1", b"b": b"2", b"": b"\x00"})
    state.save({b"a": None, b"b": b"3"})
    state.save_position({"flights": 17, "planes": 2})
    state.save_position({"flights": 18})
    state.close()

    state = states.open(ME)

    assert state.fetch([b"b", b"a", b"", b"zz"]) == [b"3", None, b"\x00", None]
    assert state.position() == {"flights": 18, "planes": 2}
    state.close()


def test_shards_are_apart(states: StateFolder) -> None:
    """Bucket numbers and processors do not see one another's state."""
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
    """Any series of saves reads back, in RocksDB, as a dict would."""
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


def test_state_of_another_shape_is_refused_and_kept(tmp_path: Path) -> None:
    """A changed state type, window or monoid does not get bytes it would misread."""
    states = RocksStateFolder(tmp_path)
    state = states.open(ME)
    state.save({b"a": b"1"})
    state.close()

    with pytest.raises(ForeignState, match="float by route"):
        states.open(ShardIdentity("scorer", 3, "int by route"))

    state = states.open(ME)
    assert state.fetch([b"a"]) == [b"1"]
    state.close()


def test_two_processes_cannot_open_one_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second is told who stands in its way; when the first dies, the state can be opened."""
    program = (
        "import sys; from pathlib import Path; from penstock.state.rocks import RocksStateFolder;"
        "from penstock.state.store import ShardIdentity;"
        f"state = RocksStateFolder(Path({str(tmp_path)!r})).open(ShardIdentity('scorer', 3, 'float by route'));"
        "state.save({b'a': b'1'}); print('open', flush=True); sys.stdin.read()"
    )
    monkeypatch.setattr("penstock.state.rocks.LOCK_LIMIT_S", 0.2)
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        with pytest.raises(StateInUse, match="another process"):
            RocksStateFolder(tmp_path).open(ME)
        other.kill()
    state = RocksStateFolder(tmp_path).open(ME)

    assert state.fetch([b"a"]) == [b"1"]
    state.close()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """The error says which folder, and that the last checkpoint is intact."""
    (tmp_path / "scorer").write_text("a file where a folder should be")

    with pytest.raises(StateUnwritable, match="scorer"):
        RocksStateFolder(tmp_path).open(ME)


def test_a_damaged_database_is_reported(tmp_path: Path) -> None:
    """Flipped bytes lead to an error that names the folder, not to empty state."""
    states = RocksStateFolder(tmp_path)
    state = states.open(ME)
    state.save({b"a": b"1"})
    state.close()
    manifest = next(shard_folder(tmp_path, ME).glob("MANIFEST-*"))
    manifest.write_bytes(os.urandom(manifest.stat().st_size))

    with pytest.raises(StateError, match=str(shard_folder(tmp_path, ME))):
        states.open(ME)
