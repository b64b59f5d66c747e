"""A new project on a broker."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

from support.cli import Cli


def test_a_new_project_runs_as_its_readme_says(cli: Cli, tmp_path: Path) -> None:
    """Its commands create the categories, send an event, run the app and show the output; so does the script."""
    name = f"shop-{uuid4().hex[:8]}"
    cli.ok("new", name)
    cli.folder = tmp_path / name
    readme = (cli.folder / "README.md").read_text()
    commands = re.findall(r"^    (?:echo '(.*)' \| )?penstock (run|category) (.*)$", readme, flags=re.MULTILINE)
    assert [command for _, command, _ in commands] == ["run", "category", "run", "category"]

    outputs = [cli.ok(command, *shlex.split(words), stdin=event) for event, command, words in commands]
    assert "{'page': '/', 'hour': 1699999200000, 'views': 1}" in outputs[-1]

    package = name.replace("-", "_")
    cli.ok("category", "send", f"{name}.views", "--app", f"{package}.app", stdin=commands[1][0])
    script = subprocess.run(
        [sys.executable, "-m", f"{package}.app", "--until-end"],
        cwd=cli.folder,
        env=cli.environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert script.returncode == 0, script.stderr
    last = cli.ok("category", "tail", f"{name}.hourly_views", "--from", "0", "--no-follow").splitlines()[-1]
    assert "'views': 2}" in last
