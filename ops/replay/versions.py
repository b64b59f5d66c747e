"""Another version of an app: a file, or the app's own files as a git ref has them, checked out aside."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from ...processors.declare.apps import AppName
from .errors import ReplayRefused

GIT_LIMIT_S = 60


@contextmanager
def version(app: AppName, other: str) -> Iterator[AppName]:
    """Give where another version of one processor is; what was checked out for it is gone after the block.

    Args:
        app: the app file and its processor.
        other: an app file, or one processor of it; or a ref of the git repository that the app file is in.

    Raises:
        ReplayRefused: it is neither, or the file was not there then.
    """
    named = AppName.parse(other)
    if named.path.suffix == ".py" and named.path.is_file():
        yield named if named.processor else AppName(named.path, app.processor)
        return
    folder = app.path.resolve().parent
    root = _git(folder, "rev-parse", "--show-toplevel")
    if root is None or _git(folder, "rev-parse", "--verify", "--quiet", f"{other}^{{commit}}") is None:
        where = f"the repository {root.decode().strip()}" if root else "a git repository, which the app is not in"
        raise ReplayRefused(
            f"{other!r} is no version to replay against: neither `live`, nor an app file that is there, nor a ref of {where}. "
            "Nothing was read. Give one of these, such as HEAD~1 or old/app.py."
        )
    top = Path(root.decode().strip())
    with TemporaryDirectory(prefix="penstock-version-") as aside:
        archived = _git(top, "archive", "--format=tar", other)
        if archived is None:
            raise ReplayRefused(f"git could not give the files of {other} in {top}. Nothing was read.")
        _extract(archived, Path(aside))
        path = Path(aside) / app.path.resolve().relative_to(top)
        if not path.is_file():
            raise ReplayRefused(
                f"{app.path} was not there as of {other}. Nothing was read. Name another ref, or its file by its path."
            )
        yield AppName(path, app.processor)


def _git(folder: Path, *arguments: str) -> bytes | None:
    """Return what git prints; None where it fails, or is not there."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, timeout=GIT_LIMIT_S, check=False
        )
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None


def _extract(archived: bytes, folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(archived)) as files:
        # Of our user's own repository; where Python can, links and names that lead out of the folder are refused all the same.
        if hasattr(tarfile, "data_filter"):
            files.extractall(folder, filter="data")
        else:
            files.extractall(folder)  # noqa: S202 - see above
