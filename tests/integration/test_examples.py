"""The commands on the examples' pages print what the pages show, on a real broker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
BIN = Path(sys.executable).parent


def sessions(page: Path) -> Iterator[tuple[str, str]]:
    """Yield each command that a page shows behind a dollar sign, with what it prints."""
    for block in re.findall(r"^```\n(\$ .*?)^```$", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL):
        for typed in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, printed = typed.partition("\n")
            yield command, printed


def steady(printed: str) -> str:
    """Return the output without values that depend on the machine's speed."""
    return re.sub(r"\d+ checkpoints?", "checkpoints", printed)


@pytest.mark.parametrize("example", [pytest.param("itineraries", marks=pytest.mark.exhaustive), "routes", "trending"])
def test_the_commands_of_an_example_print_what_its_page_shows(example: str, kafka: str, tmp_path: Path) -> None:
    """Commands run in order on one running broker."""
    (tmp_path / "examples").symlink_to(EXAMPLES)
    environment = {**os.environ, "PENSTOCK_KAFKA": kafka, "PATH": f"{BIN}:{os.environ['PATH']}", "COLUMNS": "200"}
    shown = [one for one in sessions(EXAMPLES / example / "README.md") if "penstock dev" not in one[0]]
    for command, printed in shown:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=280,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        if printed:
            assert steady(done.stdout) == steady(printed), command

    assert any(printed for _, printed in shown)
