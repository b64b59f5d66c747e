"""Another version of an app, from a file or a git ref, and its replay in a subprocess."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from ....processors.apps import APP_SUFFIXES, AppName
from ...kernel import penstock_command
from .errors import ReplayRefused, ReplayStopped
from .outputs import OutputRecord

GIT_LIMIT_S = 60


@contextmanager
def version(app: AppName, other: str) -> Iterator[AppName]:
    """Provide another version of one processor; a temporary checkout is removed at the end.

    Args:
        app: the app file and its processor.
        other: an app file, one processor in it, or a ref of the app's git repository.

    Raises:
        ReplayRefused: it is neither, or the ref does not contain the file.
    """
    file = Path(other.partition(":")[0])
    if file.suffix in APP_SUFFIXES and file.is_file():
        named = AppName.parse(other)
        yield AppName(named.path, named.processor or app.processor, named.clone or app.clone)
        return
    folder = app.path.resolve().parent
    root = _git(folder, "rev-parse", "--show-toplevel")
    if root is None or _git(folder, "rev-parse", "--verify", "--quiet", f"{other}^{{commit}}") is None:
        where = f"the repository {root.decode().strip()}" if root else "a git repository, since the app is not in one"
        raise ReplayRefused(
            f"--against {other!r} is neither `live`, nor an existing app file, nor a ref of {where}. Nothing was read. Use one of these, such as "
            "HEAD~1 or old/app.py."
        )
    top = Path(root.decode().strip())
    with TemporaryDirectory(prefix="penstock-version-") as aside:
        archived = _git(top, "archive", "--format=tar", other)
        if archived is None:
            raise ReplayRefused(
                f"git cannot export the files of {other} in {top}. Nothing was read. Check the ref with `git archive`."
            )
        _extract(archived, Path(aside))
        path = Path(aside) / app.path.resolve().relative_to(top)
        if not path.is_file():
            raise ReplayRefused(
                f"{other} does not contain {app.path}. Nothing was read. Name another ref, or an app file."
            )
        yield replace(app, path=path)


def _git(folder: Path, *arguments: str) -> bytes | None:
    """Return the output of git; None if it fails or is not installed."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, timeout=GIT_LIMIT_S, check=False
        )
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None


def _extract(archived: bytes, folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(archived)) as files:
        # The user's own repository; newer Pythons still refuse links and names that leave the folder.
        if hasattr(tarfile, "data_filter"):
            files.extractall(folder, filter="data")
        else:
            files.extractall(folder)  # noqa: S202 - see above


_lines = msgspec.json.Decoder(OutputRecord).decode_lines


def replay_in_subprocess(app: AppName, options: Sequence[str]) -> list[OutputRecord]:
    """Replay another version in its own process, since two versions of a module do not fit into one, and return its outputs.

    Args:
        app: its file and processor.
        options: the options of `penstock replay`, without a destination of outputs.

    Raises:
        ReplayStopped: the process failed.
    """
    with TemporaryDirectory(prefix="penstock-replay-") as folder:
        lines = Path(folder) / "outputs.jsonl"
        command = penstock_command("replay", str(app), *options, "--output", str(lines))
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode:
            message = done.stderr.strip().removeprefix("Error: ")
            raise ReplayStopped(f"The replay of {app} failed. Nothing was compared. Its error: {message}")
        return _lines(lines.read_bytes())
