"""Jars are fetched once, whole or not at all, by a stand-in for Java that does what Ivy would."""

from pathlib import Path

import pytest

from penstock.ops.dev_services import JarsUnavailableError
from penstock.ops.dev_services.jars import JarSet, Module, cache_folder, fetch, follow
from penstock.ops.dev_services.java import Java

WATER = JarSet("water-1.0", (Module("org.example", "water", "1.0"),))

# Ivy is told last where to put the jars, as a pattern with the folder in it.
ARRIVE = 'for last; do :; done; folder=$(dirname "$last"); mkdir "$folder"; touch "$folder/water-1.0.jar"'


def java_doing(folder: Path, script: str) -> Java:
    """Return a `java` that runs a shell script and counts its runs."""
    path = folder / "java"
    path.write_text(f"#!/bin/sh\necho run >> '{folder}/runs'\n{script}\n")
    path.chmod(0o755)
    return Java(path, 17)


def runs(folder: Path) -> int:
    """Return how often that `java` ran."""
    return len((folder / "runs").read_text().splitlines())


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the user's cache out of it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_what_was_fetched_is_not_fetched_again(tmp_path: Path) -> None:
    """The second call answers from the cache folder."""
    java = java_doing(tmp_path, ARRIVE)
    first = fetch(WATER, java, lambda _: None)
    second = fetch(WATER, java, lambda _: None)

    assert first == second == cache_folder() / "jars" / "water-1.0"
    assert [path.name for path in first.iterdir()] == ["water-1.0.jar"]
    assert runs(tmp_path) == 1


@pytest.mark.parametrize(
    "script",
    [
        "echo '\t\t:: org.example#water;1.0: not found'; exit 1",
        f"{ARRIVE}; echo '\t\t:: org.example#water;1.0!water.jar'; exit 1",
        "exit 0",
    ],
)
def test_a_failed_fetch_leaves_nothing_and_may_be_tried_again(tmp_path: Path, script: str) -> None:
    """Whatever Ivy got done before it failed, no half fetched folder is ever used."""
    with pytest.raises(JarsUnavailableError, match=r"water.* run the same command again"):
        fetch(WATER, java_doing(tmp_path, script), lambda _: None)
    left = [path.name for path in (cache_folder() / "jars").iterdir()]

    assert left == [".lock"]
    assert fetch(WATER, java_doing(tmp_path, ARRIVE), lambda _: None).is_dir()


def test_what_a_kill_left_is_swept_away(tmp_path: Path) -> None:
    """The aside folder of a process that was killed does not stay for ever."""
    left = cache_folder() / "jars" / ".aside-left"
    left.mkdir(parents=True)
    fetch(WATER, java_doing(tmp_path, ARRIVE), lambda _: None)

    assert not left.exists()


def test_progress_counts_jars_and_tells_no_address() -> None:
    """A line per jar says how many of how many, and nothing of where from."""
    told: list[str] = []
    missing = follow(
        [
            "\tfound org.example#water;1.0 in public",
            "\tfound org.example#mill_2.13;2.0 in public",
            "downloading https://registry.example/water-1.0.jar ...",
            "\t[SUCCESSFUL ] org.example#water;1.0!water.jar (82ms)",
            "\t[SUCCESSFUL ] org.example#mill_2.13;2.0!mill_2.13.jar(bundle) (9ms)",
        ],
        told.append,
    )

    assert told == [
        "water 1.0 belongs to it",
        "mill_2.13 2.0 belongs to it",
        "water-1.0.jar 1 of 2",
        "mill_2.13-2.0.jar 2 of 2",
    ]
    assert missing == []
