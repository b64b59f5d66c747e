"""State beside a bus that is not its own: `penstock run` refuses, and leaves both as they are."""

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
def made_anew(cli: Cli, app: Path, prefix: str) -> Callable[[], None]:
    """Send readings to be added up by the hour. Called, it deletes their category, and creates it again, with fewer of them."""
    app.write_text(app.read_text().replace("reads, writes = large, hours", "reads, writes = readings, hours"))

    def make() -> None:
        cli.ok("category", "delete", f"{prefix}.readings", "--yes")
        cli.ok("category", "create", str(app))
        cli.ok("category", "send", f"{prefix}.readings", "--app", str(app), stdin=readings(100))

    cli.ok("category", "create", str(app))
    cli.ok("category", "send", f"{prefix}.readings", "--app", str(app), stdin=readings(1000))
    return make


def expect_refused(cli: Cli, processor: str, **environment: str) -> None:
    """Run it: it ends with an error that says what it means and what can be done."""
    done = cli("run", processor, "--until-end", **environment)
    said = " ".join(done.stderr.split())
    assert done.returncode == 1, said
    assert "Traceback" not in said
    for words in ("deleted and created again", "--to earliest", "--dir", "rename the processor"):
        assert words in said


def test_local_state_of_a_category_that_was_made_anew_is_refused(
    cli: Cli, app: Path, prefix: str, kafka_bus: KafkaBus, made_anew: Callable[[], None]
) -> None:
    """The state stays as it is, nothing is written, and the group commits nothing."""
    processor = f"{prefix}.hours"
    cli.ok("run", f"{app}:Hours", "--until-end")
    made_anew()

    def look() -> tuple[list[Any], object, object]:
        shards = json.loads(cli.ok("state", "list", processor, "--json"))
        kept = [(shard["bucket"], shard["local"]["position"], shard["local"]["keys"]) for shard in shards]
        written = kafka_bus.catalog.describe(f"{prefix}.hours").ends
        return kept, written, kafka_bus.catalog.committed(processor, f"{prefix}.readings")

    before = look()
    expect_refused(cli, f"{app}:Hours")

    assert before[0]
    assert look() == before


@pytest.mark.parametrize("store", ["postgres", "redis_server"])
def test_remote_state_of_a_category_that_was_made_anew_is_refused(
    store: str, cli: Cli, app: Path, made_anew: Callable[[], None], request: pytest.FixtureRequest
) -> None:
    """What can be asked for in the store stays the same."""
    url = request.getfixturevalue(store).url
    remote = app.with_name("remote.py")
    remote.write_text(f"import sys; sys.path.insert(0, {str(app.parent)!r})\n" + REMOTE)

    def ask() -> list[str]:
        asked = cli("query", f"{remote}:Hours", "--limit", "10000", "--json", PENSTOCK_STORE=url)
        assert asked.returncode == 0, asked.stderr
        return sorted(json.dumps(json.loads(line), sort_keys=True) for line in asked.stdout.splitlines())

    done = cli("run", f"{remote}:Hours", "--until-end", PENSTOCK_STORE=url)
    assert done.returncode == 0, done.stderr
    made_anew()
    before = ask()
    expect_refused(cli, f"{remote}:Hours", PENSTOCK_STORE=url)

    assert ask() == before
