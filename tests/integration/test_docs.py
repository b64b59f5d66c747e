"""The commands and programs in the documents work as printed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.protos import generate
from typer.main import get_command
from typer.testing import CliRunner

from penstock.ops.shell import TomlFile
from penstock.ops.shell.command_line.main import app
from penstock.ops.shell.command_line.root import commands_of
from penstock.ops.shell.config.configuration import Configuration
from penstock.ops.shell.options.sections import NAMED_SECTIONS, SECTIONS
from penstock.ops.sql.example_tests import run_examples
from penstock.processors.sql import SqlText, compile_app

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted((ROOT / "docs").glob("*.md"))
TASKS = [page for page in PAGES if page.name.startswith("howto-")]
COMMAND = Path(sys.executable).with_name("penstock")


def blocks(text: str, language: str) -> list[str]:
    """Return the code blocks of a language, or those without one."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return [block for named, block in fenced if named == language]


@pytest.fixture
def local_broker(tmp_path: Path) -> Iterator[Path]:
    """A folder in which commands may start services, which are stopped at the end."""
    yield tmp_path
    subprocess.run([COMMAND, "dev", "down"], cwd=tmp_path, check=True, capture_output=True)


def test_the_first_processor_of_the_readme_runs(local_broker: Path) -> None:
    """It is typed as printed. On a broker that it starts itself, it prints the promised output, and its test passes."""
    program, test = blocks(README, "python")
    commands = next(block for block in blocks(README, "") if "dev up" in block)
    (local_broker / "meters.py").write_text(program)
    shell = f"set -e\nexport PATH={COMMAND.parent}:$PATH\nunset PENSTOCK_KAFKA\n{commands}"
    done = subprocess.run(
        ["bash", "-c", shell], cwd=local_broker, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr
    subprocess.run([sys.executable, "-c", test], cwd=local_broker, check=True, timeout=240)
    daily = next(block for block in blocks(README, "") if "penstock deploy" in block)
    went_on = subprocess.run(
        ["bash", "-c", shell.replace(commands, daily)],
        cwd=local_broker,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert went_on.returncode == 0, went_on.stderr

    [promised] = re.findall(r"ends in `(.*?)`", README)
    assert done.stdout.splitlines()[-1].endswith(promised)


@pytest.mark.exhaustive
def test_the_commands_of_laser_print_the_promised_values(local_broker: Path) -> None:
    """A client reads what was sent before the server was ready."""
    page = (ROOT / "docs" / "laser.md").read_text(encoding="utf-8")
    (local_broker / "rankings.py").write_text(blocks(page, "python")[0])
    setup = f"set -e\nexport PATH={COMMAND.parent}:$PATH\nunset PENSTOCK_KAFKA\ntrap 'kill %1; wait' EXIT"
    done = subprocess.run(
        ["bash", "-c", "\n".join([setup, *blocks(page, "")])],
        cwd=local_broker,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    promised = re.findall(r"^It prints `(.*?)`", page, flags=re.MULTILINE)
    lines = done.stdout.splitlines()
    assert len(promised) == 2
    assert [line for line in lines if line in promised] == promised
    assert lines.count("SFO") == 2


@pytest.mark.exhaustive
def test_the_commands_of_scuba_print_the_promised_rows(local_broker: Path) -> None:
    """An event is found, counted and averaged soon after it was sent."""
    page = (ROOT / "docs" / "scuba.md").read_text(encoding="utf-8")
    (local_broker / "shop.py").write_text(blocks(page, "python")[0])
    setup = f"set -e\nexport PATH={COMMAND.parent}:$PATH\nunset PENSTOCK_KAFKA\ntrap 'kill %1; wait' EXIT"
    done = subprocess.run(
        ["bash", "-c", "\n".join([setup, *blocks(page, "")])],
        cwd=local_broker,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    [promised] = re.findall(r"^It prints `(.*?)` last", page, flags=re.MULTILINE)
    assert done.stdout.splitlines()[-1] == promised


@pytest.mark.exhaustive
def test_the_commands_of_the_query_page_print_the_promised_rows(local_broker: Path) -> None:
    """The commands range from the app in SQL to the client in Python."""
    page = (ROOT / "docs" / "queries.md").read_text(encoding="utf-8")
    (local_broker / "shop.sql").write_text(blocks(page, "sql")[0])
    setup = f"set -e\nexport PATH={COMMAND.parent}:$PATH\nunset PENSTOCK_KAFKA\ntrap 'kill %1; wait' EXIT"
    done = subprocess.run(
        ["bash", "-c", "\n".join([setup, *blocks(page, "")])],
        cwd=local_broker,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    [promised] = re.findall(r"^It prints `(.*?)`\.$", page, flags=re.MULTILINE)
    assert done.stdout.splitlines()[-1] == promised


@pytest.mark.exhaustive
def test_the_commands_of_a_blue_green_deploy_print_the_promised_totals(local_broker: Path) -> None:
    """The clone continues with its own state, after the outputs of the app."""
    page = (ROOT / "docs" / "snapshots.md").read_text(encoding="utf-8")
    [section] = [part for part in page.split("\n## ") if part.startswith("Blue/green")]
    (local_broker / "shop.py").write_text(blocks(section, "python")[0])
    setup = f"set -e\nexport PATH={COMMAND.parent}:$PATH\nunset PENSTOCK_KAFKA\ntrap 'penstock undeploy totals' EXIT"
    done = subprocess.run(
        ["bash", "-c", "\n".join([setup, *blocks(section, "")])],
        cwd=local_broker,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    printed = [json.loads(line)["value"]["total"] for line in done.stdout.splitlines()[-3:]]
    [promised] = re.findall(r"^The totals are (\d+), (\d+) and (\d+)", section, flags=re.MULTILINE)
    assert printed == list(map(int, promised))


def test_the_commands_of_the_tutorial_run(local_broker: Path) -> None:
    """Each command runs in order on the file that the Python blocks form."""
    tutorial = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    (local_broker / "water.py").write_text("\n".join(blocks(tutorial, "python")))
    shell = "\n".join([f"set -e\nexport PATH={COMMAND.parent}:$PATH\nunset PENSTOCK_KAFKA", *blocks(tutorial, "")])
    done = subprocess.run(
        ["bash", "-c", shell], cwd=local_broker, capture_output=True, text=True, timeout=900, check=False
    )

    assert done.returncode == 0, done.stderr
    [promised] = re.findall(r"ends in\s+`(.*?)`", tutorial)
    assert promised in done.stdout


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """The build is strict: a broken link, or a docstring that the reference cannot parse, fails it."""
    done = subprocess.run(
        [COMMAND.with_name("mkdocs"), "build", "--quiet", "--site-dir", tmp_path],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "TopKeys" in (tmp_path / "reference" / "monoids.html").read_text(encoding="utf-8")


def program_of(page: Path) -> str:
    """Return the Python blocks of a page as one program; a page of tasks continues the program of howto.md."""
    pages = [page.with_name("howto.md"), page] if page in TASKS else [page]
    return "\n".join(block for each in pages for block in blocks(each.read_text(encoding="utf-8"), "python"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_python_of_a_page_runs_from_top_to_bottom(page: Path, tmp_path: Path) -> None:
    """The blocks of a page are one program. Blocks of .proto files begin with their names, and are compiled first."""
    protos = {block.split()[1]: block for block in blocks(page.read_text(encoding="utf-8"), "proto")}
    if protos:
        generate(tmp_path, protos)
    done = subprocess.run(
        [sys.executable, "-c", program_of(page)], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_sql_of_a_page_compiles(page: Path) -> None:
    """Each block is one file."""
    for block in blocks(page.read_text(encoding="utf-8"), "sql"):
        assert compile_app(SqlText(page.name, block), __name__).processors


def test_the_test_file_of_the_sql_page_passes(tmp_path: Path) -> None:
    """It tests the first file of the page."""
    text = (ROOT / "docs" / "sql.md").read_text(encoding="utf-8")
    [examples] = blocks(text, "sqltest")
    (tmp_path / "shop.sql").write_text(blocks(text, "sql")[0])
    (tmp_path / "shop_test.sql").write_text(examples)

    assert [each.differences for each in run_examples(tmp_path / "shop.sql", tmp_path / "shop_test.sql")] == [(), ()]


def commands_in(text: str) -> dict[tuple[str, ...], set[str]]:
    """Return the penstock commands that a page names, with their options."""
    existing = commands_of(get_command(app))
    found: dict[tuple[str, ...], set[str]] = {}
    for rest in re.findall(r"\bpenstock ([a-z][^`\n#|;&]*)", re.sub(r'"[^"\n]*"', "TEXT", text)):
        words = tuple(rest.split())
        command = next((words[:length] for length in (2, 1) if words[:length] in existing), None)
        if command is not None:
            found.setdefault(command, set()).update(re.findall(r"(?<=\s)--[a-z][a-z-]*", rest))
    return found


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.stem)
def test_every_command_on_a_page_exists(page: Path) -> None:
    """It has the options of the page, and its help has an example."""
    for words, options in commands_in(page.read_text(encoding="utf-8")).items():
        done = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "300"})
        assert done.exit_code == 0, words
        assert "Example:" in done.output, words
        assert options <= set(re.findall(r"--[a-z][a-z-]*", done.output)), words


def test_the_tasks_have_unique_names_and_a_link() -> None:
    """There are at least forty; each links to the page with the details."""
    tasks = [task for page in TASKS for task in page.read_text(encoding="utf-8").split("\n## ")[1:]]
    names = [task.partition("\n")[0] for task in tasks]

    assert len(set(names)) == len(names) >= 40
    assert [name for name, task in zip(names, tasks, strict=True) if ".md" not in task] == []


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.stem)
def test_every_configuration_on_a_page_is_valid(page: Path, tmp_path: Path) -> None:
    """Each one is checked alone, against the existing commands."""
    commands = commands_of(get_command(app))
    for number, block in enumerate(blocks(page.read_text(encoding="utf-8"), "toml")):
        file = tmp_path / f"{number}.toml"
        file.write_text(block)
        Configuration(TomlFile.read(file), commands, SECTIONS, NAMED_SECTIONS).check()


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *PAGES, *sorted((ROOT / "examples").glob("*/README.md"))], ids=str
)
def test_relative_links_point_to_existing_files(page: Path) -> None:
    """Relative links name files that are there."""
    for target in re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
