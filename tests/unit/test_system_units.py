"""Units of the system: systemd accepts them, rates them as safe, and their commands exist."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.deployed import version_of
from typer.testing import CliRunner

from penstock.ops.deploy import DeployedServer, DeploymentFiles, Version, all_deployments
from penstock.ops.deploy.errors import DeployError
from penstock.ops.deploy.registry import DesiredState
from penstock.ops.deploy.targets.system_units import SYSUSERS_FILE, expect_visible, system_units, unit_prerequisites
from penstock.ops.shell.command_line.main import Penstock
from penstock.ops.shell.command_line.main import app as penstock
from penstock.ops.shell.command_line.root import commands_of
from penstock.processors.apps import Contents

EXPOSURE_LIMIT = 3.0
"""The greatest rating of `systemd-analyze security`, of 10."""
SECURED: dict[str, Any] = {
    "config": "/etc/penstock/100% penstock.toml",
    "variables": ("PENSTOCK_STORE",),
    "backup": "/srv/backups of all",
}
APP = """
import penstock as ps

class Sale(ps.Record, frozen=True):
    shop: str
    amount: int
    at: ps.EventTime

sales = ps.Category("sales", Sale, key="shop", event_time="at", buckets=2)

class Totals(ps.Stateless[Sale, Sale]):
    reads, writes = sales, ps.Category("totals", Sale, key="shop", event_time="at", buckets=2)

    def process(self, event: Sale):
        yield event
"""
needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed, so units are not verified"
)


def version(folder: Path, **settings: Any) -> Version:
    """Return a version of a processor, from an app in a folder."""
    plain = replace(
        version_of(folder, 1, name="small.totals"), app=str(folder / "shop" / "app.py"), app_file="shop/app.py"
    )
    return replace(plain, settings=replace(plain.settings, working_folder=str(folder), **settings))


def server(folder: Path) -> Version:
    """Return a version of a server with a file in the folder of states."""
    plain = version(folder)
    words = ("--file", f"{plain.settings.folder}/state/views/rows.duckdb", "--port", "8790")
    return replace(
        plain,
        name="scuba.views",
        server=DeployedServer(("serve", "scuba", "views", "--app"), words, (), has_worker=False),
    )


def all_units(folder: Path) -> dict[str, str]:
    """Return every kind of unit."""
    return {
        **system_units([version(folder, **SECURED), replace(version(folder), name="large")]),
        **system_units([server(folder)]),
    }


def commands(units: dict[str, str]) -> dict[str, list[str]]:
    """Return the commands of units, by file."""
    return {
        name: shlex.split(re.findall("^ExecStart=(.*)$", text, re.MULTILINE)[0])
        for name, text in units.items()
        if name != SYSUSERS_FILE
    }


def analyzed(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Return the result of `systemd-analyze`; skip the test where it does not work."""
    done = subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False, timeout=240)
    if "Unknown" in done.stderr or ("Failed to" in done.stderr and "manager" in done.stderr):
        pytest.skip(f"systemd-analyze does not work here: {done.stderr}")
    return done


@needs_systemd
def test_systemd_knows_all_settings_of_the_units(tmp_path: Path) -> None:
    """It reports no warning, also for folders of any name."""
    folder = tmp_path / "with a space, 100% and $HOME"
    folder.mkdir()
    for name, text in all_units(folder).items():
        (tmp_path / name).write_text(text)
    checked = analyzed("verify", *(str(path) for path in tmp_path.glob("*.service")))

    assert checked.stderr.splitlines() == []


@needs_systemd
def test_systemd_rates_the_units_as_safe(tmp_path: Path) -> None:
    """Every unit is below the limit."""
    for name, text in all_units(tmp_path).items():
        if name == SYSUSERS_FILE:
            continue
        unit = tmp_path / name.replace("@", "@0")
        unit.write_text(text)
        rated = analyzed(
            "security", "--offline=true", f"--threshold={EXPOSURE_LIMIT * 10:.0f}", "--no-pager", str(unit)
        )

        assert rated.returncode == 0, rated.stdout.splitlines()[-1]


def test_units_cover_an_app_and_what_watches_it(tmp_path: Path) -> None:
    """A server has its own units."""
    assert set(system_units([version(tmp_path)])) == {
        SYSUSERS_FILE,
        "penstock-small.totals@.service",
        "penstock-alerts.service",
        "penstock-metrics.service",
        "penstock-dashboard.service",
    }
    assert set(system_units([server(tmp_path)])) == {SYSUSERS_FILE, "penstock-scuba.views.service"}


def test_commands_of_units_exist_and_write_to_the_folder_of_states_only(tmp_path: Path) -> None:
    """Each of their options exists, too. The app stays at its place."""
    known = dict(commands_of(Penstock()))
    found = commands(all_units(tmp_path))
    for command in found.values():
        assert command[:3] == [sys.executable, "-m", "penstock"]
        words = next(words for words in known if words and tuple(command[3 : 3 + len(words)]) == words)
        assert {word for word in command if word.startswith("--")} <= {f"--{option.name}" for option in known[words]}
        assert command[command.index("--dir") + 1] == "/var/lib/penstock"
    [worker, served] = found["penstock-small.totals@.service"], found["penstock-scuba.views.service"]

    assert f"{tmp_path}/shop/app.py:Totals" in worker
    assert worker[-2:] == ["--number", "%i"]
    assert "/var/lib/penstock/state/views/rows.duckdb" in served


def test_secrets_are_read_by_the_manager(tmp_path: Path) -> None:
    """The configuration is a credential, variables are in files of root, and neither is in a command."""
    text = all_units(tmp_path)["penstock-small.totals@.service"].splitlines()

    assert "LoadCredential=penstock.toml:/etc/penstock/100%% penstock.toml" in text
    assert "Environment=PENSTOCK_CONFIG=%d/penstock.toml" in text
    assert "EnvironmentFile=-/etc/penstock/penstock-small.totals.env" in text
    assert 'ReadWritePaths="/srv/backups of all"' in text
    assert not any(line.startswith("ExecStart") and "--config" in line for line in text)


def test_steps_of_an_installation_name_each_worker_and_variable(tmp_path: Path) -> None:
    """No step contains a value."""
    steps = list(unit_prerequisites([version(tmp_path, **SECURED)], [2]))

    assert any("/etc/penstock/penstock-small.totals.env" in step and "PENSTOCK_STORE" in step for step in steps)
    assert steps[-1].split()[3:5] == ["penstock-small.totals@0.service", "penstock-small.totals@1.service"]
    assert "penstock-dashboard.service" in steps[-1]


def test_an_app_in_a_home_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its units would not see it."""
    monkeypatch.setattr("sys.prefix", "/opt/shop/.venv")
    monkeypatch.setattr("sys.base_prefix", "/usr")
    expect_visible([version(Path("/opt/shop"))])

    with pytest.raises(DeployError, match=r"/home/ann/shop.*Nothing was written"):
        expect_visible([version(Path("/home/ann"))])
    with pytest.raises(DeployError, match="no processor"):
        system_units([])


def on_the_command_line(folder: Path, *arguments: str) -> Any:
    """Return the result of a command about an app in a folder, with a cluster that does not answer."""
    where = ("--kafka", "127.0.0.1:1", "--dir", str(folder / "dir"))
    return CliRunner().invoke(penstock, [*arguments, *where])


def words_of(printed: str) -> str:
    """Return a message in one line, without the frame of a refused option."""
    return " ".join(printed.replace("│", " ").split())


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an app in a folder that units see."""
    monkeypatch.setattr(sys.modules[expect_visible.__module__], "HIDDEN", ())
    file = tmp_path / "shop.py"
    file.write_text(APP)
    return file


def test_the_command_writes_units_and_starts_nothing(app: Path, tmp_path: Path) -> None:
    """It needs no broker, stores no deployment, is in no audit log, and prints the commands that install the units."""
    units = tmp_path / "units"
    done = on_the_command_line(
        tmp_path, "deploy", str(app), "--workers", "3", "--target", "systemd", "--units", str(units)
    )
    printed = words_of(done.stderr)

    assert done.exit_code == 0, done.output
    assert {path.name for path in units.iterdir()} == set(system_units([replace(version(tmp_path), name="totals")]))
    assert "systemctl daemon-reload" in printed
    assert "enable --now penstock-totals@0.service penstock-totals@1.service penstock-totals@2.service" in printed
    assert "1 of 3 workers will stand by" in printed
    assert "start 3 workers" not in printed
    assert "audit log" not in printed
    assert all_deployments(tmp_path / "dir") == []


def test_units_of_a_server_leave_deployed_ones_alone(app: Path, tmp_path: Path) -> None:
    """Only a deployment removes servers beyond its number."""
    other = replace(server(tmp_path), name="laser.tops.2")
    files = DeploymentFiles(tmp_path / "dir", other.name)
    files.add_version(other, Contents({}))
    files.save_desired_state(DesiredState(1, (1,)))
    table = (
        "serve",
        "laser",
        "tops",
        "--deploy",
        "--app",
        str(app),
        "--category",
        "sales",
        "--key",
        "shop",
        "--value",
        "amount",
    )
    done = on_the_command_line(tmp_path, *table, "--target", "systemd", "--units", str(tmp_path / "units"))

    assert done.exit_code == 0, done.output
    assert (tmp_path / "units" / "penstock-laser.tops.1.service").exists()
    assert [each.name for each in all_deployments(tmp_path / "dir")] == ["laser.tops.2"]


@pytest.mark.parametrize("options", [["--target", "systemd"], ["--units", "units"]])
@pytest.mark.parametrize("command", ["deploy shop.py", "serve laser tops --deploy", "serve scuba sales --deploy"])
def test_the_target_and_the_folder_of_units_belong_together(command: str, options: list[str]) -> None:
    """Penstock runs nothing under systemd itself. The error contains the line to type."""
    done = CliRunner().invoke(penstock, [*command.split(), *options])

    assert done.exit_code == 2
    assert f"penstock {command} --target systemd --units units" in words_of(done.stderr)


def test_units_need_no_dry_run() -> None:
    """They start nothing, so there is nothing to try."""
    options = ["--target", "systemd", "--units", "units", "--dry-run"]
    done = CliRunner().invoke(penstock, ["deploy", "shop.py", *options])

    assert done.exit_code == 2
    assert "Leave --dry-run out" in words_of(done.stderr)
