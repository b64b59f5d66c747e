"""HDFS with delegation tokens and TLS: a small WebHDFS server refuses requests without the valid token."""

from __future__ import annotations

import json
import logging
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, urlsplit

import pytest
from support.secured_kafka import certificate

from penstock.ops.shell import TomlFile
from penstock.ops.shell.config.configuration import Configuration
from penstock.ops.shell.config.errors import ConfigRefused
from penstock.ops.shell.config.hdfs import HdfsSection, set_variables
from penstock.state import FileStoreRefuses, FileStoreUnreachable
from penstock.state.files import CA, REFUSAL, TOKEN, TOKEN_FILE, open_file_store
from penstock.state.files.hdfs_files import HdfsFileStore

SECRET = "HAAEcGVubgRwZW5uAIoBgeheim"  # noqa: S105 - a token of a test


class WebHdfs(ThreadingHTTPServer):
    """Keeps files in memory, and answers only requests with its token."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.accepted = SECRET
        self.scheme = "http"
        self.files: dict[str, bytes] = {}
        self.users: list[str] = []
        self.denies = False
        self.data_node = ""

    @property
    def address(self) -> str:
        """The value of `--webhdfs`."""
        return f"{self.scheme}://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: WebHdfs

    def do_PUT(self) -> None:
        path, query = self._asked()
        body = self._body()
        if not self._is_known(query):
            return
        if query["op"] == "CREATE" and "step" not in query:
            self.send_response(307)
            self.send_header("Location", f"{self.server.data_node or self.server.address}{self.path}&step=2")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif query["op"] == "CREATE":
            self.server.files[path] = body
            self._answer(201, {})
        else:
            self.server.files[query["destination"]] = self.server.files.pop(path)
            self._answer(200, {"boolean": True})

    def do_GET(self) -> None:
        path, query = self._asked()
        if self._is_known(query):
            self._answer(200, self.server.files[path])

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _asked(self) -> tuple[str, dict[str, str]]:
        url = urlsplit(self.path)
        return url.path.removeprefix("/webhdfs/v1"), {name: values[0] for name, values in parse_qs(url.query).items()}

    def _is_known(self, query: dict[str, str]) -> bool:
        self.server.users.append(query.get("user.name", ""))
        if self.server.denies:
            message = "Permission denied: user=penstock, access=WRITE"
            self._answer(403, {"RemoteException": {"exception": "AccessControlException", "message": message}})
            return False
        if query.get("delegation") == self.server.accepted:
            return True
        message = "Token is expired" if "delegation" in query else "Authentication required"
        self._answer(403, {"RemoteException": {"exception": "InvalidToken", "message": message}})
        return False

    def _answer(self, status: int, content: object) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Log nothing."""


@contextmanager
def web_hdfs(tls: ssl.SSLContext | None = None) -> Iterator[WebHdfs]:
    """Run a server in the block."""
    with WebHdfs() as server:
        if tls is not None:
            server.socket, server.scheme = tls.wrap_socket(server.socket, server_side=True), "https"
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def configure(tmp_path: Path, table: str) -> None:
    """Write a configuration with a table for HDFS, and set its variables."""
    path = tmp_path / "penstock.toml"
    path.write_text(f"[hdfs]\n{table}\n")
    set_variables(Configuration(TomlFile.read(path), {}, {"hdfs": HdfsSection}))


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the variables before the test and after it."""
    for name in (TOKEN, TOKEN_FILE, CA, REFUSAL, "HDFS_TOKEN"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def test_a_token_from_a_file_opens_hdfs_over_tls(tmp_path: Path) -> None:
    """Only the configured certificates are trusted. A renewed token is used at once."""
    authority = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority, tmp_path / "key.pem")
    file = tmp_path / "token"
    file.write_text(f"{SECRET}\n")
    with web_hdfs(context) as server:
        store = HdfsFileStore("hdfs://127.0.0.1:8020/backups", server.address)
        configure(tmp_path, f'auth = "token"\ntoken-file = "{file}"')
        with pytest.raises(FileStoreUnreachable, match="SSLError"):
            store.write("a", [b"one"])
        configure(tmp_path, f'auth = "token"\ntoken-file = "{file}"\nca = "{authority}"')
        store.write("a", [b"one", b"two"])
        server.accepted = "renewed"
        with pytest.raises(
            FileStoreUnreachable, match=r"InvalidToken|Token is expired.*the token, which may have expired"
        ):
            store.write("a", [b"three"])
        file.write_text("renewed")

        assert b"".join(store.read("a")) == b"onetwo"
        assert set(server.users) == {""}


def test_tokens_are_in_no_error_and_no_log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of an answer, the error of a failed connection and the log of the HTTP library omit it."""
    monkeypatch.setenv(TOKEN, SECRET)
    caplog.set_level(logging.DEBUG, "urllib3.connectionpool")
    with web_hdfs() as server:
        store = HdfsFileStore("hdfs://127.0.0.1:8020/backups", server.address)
        store.write("a", [b"one"])
        server.accepted = "other"
        with pytest.raises(FileStoreUnreachable) as refused:
            store.write("a", [b"one"])
        encrypted = HdfsFileStore("hdfs://127.0.0.1:8020/backups", server.address.replace("http:", "https:"))
        with pytest.raises(FileStoreUnreachable) as failed:
            encrypted.write("a", [b"one"])
    with pytest.raises(FileStoreUnreachable) as unreachable:
        store.write("a", [b"one"])
    errors = [refused.value, failed.value, unreachable.value]
    causes = [cause for error in errors for cause in (error, error.__cause__) if cause is not None]

    assert "delegation=…" in caplog.text
    assert SECRET not in caplog.text
    assert not [cause for cause in causes if SECRET in str(cause)]
    assert "delegation=…" in str(failed.value)
    assert failed.value.__suppress_context__
    assert unreachable.value.__suppress_context__


@pytest.mark.parametrize("variables", [{"SPARK_USER": "ann"}, {"HADOOP_USER_NAME": "ann", "SPARK_USER": "bob"}])
def test_without_a_token_the_user_is_named(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    """An executor names the driver's user, who owns the folder of the output. A secured cluster refuses the user."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with web_hdfs() as server, pytest.raises(FileStoreUnreachable, match="Authentication required"):
        HdfsFileStore("hdfs://127.0.0.1:8020/backups", server.address).write("a", [b"one"])

    assert set(server.users) == {"ann"}


@pytest.mark.parametrize(
    ("webhdfs", "words"),
    [
        (
            "http://penstock-test.invalid:9870",
            r"^/backups/a was not written: the host name penstock-test\.invalid cannot be resolved \(.+\)\. .*Make the name known to this machine, or correct the WebHDFS address, http://penstock-test\.invalid:9870 \(--webhdfs",
        ),
        (
            "http://127.0.0.1:1",
            r"^/backups/a was not written: nothing listens at 127\.0\.0\.1:1\. .*Start the NameNode",
        ),
    ],
)
def test_a_server_that_is_not_reached_is_named(monkeypatch: pytest.MonkeyPatch, webhdfs: str, words: str) -> None:
    """With what is known, and without the objects of the HTTP library; the token is in no part of the error."""
    monkeypatch.setenv(TOKEN, SECRET)
    with pytest.raises(FileStoreUnreachable, match=words) as caught:
        HdfsFileStore("hdfs://127.0.0.1:8020/backups", webhdfs).write("a", [b"one"])

    assert "Pool" not in str(caught.value)
    assert SECRET not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_data_node_that_is_not_reached_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The NameNode answers, so its address is right."""
    monkeypatch.setenv(TOKEN, SECRET)
    nowhere = r"nothing listens at 127\.0\.0\.1:1\. .*It is the DataNode"
    with web_hdfs() as server:
        server.data_node = "http://127.0.0.1:1"
        store = HdfsFileStore("hdfs://127.0.0.1:8020/backups", server.address)
        with pytest.raises(FileStoreUnreachable, match=nowhere):
            store.write("a", [b"one"])


@pytest.mark.parametrize(("content", "words"), [(None, "FileNotFoundError"), ("", "is empty")])
def test_a_file_without_a_token_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, words: str
) -> None:
    """Nothing is sent with another identity."""
    if content is not None:
        (tmp_path / "token").write_text(content)
    monkeypatch.setenv(TOKEN_FILE, str(tmp_path / "token"))

    with pytest.raises(FileStoreUnreachable, match=words):
        HdfsFileStore("hdfs://127.0.0.1:8020/backups", "http://127.0.0.1:1").write("a", [b"one"])


@pytest.mark.parametrize(
    "table",
    [
        'auth = "token"',
        'auth = "token"\ntoken = "${HDFS_TOKEN}"\ntoken-file = "y"',
        'token-file = "y"',
        'token = "${HDFS_TOKEN}"',
    ],
)
def test_incomplete_access_is_refused(tmp_path: Path, table: str) -> None:
    """It is refused before any command starts, also while a variable is not set."""
    with pytest.raises(ConfigRefused, match=r"In \[hdfs\]"):
        configure(tmp_path, table)

    assert TOKEN not in os.environ


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, r"line 3: token in \[hdfs\] needs the environment variable HDFS_TOKEN, which is not set"),
        ("", r"line 1: the token in \[hdfs\] is empty"),
    ],
)
def test_hdfs_is_refused_without_the_variable_of_its_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None, reason: str
) -> None:
    """Only HDFS is refused, before any request with another identity. A child process with the variable opens it."""
    table = 'auth = "token"\ntoken = "${HDFS_TOKEN}"'
    if value is not None:
        monkeypatch.setenv("HDFS_TOKEN", value)
    configure(tmp_path, table)
    with pytest.raises(FileStoreRefuses, match=rf"penstock\.toml, {reason}\..*Nothing was read from HDFS"):
        open_file_store("hdfs://127.0.0.1:8020/backups")
    assert open_file_store(tmp_path).location == str(tmp_path)

    monkeypatch.setenv("HDFS_TOKEN", SECRET)
    configure(tmp_path, table)
    assert open_file_store("hdfs://127.0.0.1:8020/backups").location == "hdfs://127.0.0.1:8020/backups"
    assert os.environ[TOKEN] == SECRET


def test_missing_rights_are_no_outage() -> None:
    """Only a person can grant them, so no request is repeated. An invalid token may be renewed at any time."""
    with web_hdfs() as server:
        store = HdfsFileStore("hdfs://127.0.0.1:8020/backups", server.address)
        with pytest.raises(FileStoreUnreachable) as invalid:
            list(store.read("a"))
        server.denies = True
        with pytest.raises(FileStoreRefuses, match="Permission denied: user=penstock"):
            store.write("a", [b"one"])

    assert not isinstance(invalid.value, FileStoreRefuses)
