"""Java is found, and its version known, before a service is started on it."""

from pathlib import Path

import pytest

from penstock.backfill.errors import BackfillRefused
from penstock.backfill.spark.prerequisites import expect_java, major_version
from penstock.ops.dev_services import JavaMissingError, JavaTooOldError
from penstock.ops.dev_services.java import find_java


def java_of(home: Path, version: str) -> Path:
    """Install a `java` that only tells a version, as all of them do, on standard error."""
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'Picked up an option' >&2\necho 'openjdk version \"{version}\"' >&2\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("told", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ('openjdk version "21" 2023-09-19', 21),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
    ],
)
def test_the_version_is_read_from_what_java_tells(told: str, major: int | None) -> None:
    """Old, new and early versions are understood, and no version is not one."""
    assert major_version(told) == major


def test_java_home_comes_before_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who sets JAVA_HOME means it."""
    at_home, on_path = java_of(tmp_path / "home", "21.0.1"), java_of(tmp_path / "path", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(on_path.parent))

    assert find_java().path == at_home


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old JAVA_HOME does not hide a fit Java on PATH."""
    java_of(tmp_path / "home", "11.0.2")
    on_path = java_of(tmp_path / "path", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(on_path.parent))

    assert find_java().path == on_path


def test_only_old_javas_are_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names what was found and what to install."""
    java_of(tmp_path / "home", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", "")

    with pytest.raises(JavaTooOldError, match=r"Java 11 .* Install a Java runtime of version 17"):
        find_java()


def test_no_java_is_an_error_that_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error tells how to get a Java."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(JavaMissingError, match="Install a Java runtime of version 17"):
        find_java()


@pytest.mark.parametrize(("version", "why"), [("11.0.2", "is Java 11"), ("none", "does not run")])
def test_spark_is_not_started_on_a_java_that_it_would_fail_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, why: str
) -> None:
    """It takes that of JAVA_HOME, even if there is a fit one on PATH."""
    at_home, on_path = java_of(tmp_path / "home", version), java_of(tmp_path / "path", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(on_path.parent))
    with pytest.raises(BackfillRefused, match=rf"would use {at_home}, which {why}\. Nothing was started"):
        expect_java()

    monkeypatch.delenv("JAVA_HOME")
    expect_java()


def test_spark_is_not_started_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said at once, and what to install."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(
        BackfillRefused, match=r"neither JAVA_HOME nor PATH has one.* Nothing was started\. Install a Java runtime"
    ):
        expect_java()
