"""`penstock new`: its projects, their tests and their types."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from support.cli import Cli

from penstock.command import main
from penstock.ops.start.templates.projects import TEMPLATES, ProjectRefused, create_project


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_test_of_a_new_project_passes(tmp_path: Path, template: str) -> None:
    """The command generates it, and pytest runs it in its folder, as a user would. Its types are correct."""
    Cli(None, tmp_path).ok("new", "my-shop", "--template", template)
    project = tmp_path / "my-shop"

    for command in (["pytest", "-q", "-p", "no:cacheprovider"], ["mypy", "my_shop", "tests"]):
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=project, capture_output=True, text=True, timeout=500, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_new_project_contains_everything_for_its_operation(tmp_path: Path) -> None:
    """It has a package, a test, and files for containers and CI, without a placeholder."""
    files = create_project(tmp_path / "shop", TEMPLATES["counts"])

    assert {str(file) for file in files} == {
        ".dockerignore",
        ".github/workflows/ci.yml",
        ".gitignore",
        "Containerfile",
        "README.md",
        "compose.yaml",
        "pyproject.toml",
        "shop/__init__.py",
        "shop/app.py",
        "shop/model.py",
        "tests/test_app.py",
        "wheels/README.md",
    }
    for file in files:
        text = (tmp_path / "shop" / file).read_text()
        assert text.strip()
        assert not [word for word in ("@name@", "@package@", "@output@", "@send@") if word in text]


def test_the_compose_file_runs_kafka_the_app_and_the_dashboard(tmp_path: Path) -> None:
    """The app and the dashboard use the listener that Kafka advertises inside of the network."""
    create_project(tmp_path / "shop", TEMPLATES["counts"])
    services = yaml.safe_load((tmp_path / "shop" / "compose.yaml").read_text())["services"]

    assert set(services) == {"kafka", "app", "dashboard"}
    advertised = services["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    for service in ("app", "dashboard"):
        assert f"INSIDE://{services[service]['environment']['PENSTOCK_KAFKA']}," in advertised
        assert "shop.app" in services[service]["command"]
    workflow = yaml.safe_load((tmp_path / "shop" / ".github" / "workflows" / "ci.yml").read_text())
    assert [step["run"] for step in workflow["jobs"]["test"]["steps"] if "run" in step][-1] == "pytest"


def test_an_existing_folder_is_refused(tmp_path: Path) -> None:
    """No file in it is changed, even if it is empty."""
    (tmp_path / "shop").mkdir()

    with pytest.raises(ProjectRefused, match=r"exists already\. Nothing was written"):
        create_project(tmp_path / "shop", TEMPLATES["counts"])
    assert list((tmp_path / "shop").iterdir()) == []


@pytest.mark.parametrize("name", ["9lives", "My Shop", "class", "json", "penstock", "tests", "shop.app"])
def test_a_name_that_cannot_be_a_package_is_refused(tmp_path: Path, name: str) -> None:
    """The name of a package that it would hide is refused, too."""
    with pytest.raises(ProjectRefused, match="Nothing was written"):
        create_project(tmp_path / name, TEMPLATES["counts"])
    assert not (tmp_path / name).exists()


def test_a_name_that_is_too_long_for_a_folder_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is an error of the user, not a bug with a traceback."""
    monkeypatch.setattr(sys, "argv", ["penstock", "new", "n" * 300])
    with pytest.raises(SystemExit):
        main()

    assert "nnn: File name too long. The command stopped" in capsys.readouterr().err
