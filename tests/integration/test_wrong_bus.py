"""State beside a Kafka that it does not belong to: `penstock run` refuses, and changes neither."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.cli import Cli
from support.meters import readings

from penstock.transport.kafka import KafkaBus

REMOTE = """
import penstock
from app import Hours as Local

class Hours(Local):
    name, writes = Local.name + ".remote", ()
    store = penstock.RemoteStore(penstock.WriteMode.APPEND)
"""


@pytest.fixture
def recreated(cli: Cli, app: Path, prefix: str) -> Callable[[], None]:
    """Send hourly readings. The returned function deletes their category and recreates it with fewer of them."""
    app.write_text(app.read_text().replace("reads, writes = large, hours", "reads, writes = readings, hours"))

    def recreate() -> None:
        cli.ok("category", "delete", f"{prefix}.readings", "--yes")
        cli.ok("category", "create", str(app))
        cli.ok("category", "send", f"{prefix}.readings", "--app", str(app), stdin=readings(100))

    cli.ok("category", "create", str(app))
    cli.ok("category", "send", f"{prefix}.readings", "--app", str(app), stdin=readings(1000))
    return recreate


def expect_refused(cli: Cli, processor: str, **environment: str) -> None:
    """Run the worker: it ends with an error that gives the consequences and the remedy."""
    done = cli("run", processor, "--until-end", **environment)
    errors = " ".join(done.stderr.split())
    assert done.returncode == 1, errors
    assert "Traceback" not in errors
    for words in ("deleted and created again", "--to earliest", "--dir", "rename the processor"):
        assert words in errors


def test_local_state_of_a_recreated_category_is_refused(
    cli: Cli, app: Path, prefix: str, kafka_bus: KafkaBus, recreated: Callable[[], None]
) -> None:
    """The state is unchanged, nothing is written, and the group commits nothing."""
    processor = f"{prefix}.hours"
    cli.ok("run", f"{app}:Hours", "--until-end")
    recreated()

    def look() -> tuple[list[Any], object, object]:
        shards = json.loads(cli.ok("state", "show", processor, "--json"))
        kept = [(shard["bucket"], shard["local"]["position"], shard["local"]["keys"]) for shard in shards]
        written = kafka_bus.catalog.describe(f"{prefix}.hours").ends
        return kept, written, kafka_bus.catalog.committed(processor, f"{prefix}.readings")

    before = look()
    expect_refused(cli, f"{app}:Hours")

    assert before[0]
    assert look() == before


@pytest.mark.parametrize("store", ["postgres", "redis_server"])
def test_remote_state_of_a_recreated_category_is_refused(
    store: str, cli: Cli, app: Path, recreated: Callable[[], None], request: pytest.FixtureRequest
) -> None:
    """Queries of the store return the same results."""
    url = request.getfixturevalue(store).url
    remote = app.with_name("remote.py")
    remote.write_text(f"import sys; sys.path.insert(0, {str(app.parent)!r})\n" + REMOTE)

    def ask() -> list[str]:
        asked = cli("query", f"{remote}:Hours", "--limit", "10000", "--json", PENSTOCK_STORE=url)
        assert asked.returncode == 0, asked.stderr
        return sorted(json.dumps(json.loads(line), sort_keys=True) for line in asked.stdout.splitlines())

    done = cli("run", f"{remote}:Hours", "--until-end", PENSTOCK_STORE=url)
    assert done.returncode == 0, done.stderr
    recreated()
    before = ask()
    expect_refused(cli, f"{remote}:Hours", PENSTOCK_STORE=url)

    assert ask() == before
