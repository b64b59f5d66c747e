"""The list of all commands: complete, true to each command's own help, and shown without their imports."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from inspect import cleandoc
from pathlib import Path
from typing import Any

from rich.text import Text

from penstock.ops.shell.command_line.table import LazyCommands, outlines

_RUN = """
import sys
from penstock.command import main
sys.argv = ["penstock", *sys.argv[1:]]
try:
    main()
except SystemExit:
    pass
print(*sorted(sys.modules), file=sys.stderr)
"""


def test_summaries_are_the_first_sentences_of_each_commands_help() -> None:
    """A summary in the list cannot differ from the help of its command."""
    commands = LazyCommands()
    summaries = outlines()
    assert set(summaries) == set(commands)
    servers = commands["serve"]
    for group, listed in ((commands, summaries), (servers.commands, servers.outlines)):
        for name, outline in listed.items():
            help_text = " ".join(cleandoc(group[name].help).split())
            assert help_text.startswith(str(outline.help)), f"{name}: {help_text}"


def test_help_loses_no_words_in_brackets() -> None:
    """They would be styles, which are not shown, unless a backslash precedes them."""
    lost = [text for text in _help_texts(LazyCommands()) if Text.from_markup(text).plain != text.replace("\\[", "[")]

    assert lost == []


def _help_texts(commands: Mapping[str, Any]) -> Iterator[str]:
    for command in commands.values():
        texts = [command.help, *(getattr(option, "help", None) for option in command.params)]
        yield from (text for text in texts if text)
        yield from _help_texts(getattr(command, "commands", {}))


def test_help_imports_no_command() -> None:
    """The list of commands appears without the seconds that importing all of them takes."""
    shown = subprocess.run(
        [sys.executable, "-c", _RUN, "--help"], capture_output=True, text=True, timeout=240, check=True
    )
    assert all(f" {name} " in shown.stdout for name in outlines())
    imported = set(shown.stderr.split())
    assert not imported & {
        "numpy",
        "pyarrow",
        "pyspark",
        "rocksdict",
        "penstock.ops.kernel.process.command",
        "penstock.ops.status.commands.status",
    }


def test_a_configuration_file_imports_only_the_commands_that_it_names(tmp_path: Path) -> None:
    """Settings for all commands are known without the import of each command, which takes half a second."""
    (tmp_path / "penstock.toml").write_text('backup = "backups"\nstandby = true\n[acls]\njson = true\n')
    shown = subprocess.run(
        [sys.executable, "-c", _RUN, "dev", "status"],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
        cwd=tmp_path,
    )
    imported = {name for name in shown.stderr.split() if name.startswith("penstock.ops.")}
    assert "kafka" in shown.stdout
    assert {"penstock.ops.start.commands.dev", "penstock.ops.categories.commands.acls"} <= imported
    assert not imported & {
        "penstock.ops.kernel.process.command",
        "penstock.ops.look_back.commands.replay",
        "penstock.ops.sql.commands.sql",
    }
