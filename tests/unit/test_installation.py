"""The installation of a clone prints a line per stage. Shell scripts substitute for the installers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "packaging" / "install.py"


def executable(folder: Path, name: str, script: str) -> None:
    """Write a shell script that first appends its arguments to a file of the folder."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\necho "$(basename "$0") $*" >> "{folder}/calls"\n{script}\n')
    path.chmod(0o755)


def install(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Install into an environment of a folder that has a lock of two packages, with the programs of its `tools` first."""
    (folder / "requirements.lock").write_text("water==1.0 \\\n    --hash=sha256:0\nmill==2.0 ; python_version < '4'\n")
    return subprocess.run(
        [sys.executable, str(SCRIPT), "env", *arguments],
        cwd=folder,
        env={**os.environ, "PATH": f"{folder / 'tools'}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def without_seconds(printed: str) -> list[str]:
    return re.sub(r"\d+ s$", "… s", printed, flags=re.MULTILINE).splitlines()


def test_each_stage_prints_one_line_and_the_log_has_the_rest(tmp_path: Path) -> None:
    """Pip installs where uv is missing."""
    executable(tmp_path, "env/bin/python", "seq 300")
    done = install(tmp_path, "pip")

    assert done.returncode == 0
    assert without_seconds(done.stdout) == [
        "env: installing up to 2 locked packages with pip … … s",
        "env: building Penstock … … s",
    ]
    assert done.stderr == ""
    assert len((tmp_path / "env" / "install.log").read_text().splitlines()) > 600


def test_uv_installs_where_it_is_available(tmp_path: Path) -> None:
    """The hashes are checked, and the clone is installed without other packages."""
    executable(tmp_path, "env/bin/python", "exit 1")
    executable(tmp_path, "tools/uv", "exit 0")
    done = install(tmp_path)

    assert "with uv" in done.stdout
    assert (tmp_path / "calls").read_text().splitlines() == [
        "uv pip install --python env/bin/python --require-hashes -r requirements.lock",
        "uv pip install --python env/bin/python --no-deps --editable .",
    ]


def test_pip_installs_where_uv_fails(tmp_path: Path) -> None:
    """A machine may have a mirror that only pip is configured for."""
    executable(tmp_path, "env/bin/python", "exit 0")
    executable(tmp_path, "tools/uv", "echo 'no route to the registry'; exit 2")
    done = install(tmp_path)

    assert done.returncode == 0
    assert "no route to the registry" in done.stdout
    assert without_seconds(done.stdout)[-3:] == [
        "Going on with pip.",
        "env: installing up to 2 locked packages with pip … … s",
        "env: building Penstock … … s",
    ]


@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_a_failure_shows_the_end_of_the_log_and_its_path(tmp_path: Path, installer: str) -> None:
    """No later stage begins."""
    failure = "seq 300; echo 'no such package: water'; exit 3"
    executable(tmp_path, "env/bin/python", failure)
    executable(tmp_path, "tools/uv", failure)
    done = install(tmp_path, installer)

    assert done.returncode == 1
    assert without_seconds(done.stdout)[-1].endswith("… failed after … s")
    assert "env/install.log" in done.stderr
    assert "no such package: water" in done.stderr
    assert len(done.stderr.splitlines()) < 25
    assert len((tmp_path / "calls").read_text().splitlines()) == 1


def test_a_missing_environment_is_created(tmp_path: Path) -> None:
    """It contains pip, also for uv."""
    executable(tmp_path, "tools/uv", "exit 0")
    done = install(tmp_path)

    assert done.stdout.startswith("env: creating it … ")
    assert (tmp_path / "env" / "bin" / "pip").exists()
