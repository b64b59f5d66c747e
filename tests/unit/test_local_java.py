"""The search for Java, and the check of its version before a start."""

from pathlib import Path

import pytest

from penstock.backfill import BackfillRefused
from penstock.backfill.spark.prerequisites import expect_java, major_version
from penstock.ops.start.dev_services.errors import JavaMissingError, JavaTooOldError
from penstock.ops.start.dev_services.java import find_java


def java_of(home: Path, version: str) -> Path:
    """Install a `java` that only prints its version on standard error, like the real one."""
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'Picked up an option' >&2\necho 'openjdk version \"{version}\"' >&2\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("output", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ('openjdk version "21" 2023-09-19', 21),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
    ],
)
def test_the_version_is_parsed(output: str, major: int | None) -> None:
    """Old, new and early-access versions are parsed. Other output is not a version."""
    assert major_version(output) == major


def test_java_home_comes_before_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAVA_HOME is an explicit choice."""
    in_home, on_path = java_of(tmp_path / "home", "21.0.1"), java_of(tmp_path / "path", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(on_path.parent))

    assert find_java().path == in_home


def test_an_old_java_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old JAVA_HOME does not hide a newer Java on PATH."""
    java_of(tmp_path / "home", "11.0.2")
    on_path = java_of(tmp_path / "path", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(on_path.parent))

    assert find_java().path == on_path


def test_an_error_lists_old_javas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names each version, and the version to install."""
    java_of(tmp_path / "home", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", "")

    with pytest.raises(JavaTooOldError, match=r"Java 11 .* Install a Java runtime of version 17"):
        find_java()


def test_without_java_the_error_names_the_version_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the package to install."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(JavaMissingError, match="Install a Java runtime of version 17"):
        find_java()


@pytest.mark.parametrize(("version", "why"), [("11.0.2", "is Java 11"), ("none", "does not run")])
def test_spark_does_not_start_on_an_old_or_broken_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, why: str
) -> None:
    """Spark uses JAVA_HOME, even if PATH contains a newer Java."""
    in_home, on_path = java_of(tmp_path / "home", version), java_of(tmp_path / "path", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(on_path.parent))
    with pytest.raises(BackfillRefused, match=rf"would use {in_home}, which {why}\. Nothing was started"):
        expect_java()

    monkeypatch.delenv("JAVA_HOME")
    expect_java()


def test_spark_does_not_start_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the package to install."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(
        BackfillRefused, match=r"neither JAVA_HOME nor PATH has one.* Nothing was started\. Install a Java runtime"
    ):
        expect_java()
