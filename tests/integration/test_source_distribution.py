"""The source distribution, from which PyPI's users and builders of packages install."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.cli import Cli

REPOSITORY = Path(__file__).parents[2]
FOLDERS = ("penstock", "processors", "transport", "state", "backfill", "ops")
BUILD_LIMIT_S = 300


def pip(*arguments: str) -> None:
    """Run pip."""
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True, timeout=BUILD_LIMIT_S)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder into which the source distribution of the tree is installed, without its dependencies."""
    folder = tmp_path_factory.mktemp("built")
    pip("install", "--target", str(folder / "builder"), "hatchling")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(folder)],
        cwd=REPOSITORY,
        env={"PYTHONPATH": str(folder / "builder"), "PATH": str(Path(sys.executable).parent)},
        check=True,
        timeout=BUILD_LIMIT_S,
    )
    [built] = folder.glob("penstock_core-*.tar.gz")
    pip("install", "--no-deps", "--target", str(folder / "site"), str(built))
    return folder / "site"


def test_it_contains_the_package_of_the_checkout(site: Path) -> None:
    """The links of the checkout are folders in it, and each tracked file is there once."""
    listed = subprocess.run(["git", "ls-files", *FOLDERS], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    tracked = [name for name in listed.stdout.splitlines() if not (REPOSITORY / name).is_symlink()]
    wanted = {name if name.startswith("penstock/") else f"penstock/{name}" for name in tracked}
    package = (path for path in (site / "penstock").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    found = {str(path.relative_to(site)) for path in package}

    assert wanted - found == set()
    assert {name for name in found - wanted if not name.endswith(".so")} == set()
    assert not {path.name for path in site.iterdir()}.intersection(FOLDERS[1:])


def test_it_runs_the_first_processor_of_the_readme(site: Path, cli: Cli, prefix: str, tmp_path: Path) -> None:
    """The installed package has nothing of the checkout."""
    [first, *_] = re.findall(r"```python\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.DOTALL)
    app = tmp_path / "meters.py"
    own = first.replace('"readings"', f'"{prefix}.readings"').replace('"totals"', f'"{prefix}.totals"')
    app.write_text(own.replace("    reads, writes", f'    name = "{prefix}.summed"\n    reads, writes'))
    cli.environment["PYTHONPATH"] = str(site)
    cli.ok("category", "create", str(app))
    reading = {"meter": "kitchen", "at": 1_700_000_000_000, "litres": 1.5}
    cli.ok("category", "send", f"{prefix}.readings", "--app", str(app), stdin=json.dumps(reading))
    cli.ok("run", str(app), "--until-end")

    assert (
        cli.ok("category", "tail", f"{prefix}.totals", "--from", "0", "--no-follow").rstrip().endswith("'litres': 1.5}")
    )


def test_a_checkout_without_links_is_the_same_package(tmp_path: Path) -> None:
    """Git writes the links as small text files where the file system has none."""
    clone = tmp_path / "clone"
    # A clone has what is committed; the file that finds the folders is taken from the tree.
    subprocess.run(["git", "-c", "core.symlinks=false", "clone", "--quiet", str(REPOSITORY), str(clone)], check=True)
    shutil.copy(REPOSITORY / "penstock" / "__init__.py", clone / "penstock")
    script = "import penstock; print(penstock.Stateless.__name__, penstock.__path__[-1])"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=clone, capture_output=True, text=True, check=True, timeout=BUILD_LIMIT_S
    )
    command = subprocess.run(
        [sys.executable, "-m", "penstock", "run", "--help"],
        cwd=clone,
        capture_output=True,
        text=True,
        check=True,
        timeout=BUILD_LIMIT_S,
    )

    assert (clone / "penstock" / "ops").is_file()
    assert done.stdout == f"Stateless {clone}\n"
    assert "Run a processor" in command.stdout
