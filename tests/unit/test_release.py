"""What a release refuses, and what it says about missing tools."""

from __future__ import annotations

import subprocess
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
CHANGES = "# Changes\n\n## Unreleased\n\n## 1.2: more\n\n- Something is new.\n"


@pytest.fixture(scope="module")
def release() -> ModuleType:
    """Return `packaging/release.py`."""
    spec = spec_from_file_location("release", ROOT / "packaging" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a committed tree of version 1.2."""
    (tmp_path / "penstock").mkdir()
    (tmp_path / "penstock" / "__init__.py").write_text('"""A package."""\n\n__version__ = "1.2"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGES)
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "Version 1.2")
    return tmp_path


def test_a_committed_version_with_changes_is_accepted(release: ModuleType, tree: Path) -> None:
    """The commands that publish it name its tag."""
    version = release.version_of(tree)
    release.expect_clean_tree(tree)
    release.expect_new_tag(tree, version)
    release.expect_changes(tree, version)

    assert release.publishing_commands(version)[0] == 'git tag --annotate v1.2 --message "Penstock 1.2"'


def test_the_version_of_this_tree_is_found(release: ModuleType) -> None:
    """It is the one that the package reports."""
    import penstock

    assert release.version_of(ROOT) == penstock.__version__
    release.expect_one_version(ROOT, penstock.__version__)


@pytest.mark.parametrize("line", ['version = "1.1"', 'dependencies = ["penstock-core[spark]==1.1"]'])
def test_two_versions_are_refused(release: ModuleType, tmp_path: Path, line: str) -> None:
    """The distribution without code must require the code of its own version."""
    declaration = tmp_path / release.WITHOUT_CODE / "pyproject.toml"
    declaration.parent.mkdir(parents=True)
    declaration.write_text(f'name = "penstock"\n{line}\nextra = ["penstock-core[extra]==1.2"]\n')
    with pytest.raises(release.ReleaseRefused, match=r"names version 1\.1, and .* 1\.2"):
        release.expect_one_version(tmp_path, "1.2")


@pytest.mark.parametrize("change", ["CHANGELOG.md", "new.py"])
def test_a_tree_with_changes_is_refused(release: ModuleType, tree: Path, change: str) -> None:
    """A new file is a change, too."""
    (tree / change).write_text("changed")
    with pytest.raises(release.ReleaseRefused, match=change):
        release.expect_clean_tree(tree)


def test_a_version_with_a_tag_is_refused(release: ModuleType, tree: Path) -> None:
    """A tag never moves."""
    git(tree, "tag", "v1.2")
    with pytest.raises(release.ReleaseRefused, match=r"the tag v1\.2 exists"):
        release.expect_new_tag(tree, "1.2")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (CHANGES.replace("1.2", "1.2.1"), r"no entry for 1\.2,"),
        (CHANGES.replace("- Something is new.\n", ""), r"no entry for 1\.2,"),
        (CHANGES.replace("Unreleased\n", "Unreleased\n\n- Something else.\n"), "changes under “Unreleased”"),
    ],
)
def test_a_version_without_its_changes_is_refused(release: ModuleType, tree: Path, changes: str, reason: str) -> None:
    """An empty entry, that of another version, and changes that belong to none."""
    (tree / "CHANGELOG.md").write_text(changes)
    with pytest.raises(release.ReleaseRefused, match=reason):
        release.expect_changes(tree, "1.2")


def built(tree: Path, platform: str) -> None:
    """Write empty wheels: one with code for a platform, and the one without code."""
    (tree / "dist").mkdir()
    (tree / "dist" / f"penstock_core-1.2-py3-none-{platform}.whl").touch()
    (tree / "dist" / "penstock-1.2-py3-none-any.whl").touch()


def test_a_wheel_without_compiled_code_is_refused(release: ModuleType, tree: Path) -> None:
    """Its users would read Kafka more slowly, and not know why."""
    built(tree, "any")
    with pytest.raises(release.ReleaseRefused, match="contains no compiled code"):
        release.check_tags(tree)


def test_a_wheel_of_one_linux_needs_named_programs(
    release: ModuleType, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They give it the tag of all similar systems."""
    built(tree, "linux_x86_64")
    monkeypatch.setattr(release, "missing_for_tags", lambda: ["auditwheel", "patchelf"])
    [remark] = release.check_tags(tree)

    assert "linux_x86_64" in remark
    assert "needs auditwheel and patchelf" in remark


@pytest.mark.parametrize("platform", ["manylinux_2_17_x86_64", "macosx_11_0_arm64"])
def test_a_wheel_with_a_published_tag_needs_nothing(release: ModuleType, tree: Path, platform: str) -> None:
    """Nothing is left to be said."""
    built(tree, platform)

    assert release.check_tags(tree) == []
