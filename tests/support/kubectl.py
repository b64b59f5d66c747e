"""A substitute for kubectl without a cluster: it records its calls, and fails at chosen calls; and pods as processes of this machine.

`calls` in its folder has a line of JSON for each call: the arguments and the manifests on its input.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.request import urlopen

_SCRIPT = """#!{python}
import json, pathlib, sys
folder = pathlib.Path({folder!r})
content = "" if sys.stdin.isatty() else sys.stdin.read()
with (folder / "calls").open("a") as calls:
    calls.write(json.dumps([sys.argv[1:], json.loads(content) if content else None]) + "\\n")
fails = folder / "fails"
if fails.exists() and fails.read_text() in sys.argv:
    fails.unlink()
    sys.exit("error: timed out waiting for the condition")
"""


class Kubectl:
    """A substitute for kubectl.

    Args:
        folder: the folder of the program.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        program = folder / "kubectl"
        program.write_text(_SCRIPT.format(python=sys.executable, folder=str(folder)))
        program.chmod(0o755)

    @property
    def path(self) -> str:
        """A PATH that starts with the substitute's folder."""
        return f"{self._folder}{os.pathsep}{os.environ['PATH']}"

    def fail_once_at(self, word: str) -> None:
        """Fail the next call with this word among its arguments."""
        (self._folder / "fails").write_text(word)

    def calls(self) -> list[tuple[list[str], Any]]:
        """Return the calls since the last time: arguments and input."""
        path = self._folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return [tuple(json.loads(line)) for line in lines]


def pod_command(manifests: Sequence[Any], elsewhere: Mapping[str, str]) -> list[str]:
    """Return the words of `penstock` in the only pod of manifests, with others for the paths and ports of the pod."""
    [pod] = [each["spec"]["template"]["spec"] for each in manifests if each["kind"] == "StatefulSet"]
    words: list[str] = pod["containers"][0]["command"][1:]
    for there, here in elsewhere.items():
        words = [word.replace(there, here) for word in words]
    return words


def is_ready(health: int) -> bool:
    """Return whether a health endpoint on this machine answers as the readiness probe of a pod expects it."""
    try:
        with urlopen(f"http://127.0.0.1:{health}/ready", timeout=90) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
