"""The option `--standby`."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from penstock.ops.deploy import DeploymentSettings, Version, run_arguments
from penstock.ops.deploy.version import VersionShape
from penstock.ops.shell import expect_backups


def test_a_standby_needs_backups() -> None:
    """Nothing else contains the states of other machines."""
    expect_backups("backups", standby=True)
    expect_backups(None, standby=False)
    with pytest.raises(typer.BadParameter, match="--backup LOCATION"):
        expect_backups(None, standby=True)


@pytest.mark.parametrize("standby", [True, False])
def test_deployed_workers_get_the_option(tmp_path: Path, standby: bool) -> None:
    """Only the version that was deployed with it gets it."""
    settings = DeploymentSettings("kafka:9092", str(tmp_path), str(tmp_path), standby=standby)
    version = Version(1, "totals", "app.py", "app.py", "Totals", "digest", settings, VersionShape("", {}), 0, "ann")

    assert ("--standby" in run_arguments(version, tmp_path, "8080")) == standby
