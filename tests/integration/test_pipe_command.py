"""`penstock pipe` on a real broker: programs in several languages, their failures, and pipes in an app."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.cli import Cli
from support.plain import messages

from penstock.transport import Outgoing
from penstock.transport.kafka import KafkaBus, KafkaSettings

CLIENTS = Path(__file__).parents[2] / "examples/pipe"
LOG = [b"%s line %d" % (b"ERROR" if n % 7 == 3 else b"fine", n) for n in range(3_000)]
ERRORS = sorted(line for line in LOG if b"ERROR" in line)


def send(kafka: str, category: str, lines: list[bytes]) -> None:
    """Write lines to a category, without Penstock's records."""
    writer = KafkaBus(KafkaSettings(kafka)).writer()
    writer.send(category, [Outgoing(b"host-%d" % (at % 5), line, -1, None) for at, line in enumerate(lines)])
    writer.flush()
    writer.close()


def lines_of(kafka: str, category: str) -> list[bytes]:
    """Return the values of a category, sorted."""
    return sorted(value or b"" for _, _, value in messages(kafka, category))


@pytest.fixture
def log(cli: Cli, kafka: str, prefix: str) -> str:
    """A category with the lines of a log."""
    name = f"{prefix}.log"
    cli.ok("category", "create", name, "--buckets", "2")
    send(kafka, name, LOG)
    return name


@pytest.mark.parametrize(
    "command",
    [
        ("--", str(CLIENTS / "errors.pl")),
        ("--every", "100", "--", "node", str(CLIENTS / "errors.js")),
        ("--every", "500", "--bytes", "4000", "--outputs", "exactly-once", "--", str(CLIENTS / "errors.sh")),
        ("--simple", "--outputs", "at-most-once", "--", "grep", "ERROR"),
    ],
    ids=["perl", "javascript", "shell", "grep"],
)
def test_a_program_reads_one_category_and_writes_another(
    cli: Cli, log: str, kafka: str, prefix: str, command: tuple[str, ...]
) -> None:
    """Each output is there once; the same command continues after the last checkpoint."""
    run = ("pipe", log, "--to", f"{prefix}.errors", "--create", "--until-end", "--json", *command)
    first = json.loads(cli.ok(*run))
    again = json.loads(cli.ok(*run))

    assert lines_of(kafka, f"{prefix}.errors") == ERRORS
    assert (first["events_in"], again["events_in"]) == (len(LOG), 0)


def test_a_failing_line_stops_the_pipe_with_its_offset_and_loses_nothing(
    cli: Cli, log: str, kafka: str, prefix: str
) -> None:
    """The error names the program, its status and its error output. With dead letters, the other lines are processed."""
    script = cli.folder / "picky.py"
    script.write_text(
        (CLIENTS / "errors.py")
        .read_text()
        .replace("    if b", '    if line.endswith(b" 1500\\n"):\n        sys.exit("no!")\n    if b')
    )
    script.chmod(0o755)
    run = ("pipe", log, "--to", f"{prefix}.errors", "--create", "--until-end", "--name", f"{prefix}.picky")
    stopped = cli(*run, "--", "./picky.py")
    assert stopped.returncode == 1
    assert "`./picky.py` ended with exit status 1" in stopped.stderr
    assert "no!" in stopped.stderr
    assert "Fix picky.py, or send such events to" in stopped.stderr
    assert "(`--on-error dead-letter`)" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    cli.ok(*run, "--on-error", "dead-letter", "--", "./picky.py")

    assert lines_of(kafka, f"{prefix}.errors") == ERRORS
    [letter] = messages(kafka, f"{prefix}.picky.dead_letters")
    assert b"exit status 1" in (letter[2] or b"")


def test_a_pipe_that_reads_nothing_says_why(cli: Cli, log: str, prefix: str, wait_until: Callable[..., None]) -> None:
    """Its position has a name, and another position needs another name. A pipe that was stopped has not reached the end."""
    run = ("pipe", log, "--to", f"{prefix}.out", "--create", "--until-end", "--name", f"{prefix}.copy")
    busy = cli.start(*run, "--time-limit", "1", "--", "sh", "-c", "echo $$ > pid; sleep 1000")
    wait_until((cli.folder / "pid").exists)
    busy.send_signal(signal.SIGTERM)
    _, stopped = busy.communicate(timeout=60)
    cli.ok(*run, "--", "cat")
    again = cli(*run, "--", "cat")

    assert "read nothing" not in stopped
    assert "cat read nothing: it has already processed all events" in again.stderr
    assert "run it with another --name" in again.stderr


def test_output_without_a_category_is_refused(cli: Cli, log: str) -> None:
    """The error names the option; nothing is skipped."""
    done = cli("pipe", log, "--until-end", "--", "cat")

    assert done.returncode == 1
    assert "declares no output" in done.stderr
    assert "--to" in done.stderr


def test_a_missing_program_and_a_missing_category_are_explained(cli: Cli, log: str, prefix: str) -> None:
    """The error comes before the first line is read."""
    program = cli("pipe", log, "--", "nonesuch")
    category = cli("pipe", f"{prefix}.nonesuch", "--", "cat")
    status = cli("pipe", log, "--success", "2", "--", "cat")
    assert "Add --simple" in status.stderr
    output = cli("pipe", log, "--to", f"{prefix}.nonesuch", "--", "cat")

    assert "there is no program 'nonesuch' on the PATH" in program.stderr
    for done in (category, output):
        assert f"{prefix}.nonesuch" in done.stderr
    assert {program.returncode, category.returncode, output.returncode} == {1}
    assert not any("Traceback" in done.stderr for done in (program, category, output))


def test_json_fields_are_keys(cli: Cli, kafka: str, prefix: str) -> None:
    """The objects of `jq` contain the key."""
    cli.ok("category", "create", f"{prefix}.in", "--buckets", "1")
    send(kafka, f"{prefix}.in", [b'{"user": "ann", "n": 2}', b'{"user": "bob", "n": 3}'])
    run = ("pipe", f"{prefix}.in", "--to", f"{prefix}.out", "--create", "--until-end", "--simple", "--key", "user")
    cli.ok(*run, "--", "jq", "-c", ".n += 1")

    assert [(key, value) for _, key, value in messages(kafka, f"{prefix}.out")] == [
        (b"ann", b'{"user":"ann","n":3}'),
        (b"bob", b'{"user":"bob","n":4}'),
    ]


@pytest.fixture
def app(cli: Cli, prefix: str) -> str:
    """The example app and its script, on categories of this test alone."""
    text = (
        (CLIENTS / "app.py").read_text().replace('"log"', f'"{prefix}.log"').replace('"errors"', f'"{prefix}.errors"')
    )
    text = text.replace("    command", f'    name = "{prefix}.pipe"\n    command')
    (cli.folder / "app.py").write_text(text)
    shutil.copy(CLIENTS / "errors.pl", cli.folder / "errors.pl")
    return "app.py"


def test_a_pipe_of_an_app_runs_is_replayed_and_deployed(
    cli: Cli, app: str, kafka: str, prefix: str, wait_until: Callable[..., None]
) -> None:
    """`run`, `replay`, `status` and `deploy` treat it as any processor; a deployment contains the script."""
    cli.ok("category", "create", app)
    send(kafka, f"{prefix}.log", LOG)
    cli.ok("run", app, "--until-end")
    assert lines_of(kafka, f"{prefix}.errors") == ERRORS
    *replayed, _ = cli.ok("replay", app, "--from", "1h ago", "--json").splitlines()
    assert len(replayed) == len(ERRORS)
    cli.ok("deploy", app)
    (cli.folder / "errors.pl").unlink()  # the deployment has its own copy
    try:
        send(kafka, f"{prefix}.log", [b"ERROR last"])
        wait_until(lambda: b"ERROR last" in lines_of(kafka, f"{prefix}.errors"))
        assert f"{prefix}.pipe" in cli.ok("status", "--json")
    finally:
        cli.ok("undeploy", f"{prefix}.pipe")

    assert lines_of(kafka, f"{prefix}.errors") == sorted([*ERRORS, b"ERROR last"])


def test_ctrl_c_saves_a_last_checkpoint(
    cli: Cli, log: str, kafka: str, prefix: str, wait_until: Callable[..., None]
) -> None:
    """The program survives the signal until everything that it has read is saved."""
    run = ("pipe", log, "--to", f"{prefix}.errors", "--create", "--outputs", "exactly-once")
    worker = cli.start(*run, "--", "cat")
    wait_until(lambda: f"{prefix}.errors" in KafkaBus(KafkaSettings(kafka)).catalog.names())
    wait_until(lambda: len(lines_of(kafka, f"{prefix}.errors")) > 0)
    worker.send_signal(signal.SIGINT)
    worker.communicate(timeout=60)
    cli.ok(*run, "--until-end", "--", "cat")

    assert lines_of(kafka, f"{prefix}.errors") == sorted(LOG)


def test_the_commands_of_the_readme_run(cli: Cli, kafka: str) -> None:
    """Each of the commands writes all lines with ERROR, once."""
    shutil.copytree(CLIENTS, cli.folder / "pipe")
    cli.ok("category", "create", "log", "--buckets", "8")
    send(kafka, "log", LOG)
    commands = re.findall(r"^penstock (.*)$", (CLIENTS / "README.md").read_text(), flags=re.MULTILINE)
    shell = f'set -e\npenstock() {{ {sys.executable} -m penstock "$@"; }}\n' + "\n".join(
        f"penstock {each}" for each in commands
    )
    done = subprocess.run(
        ["bash", "-c", shell], cwd=cli.folder / "pipe", env=cli.environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr

    assert len(commands) == 6
    assert lines_of(kafka, "errors") == sorted(ERRORS * len(commands))
