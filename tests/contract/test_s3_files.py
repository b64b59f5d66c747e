"""Files in a bucket of S3, on a real server of its protocol: `moto`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import penstock as ps
from penstock.backfill.outputs.parquet_sink import ParquetWriter
from penstock.backfill.warehouse import RecordColumns
from penstock.ops.shell import free_port
from penstock.processors import CallRetry
from penstock.state import BadStoreAddress, FileStoreRefuses, FileStoreUnreachable
from penstock.state.files import S3Files

LEAST = ps.Semantics.AT_LEAST_ONCE
Wait = Callable[[Callable[[], bool]], None]


class Total(ps.Record, frozen=True):
    """A row."""

    user: str
    clicks: int


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_until: Wait) -> Iterator[fs.S3FileSystem]:
    """A client of a server with an empty bucket `lake`; the environment has its address and keys."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    for name, value in {**keys, "AWS_ENDPOINT_URL": address, "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with (tmp_path / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
        try:
            client = fs.S3FileSystem(endpoint_override=address, region="us-east-1", allow_bucket_creation=True)
            wait_until(lambda: _answers(client))
            yield client
        finally:
            server.kill()


def _answers(client: fs.S3FileSystem) -> bool:
    try:
        client.create_dir("lake")
    except OSError as error:
        if "NETWORK_CONNECTION" not in str(error):
            raise
        return False
    return True


def batch(*rows: Any, first: int = 0) -> ps.sinks.SinkBatch:
    """Return a batch of a processor."""
    return ps.sinks.SinkBatch("counter", 0, {"clicks": first}, rows, "", LEAST)


@pytest.mark.usefixtures("bucket")
def test_objects_are_replaced_listed_and_deleted() -> None:
    """The store works like other stores. A missing folder is empty, and a missing object may be deleted."""
    files = S3Files("s3://lake/deep/rows")
    assert files.list_folder("") == {}
    files.write("clicks/00000/a", [b"abc"])
    files.write("clicks/00000/a", [b"ab", b"cd"])
    files.write("clicks/00001/a", [b"x" * 20_000_000])
    assert files.list_folder("clicks") == {"00000": None, "00001": None}
    assert files.list_folder("clicks/00000") == {"a": 4}
    assert files.list_folder("clicks/00001") == {"a": 20_000_000}
    for _ in range(2):
        files.delete("clicks/00000/a")

    assert files.list_folder("clicks/00000") == {}


def test_rows_of_an_interrupted_checkpoint_are_replaced(bucket: fs.S3FileSystem) -> None:
    """The next worker replaces them in a bucket as in a folder."""
    declared = ps.sinks.ParquetSink("s3://lake/rows", Total)
    for rows in ([Total("ann", 1)], [Total("bob", 2), Total("cid", 3)]):
        writer = declared.open()
        writer.claim("counter", 0)
        writer.write(batch(*rows))
    writer.write(batch(Total("dan", 4), first=2))

    assert pq.read_table("lake/rows", filesystem=bucket, partitioning=None).sort_by("clicks").to_pydict() == {
        "user": ["bob", "cid", "dan"],
        "clicks": [2, 3, 4],
    }
    assert set(declared.variables) >= {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"}


@pytest.mark.usefixtures("bucket")
def test_a_missing_bucket_is_refused_at_once() -> None:
    """Waiting would not help."""
    writer = ps.sinks.ParquetSink("s3://missing/rows", Total).open()
    with pytest.raises(FileStoreRefuses, match="NO_SUCH_BUCKET"):
        S3Files("s3://missing/rows").write("a", [b"a"])

    with pytest.raises(
        ps.sinks.SinkRefused, match=r"Parquet files in s3://missing/rows cannot be written.*NO_SUCH_BUCKET"
    ):
        writer.claim("counter", 0)


def test_a_server_that_does_not_answer_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker returns to its last checkpoint."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(FileStoreUnreachable, match=r"s3://lake/rows/a was not written"):
        S3Files("s3://lake/rows").write("a", [b"a"])
    writer = ParquetWriter(S3Files("s3://lake/rows"), RecordColumns(Total), "files", CallRetry(0.0))
    with pytest.raises(ps.sinks.SinkUnreachable, match="nothing is lost"):
        writer.claim("counter", 0)


@pytest.mark.parametrize("location", ["s3://lake", "s3://", "s3:///rows", "s3://key:secret@lake/rows"])
def test_an_incomplete_location_is_refused(location: str) -> None:
    """Keys belong in the environment, and no message contains them."""
    with pytest.raises(BadStoreAddress, match="s3://bucket/path") as refused:
        S3Files(location)

    assert "secret" not in str(refused.value)
