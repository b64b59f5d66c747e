"""Stores and registries behind clients of other projects: no answer is waited for without end, and no other page counts as an answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from support.slow_server import dripping

from penstock.state import FileStoreUnreachable
from penstock.state.files import hdfs_files, open_file_store
from penstock.transport.codecs import AVRO, RegistryClient, RegistryUnreachable, SchemaRegistry, registry

HEADERS = b"HTTP/1.1 200 OK\r\nX: "
BODY = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n"
CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the time limits."""
    monkeypatch.setattr(hdfs_files, "ANSWER_LIMIT_S", 0.5)
    monkeypatch.setattr(registry, "ANSWER_LIMIT_S", 0.5)


@pytest.mark.usefixtures("limits")
@pytest.mark.parametrize(
    ("begin", "repeated"), [(HEADERS, b"a"), (BODY, b"a"), (CHUNKS, b"1\r\na\r\n")], ids=["headers", "body", "chunks"]
)
def test_an_answer_of_webhdfs_that_arrives_too_slowly_is_none(begin: bytes, repeated: bytes) -> None:
    """Each operation has the limit, even if bytes keep arriving. The caller retries or reports it."""
    with dripping(begin, repeated) as url:
        files = open_file_store("hdfs://127.0.0.1:8020/backups", url)
        for operation in (
            lambda: files.list_folder("a"),
            lambda: files.delete("a"),
            lambda: files.write("a", [b"one"]),
            lambda: list(files.read("a")),
        ):
            with pytest.raises(FileStoreUnreachable, match=r"within 0\.5 s|[Rr]ead timed out"):
                operation()


@pytest.mark.usefixtures("limits")
@pytest.mark.parametrize(("begin", "repeated"), [(HEADERS, b"a"), (BODY, b"a")], ids=["headers", "body"])
def test_an_answer_of_a_registry_that_arrives_too_slowly_is_none(begin: bytes, repeated: bytes) -> None:
    """Bytes may keep arriving."""
    with (
        dripping(begin, repeated) as url,
        pytest.raises(RegistryUnreachable, match=r"no complete answer within 0\.5 s.*no event is lost"),
    ):
        RegistryClient(SchemaRegistry(url), AVRO).find(7)


@contextmanager
def redirecting(status: int) -> Iterator[tuple[str, list[str]]]:
    """Redirect each request to a login page, which answers with 200; yield the address, and the requests."""
    requests: list[str] = []

    def answer(client: socket.socket) -> None:
        with suppress(OSError), client:
            begin = client.recv(1 << 16).split(b" ")
            requests.append(b" ".join(begin[:2]).decode())
            head = b"200 OK" if begin[1] == b"/login" else b"%d Elsewhere\r\nLocation: /login?secret" % status
            client.sendall(b"HTTP/1.1 %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % head)

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                answer(listener.accept()[0])

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", requests


@pytest.mark.parametrize("status", [301, 302, 303, 308])
def test_a_login_page_stores_no_file(status: int) -> None:
    """A client that follows its redirect takes its 200 for a renamed file."""
    with redirecting(status) as (url, requests):
        files = open_file_store("hdfs://127.0.0.1:8020/backups", url)
        for operation in (lambda: files.write("a", [b"one"]), lambda: files.delete("a"), lambda: list(files.read("a"))):
            with pytest.raises(
                FileStoreUnreachable, match=rf"status {status}, a redirect to {url}, which is not followed"
            ):
                operation()

    assert not [request for request in requests if "login" in request]
