"""The option `--standby`."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from penstock.ops.cli.options import expect_backups
from penstock.ops.deploy.version import DeploymentSettings, Shape, Version
from penstock.ops.deploy.worker_command import run_arguments


def test_a_standby_needs_backups() -> None:
    """Nothing else contains the states of other machines."""
    expect_backups("backups", standby=True)
    expect_backups(None, standby=False)
    with pytest.raises(typer.BadParameter, match="--backup LOCATION"):
        expect_backups(None, standby=True)


@pytest.mark.parametrize("standby", [True, False])
def test_deployed_workers_get_the_option(tmp_path: Path, standby: bool) -> None:
    """Of the version that was deployed with it."""
    settings = DeploymentSettings("kafka:9092", str(tmp_path), str(tmp_path), standby=standby)
    version = Version(1, "totals", "app.py", "app.py", "Totals", "digest", settings, Shape("", {}), 0, "ann")

    assert ("--standby" in run_arguments(version, tmp_path, "8080")) == standby
