"""The wheel `penstock-core`, in a process that has neither Spark nor pandas nor Arrow."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support.cli import Cli
from support.meters import readings

from penstock import __version__
from penstock.ops.shell import TomlFile

REPOSITORY = Path(__file__).parents[2]
WITHOUT_THE_BATCH_SIDE = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "pandas", "pyarrow"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel that the tree builds."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder)]
    subprocess.run([*command, str(REPOSITORY)], check=True, timeout=300)
    return next(folder.glob("penstock_core-*.whl"))


@pytest.fixture
def core(cli: Cli, wheel: Path, tmp_path: Path) -> Cli:
    """Return a command line that imports the package of the wheel."""
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as files:
        files.extractall(site)
    (site / "sitecustomize.py").write_text(WITHOUT_THE_BATCH_SIDE)
    cli.environment["PYTHONPATH"] = str(site)
    return cli


def test_penstock_is_the_core_with_spark() -> None:
    """It has no code, requires the core of its own version, and passes on the extras of users."""
    core, whole = (
        TomlFile.read(REPOSITORY / folder / "pyproject.toml").values for folder in (".", "packaging/penstock")
    )
    extras = core["project"]["optional-dependencies"].keys() - {"spark", "dev", "docs", "examples"}

    assert whole["project"]["version"] == __version__
    assert whole["project"]["dependencies"] == [f"penstock-core[spark]=={__version__}"]
    assert whole["project"]["optional-dependencies"] == {
        name: [f"penstock-core[{name}]=={__version__}"] for name in extras
    }


def test_the_distribution_without_code_has_no_file_of_the_package(tmp_path: Path) -> None:
    """Two distributions with the same files would overwrite each other."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path)]
    subprocess.run([*command, str(REPOSITORY / "packaging" / "penstock")], check=True, timeout=300)
    [built] = tmp_path.glob("penstock-*.whl")
    with zipfile.ZipFile(built) as packed:
        assert [name for name in packed.namelist() if ".dist-info/" not in name] == []


def test_the_wheel_has_each_file_of_the_package(wheel: Path) -> None:
    """It contains the tracked files of all folders, those of project templates included, and the compiled libraries."""
    command = ["git", "ls-files", "penstock/*", "processors", "transport", "state", "backfill", "ops"]
    tracked = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.splitlines()
    files = {name if name.startswith("penstock/") else f"penstock/{name}" for name in tracked}
    links = {f"penstock/{folder}" for folder in ("processors", "transport", "state", "backfill", "ops")}
    with zipfile.ZipFile(wheel) as packed:
        assert {name for name in packed.namelist() if name.startswith("penstock/")} == files - links | {
            "penstock/processors/declare/key_hashes.so",
            "penstock/transport/kafka/gather.so",
            "penstock/transport/kafka/plugin.so",
            "penstock/transport/codecs/flat_json.so",
        }


def test_a_worker_needs_no_batch_side(core: Cli, app: Path, prefix: str) -> None:
    """A project's categories, workers and the help of all commands work; a batch command names the missing package."""
    core.ok("category", "create", "app.py")
    core.ok("category", "send", f"{prefix}.readings", "--app", "app.py", stdin=readings(50))
    core.ok("run", "app.py", "--until-end")
    totals = core.ok("category", "tail", f"{prefix}.large", "--from", "0", "--no-follow")
    replayed = core.ok("replay", "app.py:Large", "--from", "1h ago")
    refused = core("backfill", "app.py:Large", "--from", "2026-01-01", "--to", "2026-01-02")

    assert str(app.parent) == str(core.folder)
    assert "backfill" in core.ok("--help")
    assert totals
    assert replayed
    assert refused.returncode == 1
    assert "needs py" in refused.stderr
    assert "pip install 'penstock-core[spark]'" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.exhaustive
def test_the_steps_of_an_image_install_what_an_app_needs(wheel: Path, tmp_path: Path) -> None:
    """The steps of the first stage run in a folder of this machine. They install what is locked, with hashes, and without Spark."""
    Cli(None, tmp_path).ok("new", "shop")
    project, installed = Cli(None, tmp_path / "shop"), tmp_path / "installed"
    shutil.copy(wheel, project.folder / "wheels")
    project.ok("image", "shop.app")
    containerfile = (project.folder / "Containerfile").read_text()
    steps = re.findall("^RUN (.*/opt/penstock.*)$", containerfile, re.MULTILINE)
    for step in steps:
        command = shlex.split(step.replace("/opt/penstock", str(installed)))
        command[0] = sys.executable if command[0] == "python" else command[0]
        subprocess.run(command, cwd=project.folder, check=True, timeout=600)
    python = installed / "bin" / "python"
    script = "import importlib.util, shop.app, starlette; print(importlib.util.find_spec('pyspark'))"
    loaded = subprocess.run([python, "-c", script], cwd=project.folder, capture_output=True, text=True, check=True)
    version = subprocess.run([installed / "bin" / "penstock", "--version"], capture_output=True, text=True, check=True)

    assert len(steps) == 3
    assert loaded.stdout == "None\n"
    assert version.stdout.startswith(f"penstock {__version__} ")
