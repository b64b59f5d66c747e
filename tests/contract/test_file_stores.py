"""Contract of every file store: memory, a folder and HDFS."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.backups import listing
from support.warehouses import MemoryFileStore

from penstock.state import BadStoreAddress, FileMissing, FileStoreUnreachable
from penstock.state.files import FileStore, LocalFileStore, open_file_store


class Interrupted(Exception):
    """The source of a file's content failed."""


@pytest.fixture(params=["memory", "folder", "hdfs"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> FileStore:
    """Each implementation, empty."""
    if request.param == "hdfs":
        endpoints = request.getfixturevalue("hdfs")
        return open_file_store(f"{endpoints['rpc']}/{tmp_path.name}", endpoints["webhdfs"])
    return MemoryFileStore() if request.param == "memory" else LocalFileStore(tmp_path / "store")


def test_a_write_creates_or_replaces_a_file_atomically(files: FileStore) -> None:
    """Empty files and files of several chunks are written in the same way."""
    files.write("a/b/file", [b"first"])
    files.write("a/b/file", iter([b"sec", b"", b"ond"]))
    files.write("a/empty", [])

    assert listing(files) == {"a/b/file": b"second", "a/empty": b""}
    assert files.list_folder("a") == {"b": None, "empty": 0}


def test_a_file_can_be_read_from_any_byte(files: FileStore) -> None:
    """The reader of a Parquet footer depends on it."""
    files.write("file", [b"second"])

    assert [b"".join(files.read("file", start)) for start in (0, 3)] == [b"second", b"ond"]


def test_an_interrupted_write_changes_nothing(files: FileStore) -> None:
    """The error reaches the caller. At most a file with a temporary name remains."""

    def failing() -> Iterator[bytes]:
        yield b"x" * 3_000_000
        raise Interrupted

    files.write("file", [b"first"])
    for path in ("file", "other"):
        with pytest.raises(Interrupted):
            files.write(path, failing())

    assert {path: content for path, content in listing(files).items() if path[0] != "."} == {"file": b"first"}


def test_one_of_many_callers_creates_a_file(files: FileStore) -> None:
    """The others change nothing and leave nothing behind, at the same time or later."""
    contents = [bytes([number]) * 1000 for number in range(8)]
    start = threading.Barrier(len(contents))

    def create(content: bytes) -> bool:
        start.wait()
        return files.create("owners/1", content)

    with ThreadPoolExecutor(len(contents)) as pool:
        created = list(pool.map(create, contents))
    again = files.create("owners/1", b"later")

    assert (sum(created), again) == (1, False)
    assert listing(files) == {"owners/1": contents[created.index(True)]}


def test_a_replaced_file_has_another_tag(files: FileStore) -> None:
    """The new file may have the same size. Other files keep their tags, and subfolders and missing folders have none."""
    files.write("a/changed", [b"first"])
    files.write("a/kept", [b"first"])
    files.write("a/below/file", [b"first"])
    before = files.tags("a")
    files.write("a/changed", [b"other"])
    after = files.tags("a")

    assert before.keys() == after.keys() == {"changed", "kept"}
    assert (before["changed"] == after["changed"], before["kept"] == after["kept"]) == (False, True)
    assert files.tags("no/such/folder") == {}


def test_a_missing_file_differs_from_an_unreachable_store(files: FileStore) -> None:
    """A missing folder is empty, and deleting a missing file succeeds."""
    files.write("file", [b"x"])
    for path in ("file", "file", "no/such/file"):
        files.delete(path)
    with pytest.raises(FileMissing, match="file"):
        next(files.read("file"))

    assert files.list_folder("no/such/folder") == {}
    assert files.list_folder("") == {}


def test_an_unreachable_store_is_named(tmp_path: Path) -> None:
    """Each call reports which file it could not handle, and that earlier files are intact."""
    (tmp_path / "file").write_text("a file where the folder should be")
    for files in (
        LocalFileStore(tmp_path / "file"),
        open_file_store("hdfs://127.0.0.1:1/backups", "http://127.0.0.1:1"),
    ):
        calls: list[Callable[[], Any]] = [
            partial(files.write, "a/b", [b"x"]),
            partial(files.create, "a/b", b"x"),
            partial(lambda files: list(files.read("a/b")), files),
        ]
        for call in calls:
            with pytest.raises(FileStoreUnreachable, match=r"a/b was not .*Files stored earlier are intact"):
                call()


def test_a_service_that_hangs_costs_one_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service accepts the connection and never answers."""
    monkeypatch.setattr("penstock.state.files.hdfs_files.ANSWER_LIMIT_S", 0.2)
    begun_s = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        files = open_file_store("hdfs://namenode/backups", f"http://127.0.0.1:{deaf.getsockname()[1]}")
        for call in (
            partial(files.list_folder, ""),
            partial(files.write, "file", [b"x"]),
            partial(files.delete, "file"),
        ):
            with pytest.raises(FileStoreUnreachable, match="Timeout"):
                call()

    assert time.monotonic() - begun_s < 5


class _Greeter(BaseHTTPRequestHandler):
    """A web server that is not HDFS."""

    def _greet(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>Welcome</html>")

    do_GET = do_PUT = do_DELETE = _greet  # noqa: N815 - the names that the base class calls


def test_the_address_of_another_service_is_named() -> None:
    """The store reports an error with the address for answers that HDFS would not send."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Greeter) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        files = open_file_store("hdfs://namenode/backups", address)
        for call in (
            partial(files.list_folder, ""),
            partial(files.write, "file", [b"x"]),
            partial(files.create, "f", b"x"),
        ):
            with pytest.raises(FileStoreUnreachable, match=address):
                call()
        server.shutdown()


@pytest.mark.parametrize("location", ["s3://bucket/backups", "hdfs://host:8020", "hdfs:///path"])
def test_an_unsupported_location_is_refused(location: str) -> None:
    """The store refuses it before any request, with an example of a supported location."""
    with pytest.raises(BadStoreAddress, match="hdfs://host:port/path"):
        open_file_store(location)
