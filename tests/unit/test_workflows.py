"""The workflow of the public CI and the hooks of commits: valid YAML that names existing targets, tools and Pythons."""

from __future__ import annotations

import itertools
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[2]
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
HOOKS = ROOT / ".pre-commit-config.yaml"
MAKEFILE = (ROOT / "Makefile").read_text()
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def combinations(job: dict[str, Any]) -> Iterator[dict[str, str]]:
    """Yield the values of each combination of a job's matrix."""
    matrix = dict(job.get("strategy", {}).get("matrix", {}))
    added = matrix.pop("include", [])
    yield from (dict(zip(matrix, values, strict=True)) for values in itertools.product(*matrix.values()))
    yield from added


def commands() -> Iterator[tuple[str, str, str]]:
    """Yield the job, the version of Python and the command of each step of the workflow that runs one."""
    for name, job in read(WORKFLOW)["jobs"].items():
        for values in combinations(job):

            def filled(text: str, values: dict[str, str] = values) -> str:
                return re.sub(r"\$\{\{ *matrix\.(\w+) *\}\}", lambda match: values[match[1]], text)

            [python] = (
                step["with"]["python-version"] for step in job["steps"] if "python-version" in step.get("with", ())
            )
            yield from ((name, filled(python), filled(step["run"])) for step in job["steps"] if "run" in step)


def targets(text: str) -> list[str]:
    """Return the targets of `make` that a text names."""
    return re.findall(r"\bmake ([a-z][\w-]*)", text)


def test_every_target_that_the_workflow_and_the_hooks_name_exists() -> None:
    """Comments count, because people follow them."""
    [declared] = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    rules = set(re.findall(r"^([a-z][\w-]*):", MAKEFILE, re.MULTILINE))
    named = {target for _, _, command in commands() for target in targets(command)}
    named |= set(targets(WORKFLOW.read_text())) | set(targets(HOOKS.read_text()))

    assert {"quick", "test", "test-exhaustive", "check"} <= named
    assert named - rules == set()
    assert named - set(declared.split()) == set()


def test_every_supported_python_runs_the_quick_and_each_night_all_tests() -> None:
    """The oldest is the one that the package requires."""
    pythons = {(job, command): set[str]() for job, _, command in commands()}
    for job, python, command in commands():
        pythons[job, command].add(python)
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]

    assert pythons["quick", "make quick"] == set(PYTHONS)
    assert pythons["nightly", "make test"] == set(PYTHONS)
    assert required == f">={PYTHONS[0]}"


def test_the_workflow_runs_for_changes_and_each_night_and_may_only_read() -> None:
    """YAML 1.1 reads the key `on` as a boolean."""
    workflow = read(WORKFLOW)

    assert {"push", "pull_request", "schedule"} <= set(workflow[True])
    assert workflow["permissions"] == {"contents": "read"}
    assert all("timeout-minutes" in job for job in workflow["jobs"].values())


def test_hooks_run_the_tools_of_the_environment() -> None:
    """They are what `make check` runs, and nothing is downloaded for them."""
    [repository] = read(HOOKS)["repos"]
    hooks = {hook["id"]: hook for hook in repository["hooks"]}
    [checked] = re.findall(r"^\t\$\(BIN\)/mypy (.*)$", MAKEFILE, re.MULTILINE)

    assert repository["repo"] == "local"
    assert set(hooks) == {"ruff-format", "ruff-check", "mypy"}
    assert {hook["language"] for hook in hooks.values()} == {"system"}
    assert all(shlex.split(hook["entry"])[0].startswith(".venv/bin/") for hook in hooks.values())
    assert hooks["mypy"]["entry"] == f".venv/bin/mypy {checked}"
    assert hooks["mypy"]["pass_filenames"] is False


def test_the_files_that_make_quick_leaves_out_exist() -> None:
    """A file that has another name would be quick again, unseen."""
    names = (ROOT / "tests" / "unit" / "slow_files.txt").read_text().splitlines()

    assert names == sorted(set(names))
    assert [name for name in names if not (ROOT / "tests" / "unit" / name).is_file()] == []
