"""The list of all commands: complete, true to each command's own help, and shown without their imports."""

from __future__ import annotations

import subprocess
import sys
from inspect import cleandoc

from penstock.ops.cli.commands import LazyCommands, outlines

_SHOW_HELP = """
import sys
from penstock.ops.cli import main
sys.argv = ["penstock", "--help"]
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
    for name, outline in summaries.items():
        help_text = " ".join(cleandoc(commands[name].help).split())
        assert help_text.startswith(str(outline.help)), f"{name}: {help_text}"


def test_help_imports_no_command() -> None:
    """The list of commands appears without the seconds that importing all of them takes."""
    shown = subprocess.run([sys.executable, "-c", _SHOW_HELP], capture_output=True, text=True, timeout=240, check=True)
    assert all(f" {name} " in shown.stdout for name in outlines())
    imported = set(shown.stderr.split())
    assert not imported & {
        "numpy",
        "pyarrow",
        "pyspark",
        "rocksdict",
        "penstock.ops.cli.run",
        "penstock.ops.cli.status",
    }
