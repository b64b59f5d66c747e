"""The warehouse on a real HDFS: archived over WebHDFS, read and written by Spark over RPC."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hdfs import InsecureClient
from support.cli import Cli
from support.exactness import large_readings
from support.meters import readings

from penstock.backfill.warehouse import DAY_MS
from penstock.ops.start.dev_services.services import running_hdfs


@pytest.fixture
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The addresses of this test's own NameNode and DataNode."""
    with running_hdfs(tmp_path_factory.mktemp("hdfs")) as endpoints:
        yield endpoints


@pytest.mark.exhaustive
def test_stream_and_batch_agree_on_hdfs(cli: Cli, app: Path, prefix: str, hdfs: dict[str, str]) -> None:
    """All three kinds agree. A second archive run and a second backfill duplicate nothing."""
    where = ["--warehouse", f"{hdfs['rpc']}/warehouse", "--webhdfs", hdfs["webhdfs"]]
    batch = ["--from", "1970-01-01", "--to", "1970-01-02", "--output", f"{hdfs['rpc']}/batch", *where]
    cli.ok("category", "create", str(app))
    for start in (0, 144):
        cli.ok("category", "send", f"{prefix}.readings", "--app", str(app), stdin=readings(144, start=start))
        cli.ok("run", str(app), "--until-end")
        cli.ok("archive", "run", str(app), "--until-end", *where)
    cli.ok("backfill", str(app), *batch)
    refused = cli("backfill", str(app), *batch)
    cli.ok("backfill", f"{app}:Large", *batch, "--overwrite")
    compared = json.loads(cli.ok("compare", str(app), *batch, "--json"))
    explained = json.loads(cli.ok("compare", f"{app}:Hours", *batch, "--explain", "m3", "--json"))
    both = cli.ok("query", f"{app}:Hours", "--hybrid", *batch, "--batch-until", "1970-01-01", "--key", "m3", "--json")

    days = InsecureClient(hdfs["webhdfs"]).list(f"/warehouse/category={prefix}.readings")
    kept = len(large_readings(288))
    assert sorted(day for day in days if day.startswith("ds=")) == [f"ds=1970-01-0{day}" for day in (1, 2)]
    assert refused.returncode == 1
    assert "already" in refused.stderr
    assert {found["category"]: found["agrees"] for found in compared} == {
        f"{prefix}.{name}": True for name in ("large", "totals", "hours")
    }
    assert [found["equal"] for found in compared][:2] == [kept, kept]
    results = [json.loads(line) for line in both.splitlines()]
    assert {output["kind"] for output in explained["outputs"]} == {"equal"}
    assert [result["record"] for result in results] == [output["batch"] for output in explained["outputs"]]
    assert {(result["event_time"] // DAY_MS, result["from"]) for result in results} == {(0, "batch"), (1, "live")}
