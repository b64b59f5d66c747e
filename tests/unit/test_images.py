"""`penstock image`: the recipe of a container image, read as a builder would."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.cli import Cli

from penstock import __version__
from penstock.ops.deploy.targets.pods import USER
from penstock.ops.start.templates import images
from penstock.ops.start.templates.images import ImageRefused, image_recipe, requirements_of
from penstock.ops.start.templates.projects import TEMPLATES, create_project

LOCK = "penstock-core==1 --hash=sha256:00\n"
APP = "import json\nimport msgspec\nimport penstock as ps\nfrom model import Sale\n"


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """An app outside of packages, which imports a file beside it and an installed package."""
    (tmp_path / "model.py").write_text("import penstock as ps\nSale = ps.Record\n")
    (tmp_path / "notes.txt").write_text("not code\n")
    path = tmp_path / "app.py"
    path.write_text(APP)
    return path


def instructions(containerfile: str) -> list[tuple[str, str]]:
    """Return the instructions of a Containerfile with their arguments, without comments."""
    lines = "\n".join(line for line in containerfile.splitlines() if not line.startswith("#")).replace("\\\n", " ")
    return [
        (word, " ".join(rest.split())) for word, _, rest in (line.partition(" ") for line in lines.splitlines() if line)
    ]


def copied(containerfile: str) -> set[str]:
    """Return what a Containerfile copies from the folder of the build."""
    return {rest.split()[0] for word, rest in instructions(containerfile) if word == "COPY" and "--from" not in rest}


def test_the_final_image_has_no_build_tools_and_no_root(app: Path) -> None:
    """Its packages come from the first stage. Its user is the user of the pods, and owns only the state."""
    steps = instructions(image_recipe(app, LOCK).files["Containerfile"])
    assert [word for word, _ in steps].count("FROM") == 2
    last = steps[max(at for at, (word, _) in enumerate(steps) if word == "FROM") :]

    assert dict(last)["USER"] == f"{USER}:{USER}"
    assert images.USER == USER
    assert ("COPY", "--from=build /opt/penstock /opt/penstock") in last
    assert not [rest for word, rest in last if word == "RUN" and "pip" in rest]
    assert not [rest for word, rest in last if word == "COPY" and "--chown" in rest]
    assert dict(last)["CMD"] == '["run", "app.py"]'


def test_the_build_reads_only_what_the_image_needs(app: Path) -> None:
    """It reads the code of the app, the lock and the wheels, but neither secrets nor other files of the folder."""
    recipe = image_recipe(app, LOCK)
    kept = re.findall("^!(.*)$", recipe.files[".dockerignore"], flags=re.MULTILINE)

    assert recipe.files[".dockerignore"].splitlines()[1] == "*"
    assert set(kept) == copied(recipe.files["Containerfile"]) == {"app.py", "model.py", "requirements.lock", "wheels"}


def test_only_locked_requirements_are_installed(app: Path) -> None:
    """Pip demands a hash for each as soon as one has it."""
    recipe = image_recipe(app, LOCK, base="python:3.12-slim@sha256:1")
    installs = [
        rest for word, rest in instructions(recipe.files["Containerfile"]) if "install --" in rest and word == "RUN"
    ]

    assert recipe.files["requirements.lock"] == LOCK
    assert [rest.rpartition(" ")[0].endswith("-r") for rest in installs if "pip" in rest] == [True]
    assert "ARG BASE=python:3.12-slim@sha256:1\n" in recipe.files["Containerfile"]


def test_equal_apps_have_equal_recipes(app: Path) -> None:
    """It contains neither times nor paths of this machine."""
    files = image_recipe(app, LOCK).files

    assert files == image_recipe(app, LOCK).files
    assert not [name for name, text in files.items() if str(app.parent) in text]


def test_requirements_are_those_that_the_app_imports(app: Path) -> None:
    """They have their installed versions, and Penstock comes without its batch side."""
    [penstock, msgspec] = requirements_of(app, ["dashboard", "redis"])

    assert penstock == f"penstock-core[dashboard,redis]=={__version__}"
    assert re.fullmatch(r"msgspec==[\d.]+", msgspec)


def test_requirements_are_those_that_the_project_declares(app: Path) -> None:
    """The extras of Penstock among them stay."""
    (app.parent / "pyproject.toml").write_text(
        '[project]\ndependencies = ["penstock[postgres]>=1", "penstocks>=2", "httpx"]\n'
    )

    assert requirements_of(app, ["dashboard"]) == [
        f"penstock-core[dashboard,postgres]=={__version__}",
        "penstocks>=2",
        "httpx",
    ]


@pytest.mark.parametrize("content", [b"# Gr\xf6\xdfe", b"print 'old'", b"\0"], ids=["encoding", "syntax", "null"])
def test_a_file_that_is_no_python_has_no_requirements(app: Path, content: bytes) -> None:
    """No app imports it, so it may be in the same folder."""
    (app.parent / "other.py").write_bytes(content)

    assert len(requirements_of(app, [])) == 2


def test_an_import_without_a_package_is_refused(app: Path) -> None:
    """The image would not run; the message names the file."""
    app.write_text(f"{APP}import surely_missing\n")

    with pytest.raises(ImageRefused, match=r"app\.py imports surely_missing.*No file was written"):
        requirements_of(app, [])


def test_a_new_project_has_the_same_recipe(tmp_path: Path) -> None:
    """The command writes the same files, so it only adds the lock."""
    create_project(tmp_path / "shop", TEMPLATES["lookup"])
    project = tmp_path / "shop"
    (project / "requirements.lock").write_text(LOCK)
    before = (project / "Containerfile").read_text()
    cli = Cli(None, project)
    cli.ok("image", "shop.app")

    assert (project / "Containerfile").read_text() == before
    assert (project / "requirements.lock").read_text() == LOCK
    assert copied(before) == {"requirements.lock", "wheels", "shop"}


def test_changed_files_are_replaced_only_on_request(app: Path) -> None:
    """A recipe that was edited by hand stays."""
    app.write_text(
        "import penstock as ps\n"
        "class Sale(ps.Record, frozen=True):\n    shop: str\n    at: ps.EventTime\n"
        'sales = ps.Category("sales", Sale, key="shop", event_time="at")\n'
        "class Count(ps.Stateless):\n    reads = sales\n    def process(self, event):\n        return []\n"
    )
    (app.parent / "requirements.lock").write_text(LOCK)
    (app.parent / "Containerfile").write_text("FROM scratch\n")
    refused = Cli(None, app.parent)("image", "app.py")

    assert (refused.returncode, "Containerfile in" in refused.stderr, "Traceback" in refused.stderr) == (1, True, False)
    assert (app.parent / "Containerfile").read_text() == "FROM scratch\n"
    assert not (app.parent / ".dockerignore").exists()
