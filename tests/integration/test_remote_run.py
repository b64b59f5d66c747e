"""`penstock run` and `penstock query` with state in a real PostgreSQL and a real Redis."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from support.batches import write_batch
from support.cli import Cli
from support.databases import PASSWORD, Redis
from support.meters import HOUR, readings

from penstock.processors.apps import AppName
from penstock.processors.declare import plan_of

REMOTE = '''
import penstock
from local_hours import Hours as Local, readings

class Hours(Local):
    """Litres by meter and hour, in the store."""
    name = Local.name + ".remote"
    reads, writes = readings, {writes}
    store = penstock.RemoteStore(penstock.WriteMode.{writing})
'''


def truth(count: int) -> dict[tuple[str, int], int]:
    """Compute the litres per meter and hour independently."""
    litres: Counter[tuple[str, int]] = Counter()
    for n in range(count):
        litres[f"m{n % 7}", n // 6 * HOUR] += n % 25
    return dict(litres)


@pytest.fixture(params=["postgres", "redis_server"])
def store(request: pytest.FixtureRequest) -> str:
    """The address of each kind of store."""
    url: str = request.getfixturevalue(request.param).url
    return url


@pytest.fixture
def remote_app(app: Path) -> Path:
    """An app whose aggregator appends partials to a remote store."""
    return remote(app, writing="APPEND", writes="()")


def remote(app: Path, **declared: str) -> Path:
    """Write an app whose aggregator keeps its state in a remote store."""
    path = app.with_name("remote.py")
    app.with_name("local_hours.py").write_text(
        app.read_text()
    )  # an earlier test may have imported another `app` in this process
    text = REMOTE
    for name, value in declared.items():
        text = text.replace(f"{{{name}}}", value)
    path.write_text(f"import sys; sys.path.insert(0, {str(app.parent)!r})\n" + text)
    return path


def test_aggregates_can_be_queried(cli: Cli, app: Path, remote_app: Path, prefix: str, store: str) -> None:
    """Queries of all keys, one key, and one key and window return the expected results; the password appears nowhere."""
    cli.ok("category", "create", str(app))
    for start in (0, 1000):
        cli.ok("category", "send", f"{prefix}.readings", "--app", str(app), stdin=readings(1000, start=start))
        done = cli("run", f"{remote_app}:Hours", "--until-end", PENSTOCK_STORE=store)
        assert done.returncode == 0, done.stderr
        assert PASSWORD not in done.stderr + done.stdout

    def ask(*options: str) -> dict[tuple[str, int], int]:
        asked = cli("query", f"{remote_app}:Hours", "--limit", "10000", "--json", *options, PENSTOCK_STORE=store)
        assert asked.returncode == 0, asked.stderr
        rows = map(json.loads, asked.stdout.splitlines())
        return {(row["key"], row["start"]): row["value"] for row in rows}

    expected = truth(2000)
    assert ask() == expected
    assert ask("--key", "m3") == {slot: litres for slot, litres in expected.items() if slot[0] == "m3"}
    assert ask("--key", "m3", "--at", "1970-01-01T05:30") == {("m3", 5 * HOUR): expected["m3", 5 * HOUR]}
    assert ask("--key", "unknown") == {}


def test_a_query_combines_batch_days_with_the_store(cli: Cli, app: Path, prefix: str, redis_server: Redis) -> None:
    """Complete days come from the batch run, here with different numbers; the rest comes from the store, as records."""
    path = remote(app, writing="READ_MERGE_WRITE", writes="Local.writes")
    cli.ok("category", "create", str(app))
    cli.ok("category", "send", f"{prefix}.readings", "--app", str(app), stdin=readings(200))
    ran = cli("run", f"{path}:Hours", "--until-end", PENSTOCK_STORE=redis_server.url)
    assert ran.returncode == 0, ran.stderr
    hours = plan_of(AppName(path, "Hours").load().processors[0]).outputs[0]
    write_batch(cli.folder / "batch", hours, [hours.record("m3", 0, -1), hours.record("m3", 24 * HOUR, -1)])
    asked = [
        "--hybrid",
        "--from",
        "1970-01-01",
        "--to",
        "1970-01-02",
        "--batch-until",
        "1970-01-01",
        "--output",
        "batch",
    ]
    done = cli("query", f"{path}:Hours", *asked, "--key", "m3", "--json", PENSTOCK_STORE=redis_server.url)
    assert done.returncode == 0, done.stderr

    of_store = {hour: litres for (meter, hour), litres in truth(200).items() if meter == "m3" and hour >= 24 * HOUR}
    first, *rest = map(json.loads, done.stdout.splitlines())
    assert (first["record"]["litres"], first["from"]) == (-1, "batch")
    assert {found["event_time"]: found["record"]["litres"] for found in rest} == of_store
    assert {found["from"] for found in rest} == {"live"}


def test_a_worker_continues_a_store_that_was_filled_from_the_archive(
    cli: Cli, app: Path, remote_app: Path, prefix: str, redis_server: Redis
) -> None:
    """The worker reads events behind the archive; days are not replaced by results that lack events counted since."""
    cli.ok("category", "create", str(app))
    cli.ok("category", "send", f"{prefix}.readings", "--app", str(app), stdin=readings(400))
    cli.ok("archive", "run", str(remote_app), "--until-end")
    target, store = f"{remote_app}:Hours", {"PENSTOCK_STORE": redis_server.url}
    filled = cli("bootstrap", target, **store)
    assert (filled.returncode, "400 events" in filled.stderr) == (0, True), filled.stderr
    cli.ok("category", "send", f"{prefix}.readings", "--app", str(app), stdin=readings(100, start=400))
    assert cli("run", target, "--until-end", **store).returncode == 0
    behind = cli("backfill", target, "--from", "1970-01-01", "--to", "1970-01-02", "--output", "store", **store)
    assert (behind.returncode, "is archived up to" in behind.stderr) == (1, True), behind.stderr

    asked = cli("query", target, "--limit", "10000", "--json", **store)
    assert {(r["key"], r["start"]): r["value"] for r in map(json.loads, asked.stdout.splitlines())} == truth(500)


def test_a_missing_store_address_is_reported_before_events_are_read(cli: Cli, app: Path, remote_app: Path) -> None:
    """The worker reads nothing without an address for its state."""
    cli.ok("category", "create", str(app))
    done = cli("run", f"{remote_app}:Hours", "--until-end")

    assert done.returncode == 1
    assert "--store" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_password_ends_the_worker_and_is_not_shown(
    cli: Cli, app: Path, remote_app: Path, prefix: str, postgres: object
) -> None:
    """The error names the store and the reason; nothing was read."""
    url = str(getattr(postgres, "url", "")).replace(PASSWORD, "not-the-password")
    cli.ok("category", "create", str(app))
    cli.ok("category", "send", f"{prefix}.readings", "--app", str(app), stdin=readings(10))
    done = cli("run", f"{remote_app}:Hours", "--until-end", PENSTOCK_STORE=url)

    assert done.returncode == 1
    assert "password" in done.stderr
    assert "not-the-password" not in done.stderr
    assert "Traceback" not in done.stderr
