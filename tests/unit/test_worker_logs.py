"""Logs of deployed workers: their order, their rotation, and the command of a cluster."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.deployed import on_a_cluster, version_of
from typer.testing import CliRunner

from penstock.ops.deploy import last_lines, logged_workers
from penstock.ops.deploy.targets.kubernetes_rollout import kubectl_log_command
from penstock.ops.deploy.version import PodSettings
from penstock.ops.deploy.worker_logs import LogFollower
from penstock.ops.shell.command_line.main import app


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """The folder of the logs of a deployment named totals."""
    folder = tmp_path / "logs" / "totals"
    folder.mkdir(parents=True)
    return folder


def write(logs: Path, name: str, *lines: str) -> None:
    """Append lines to a log."""
    with (logs / name).open("a") as log:
        log.writelines(f"{line}\n" for line in lines)


def test_lines_of_several_workers_are_in_the_order_of_time(logs: Path) -> None:
    """A stack trace stays with its first line, and JSON lines have their times, too."""
    write(logs, "0-0.log", "2026-11-25 10:00:01 WARNING a", "Traceback", "  line", "2026-11-25 10:00:04 WARNING d")
    write(logs, "1-0.log", "2026-11-25 10:00:02 WARNING b")
    write(logs, "1-1.log", "2026-11-25 10:00:03 WARNING c")
    write(logs, "7-1.log", '{"time":"2026-11-25T10:00:01.500Z","level":"info"}', '{"time":"2026-11-25T10:00:00.500Z"}')
    found = [(line.worker, line.text[-1]) for line in last_lines(logs, [0, 1], 100)]

    assert found == [(0, "a"), (0, "k"), (0, "e"), (1, "b"), (1, "c"), (0, "d")]
    assert [line.text[-1] for line in last_lines(logs, [0, 1], 2)] == ["c", "d"]
    assert last_lines(logs, [7], 1)[0].time == "2026-11-25T10:00:00.500"
    assert (last_lines(logs, [0, 1], 0), logged_workers(logs)) == ([], [0, 1, 7])


def test_last_lines_continue_in_rotated_logs(logs: Path) -> None:
    """They are read from the newest log to the oldest, in order of their numbers."""
    for number, name in enumerate(["0-1.log.10", "0-1.log.2", "0-1.log.1", "0-1.log"]):
        write(logs, name, f"{number}a", f"{number}b")

    assert [line.text for line in last_lines(logs, [0], 5)] == ["1b", "2a", "2b", "3a", "3b"]


@given(parts=st.lists(st.tuples(st.text("ab\n", max_size=8), st.sampled_from(["", "rename", "copy"])), max_size=12))
def test_a_follower_returns_each_new_line_once(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[str, str]]
) -> None:
    """The log may be renamed or emptied between two reads, and a read may cut a line anywhere."""
    logs = tmp_path_factory.mktemp("logs")
    (logs / "0-1.log").write_text("before\n")
    found, text = [], ""
    with closing(LogFollower(logs, 0, 1)) as follower:
        for part, rotation in parts:
            with (logs / "0-1.log").open("a") as log:
                log.write(part)
            text += part
            found += follower.read()
            if rotation == "rename":
                (logs / "0-1.log").rename(logs / "0-1.log.1")
                (logs / "0-1.log").touch()
            elif rotation == "copy":
                (logs / "0-1.log").write_text("")
            found += follower.read()

    assert [line.text for line in found] == text.split("\n")[:-1]


def test_a_follower_waits_for_the_first_line(logs: Path) -> None:
    """A worker that has just been added has no log yet."""
    with closing(LogFollower(logs, 3, 0)) as follower:
        assert follower.read() == []
        write(logs, "3-0.log", "first")

        assert [line.text for line in follower.read()] == ["first"]


def test_the_command_prints_and_escapes_the_lines(logs: Path, tmp_path: Path) -> None:
    """The deployment may be stopped. The terminal interprets nothing, and a wrong name or worker is explained."""
    write(logs, "0-0.log", "2026-11-25 10:00:01 a\x1b[2J", "2026-11-25 10:00:03 c")
    write(logs, "1-0.log", "2026-11-25 10:00:02 b")

    def run(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["logs", *arguments, "--dir", str(tmp_path)])
        return done.exit_code, done.output + str(done.exception or "")

    assert run("totals") == (
        0,
        "[0] 2026-11-25 10:00:01 a\\x1b[2J\n[1] 2026-11-25 10:00:02 b\n[0] 2026-11-25 10:00:03 c\n",
    )
    assert run("totals", "--worker", "1") == (0, "2026-11-25 10:00:02 b\n")
    assert run("totals", "-n", "1", "--worker", "0") == (0, "2026-11-25 10:00:03 c\n")
    assert "Its workers with logs: 0, 1." in run("totals", "--worker", "5")[1]
    assert "There are no logs of total in" in run("total")[1]


def test_a_cluster_has_a_command_of_its_own(tmp_path: Path) -> None:
    """It shows the logs of all pods of a StatefulSet, or of one."""
    version = on_a_cluster(version_of(tmp_path, 1, name="totals"), PodSettings("app:7", namespace="streams"))
    all_pods = kubectl_log_command(version, None, 20, follow=True)
    one_pod = kubectl_log_command(version, 2, 20, follow=False)

    assert all_pods[:5] == ["kubectl", "--namespace", "streams", "logs", "--selector"]
    assert "app.kubernetes.io/instance=penstock-totals" in all_pods
    assert one_pod == [
        *["kubectl", "--namespace", "streams", "logs", "penstock-totals-2", "--container", "worker", "--tail", "20"]
    ]
