"""One command runs a server in this process, or deploys it: its options, its ports, and the name of a table's servers."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from support.deployed import version_of
from typer.testing import CliRunner

from penstock.ops.deploy import DeployedServer, DeploymentFiles, servers_named
from penstock.ops.deploy.registry import DesiredState
from penstock.ops.serve.commands import server_addresses
from penstock.ops.serve.commands.server_addresses import MachineAddresses
from penstock.ops.shell.command_line.main import app
from penstock.ops.shell.options.options import TlsOptions
from penstock.processors.apps import Contents


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("laser tops --replicas 2", "--replicas is for deployed servers. Nothing was started. Add --deploy"),
        ("laser tops --dry-run", "--dry-run is for deployed servers"),
        ("scuba views --image registry/app:1", "--image is for deployed servers"),
        ("laser tops --deploy --number 1", "--number is for a server in this process, so it excludes --deploy."),
        ("scuba views --deploy --file rows", "--file is for a server in this process, so it excludes --deploy."),
    ],
)
def test_an_option_without_effect_is_refused(words: str, message: str) -> None:
    """A user who names it expects an effect. It is refused before anything is read."""
    done = CliRunner().invoke(app, ["serve", *words.split()], env={"TERMINAL_WIDTH": "300", "COLUMNS": "300"})

    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())


def test_later_servers_continue_the_named_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheme without a named port has the first free one, which no other server has."""
    monkeypatch.setattr(server_addresses, "_is_free", lambda _host, port: port != 8780)
    addresses = MachineAddresses(tmp_path, "127.0.0.1", {"redis": 9000, "http": 0})
    ports = [
        addresses.of(f"laser.tops.{number}", {"redis": 8720, "http": 8780}, TlsOptions()).ports for number in (1, 2)
    ]

    assert ports == [{"redis": 9000, "http": 8781}, {"redis": 9001, "http": 8782}]


def test_the_servers_of_a_table_share_a_name(tmp_path: Path) -> None:
    """The name also finds a stopped one, and no server of another table."""
    for name, group, workers in (
        ("laser.a.1", "laser.a", (1,)),
        ("laser.a.2", "laser.a", ()),
        ("laser.a.b.1", "laser.a.b", ()),
    ):
        server = DeployedServer(("serve", "laser"), (), (), has_worker=True, replica_of=group)
        files = DeploymentFiles(tmp_path, name)
        files.add_version(replace(version_of(tmp_path, 1, name=name), server=server), Contents({}))
        files.save_desired_state(DesiredState(1, workers))

    assert servers_named(tmp_path, "laser.a") == ["laser.a.1", "laser.a.2"]
