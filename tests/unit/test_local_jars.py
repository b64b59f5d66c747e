"""Downloads of jars are complete or absent. A shell script substitutes for Java and Ivy."""

import re
from pathlib import Path

import pytest

from penstock.ops.shell.terminal.progress import LINE_EVERY_S, StepNotes
from penstock.ops.start.dev_services.errors import JarsUnavailableError
from penstock.ops.start.dev_services.jars import JarSet, Module, cache_folder, fetch, ivy_log, report_progress
from penstock.ops.start.dev_services.java import Java

WATER = JarSet("water-1.0", (Module("org.example", "water", "1.0"),))

# The last argument of Ivy is the pattern of the target files.
DOWNLOAD = 'for last; do :; done; folder=$(dirname "$last"); mkdir "$folder"; touch "$folder/water-1.0.jar"'


def java_running(folder: Path, script: str) -> Java:
    """Return a `java` that runs a shell script and counts its runs."""
    path = folder / "java"
    path.write_text(f"#!/bin/sh\necho run >> '{folder}/runs'\n{script}\n")
    path.chmod(0o755)
    return Java(path, 17)


def runs(folder: Path) -> int:
    """Return the number of runs of the script."""
    return len((folder / "runs").read_text().splitlines())


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a cache folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_downloaded_jars_are_reused(tmp_path: Path) -> None:
    """The second call returns the folder in the cache."""
    java = java_running(tmp_path, DOWNLOAD)
    first = fetch(WATER, java, lambda _: None)
    second = fetch(WATER, java, lambda _: None)

    assert first == second == cache_folder() / "jars" / "water-1.0"
    assert [path.name for path in first.iterdir()] == ["water-1.0.jar"]
    assert runs(tmp_path) == 1


@pytest.mark.parametrize(
    "script",
    [
        "echo '\t\t:: org.example#water;1.0: not found'; exit 1",
        f"{DOWNLOAD}; echo '\t\t:: org.example#water;1.0!water.jar'; exit 1",
        "exit 0",
    ],
)
def test_a_failed_download_leaves_no_folder_and_can_be_repeated(tmp_path: Path, script: str) -> None:
    """A partial download of Ivy is never used."""
    with pytest.raises(JarsUnavailableError, match=r"water.* repeat the command"):
        fetch(WATER, java_running(tmp_path, script), lambda _: None)
    names = [path.name for path in (cache_folder() / "jars").iterdir()]

    assert names == [".lock"]
    assert fetch(WATER, java_running(tmp_path, DOWNLOAD), lambda _: None).is_dir()


def test_an_interrupted_download_is_deleted(tmp_path: Path) -> None:
    """The next download deletes the partial folder of a killed process."""
    interrupted = cache_folder() / "jars" / ".partial-1"
    interrupted.mkdir(parents=True)
    fetch(WATER, java_running(tmp_path, DOWNLOAD), lambda _: None)

    assert not interrupted.exists()


def test_progress_counts_jars_and_contains_no_address() -> None:
    """A line per jar contains its number and the total."""
    lines: list[str] = []
    missing = report_progress(
        [
            "\tfound org.example#water;1.0 in public",
            "\tfound org.example#mill_2.13;2.0 in public",
            "downloading https://registry.example/water-1.0.jar ...",
            "\t[SUCCESSFUL ] org.example#water;1.0!water.jar (82ms)",
            "\t[SUCCESSFUL ] org.example#mill_2.13;2.0!mill_2.13.jar(bundle) (9ms)",
        ],
        lines.append,
    )

    assert lines == [
        "water-1.0.jar 1 of 2",
        "mill_2.13-2.0.jar 2 of 2",
    ]
    assert missing == []


def test_a_failed_download_names_the_log_of_ivy(tmp_path: Path) -> None:
    """The log contains what Ivy printed, which the error does not repeat."""
    script = "echo 'a proxy refused https://jars.example'; exit 1"
    with pytest.raises(JarsUnavailableError) as refused:
        fetch(WATER, java_running(tmp_path, script), lambda _: None)

    assert f"{ivy_log()} contains the details" in str(refused.value)
    assert "jars.example" not in str(refused.value)
    assert ivy_log().read_text() == "a proxy refused https://jars.example\n"


def test_a_download_ends_with_its_number_of_jars(tmp_path: Path) -> None:
    """Without a terminal, these two lines are all that a quick download prints."""
    lines: list[str] = []
    fetch(WATER, java_running(tmp_path, DOWNLOAD), StepNotes(lines.append, lambda: 0.0).show)

    assert [re.sub(r"\d+ s$", "… s", line) for line in lines] == [
        "water-1.0: downloading its jars",
        "water-1.0: 1 jar in … s",
    ]


def test_without_a_terminal_counted_steps_are_printed_at_intervals() -> None:
    """Other lines are printed at once."""
    lines: list[str] = []
    times_s = iter([0.0, 1.0, LINE_EVERY_S, LINE_EVERY_S + 1, 2 * LINE_EVERY_S])
    notes = StepNotes(lines.append, lambda: next(times_s))
    for line in ("begins", "1 of 4", "2 of 4", "3 of 4", "4 of 4", "ends"):
        notes.show(line)

    assert lines == ["begins", "2 of 4", "4 of 4", "ends"]
