"""Prints what an installation of `penstock-core` takes with each of its extras, as the table in docs/operations.md has it.

    wheel of this tree --pip--> a new environment for each extra --> MB and seconds

    python packaging/sizes.py [EXTRA ...]

Sizes are those of the files in site-packages, bytecode included. pip reads the network or its cache, so run it twice, and believe the second run.
"""

from __future__ import annotations

import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
OF_CONTRIBUTORS = frozenset({"dev", "docs", "examples"})


def main(chosen: Sequence[str]) -> None:
    """Print the table."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    with TemporaryDirectory() as folder:
        wheel = _wheel(Path(folder))
        print("| installed | MB | seconds |\n| --- | --- | --- |")
        for extra in chosen or ["", *sorted(extras.keys() - OF_CONTRIBUTORS)]:
            size, took_s = _installed(Path(folder, extra or "core"), f"{wheel}[{extra}]" if extra else str(wheel))
            print(f"| `penstock-core{f'[{extra}]' if extra else ''}` | {size / 1e6:.0f} | {took_s:.0f} |", flush=True)


def _wheel(folder: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)],
        check=True,
    )
    return next(folder.glob("*.whl"))


def _installed(environment: Path, requirement: str) -> tuple[int, float]:
    """Return the size in bytes of what a requirement installs, and the seconds that it takes."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    began_s = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(environment), "install", "--quiet", requirement], check=True
    )
    took_s = time.monotonic() - began_s
    [site] = environment.glob("lib/python*/site-packages")
    return sum(path.stat().st_size for path in site.rglob("*") if path.is_file()), took_s


if __name__ == "__main__":
    main(sys.argv[1:])
