"""The audit log on a real Kafka: who changed what, when and from where."""

from __future__ import annotations

import getpass
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

from support.cli import Cli

from penstock.ops.shell.command_line.main import Penstock
from penstock.ops.shell.command_line.root import commands_of

CHANGING = {
    "alerts silence",
    "backfill",
    "bootstrap",
    "category create",
    "category delete",
    "category resize",
    "category send",
    "clone",
    "dead-letters drop",
    "dead-letters retry",
    "deploy",
    "promote",
    "reads",
    "reset",
    "rollback",
    "scale",
    "serve laser",
    "serve scuba",
    "snapshot delete",
    "snapshot restore",
    "snapshot take",
    "state migrate",
    "undeploy",
    "watermark set",
}
RUNNING = {"alerts run", "archive run", "autoscale", "pipe", "run"}
"""Programs rather than operations; their reports show them."""
OFFLINE = {"archive compact", "dev down", "dev up", "image", "new", "state restore"}
"""They change files of one machine, or of the warehouse, and work without Kafka."""
READING = {
    "acls",
    "alerts list",
    "alerts rules",
    "archive status",
    "audit",
    "bisect",
    "category show",
    "category infer",
    "category tail",
    "compare",
    "config show",
    "dead-letters show",
    "deployments",
    "dev status",
    "doctor",
    "explore",
    "query",
    "replay",
    "serve dashboard",
    "serve metrics",
    "serve results",
    "snapshot show",
    "sql explain",
    "sql from-query",
    "sql shell",
    "sql test",
    "state get",
    "state diff",
    "explain",
    "logs",
    "state show",
    "state verify",
    "status",
    "watermark show",
}


APP = """
import penstock as ps

class Click(ps.Record, frozen=True):
    page: str
    at: ps.EventTime

class Count(ps.Stateful):
    reads = ps.Category("{name}", Click, key="page", event_time="at", buckets=8)
    state = int
    def process(self, event, state, context):
        return (state or 0) + 1, []
"""


def entries(cli: Cli, name: str) -> list[dict[str, Any]]:
    """Return the operations on a category, oldest first."""
    found = json.loads(cli.ok("audit", "--last", "1h", "--json"))
    return [each for each in found if each["arguments"].get("target", each["arguments"].get("name")) == name]


def wide(cli: Cli, command: str) -> str:
    """Return the printed table, on a wide terminal."""
    return cli("audit", "--command", command, COLUMNS="400").stdout


def test_each_change_is_recorded_once_with_its_user_and_outcome(cli: Cli, prefix: str) -> None:
    """A change, a failure and a declined question are recorded. A plan and a command that only reads are not."""
    name = f"{prefix}.clicks"
    began_ms = int(time.time() * 1000)
    cli.ok("category", "create", name, "--buckets", "2")
    assert cli("category", "create", name).returncode == 1
    cli.ok("category", "resize", name, "4", "--stateless", "--dry-run")
    cli.ok("category", "resize", name, "4", "--stateless")
    cli.ok("category", "show", name)
    assert cli("category", "delete", name, stdin="n\n").returncode == 1
    cli.ok("category", "delete", name, "--yes")
    found = entries(cli, name)

    assert [(each["command"], each["outcome"]) for each in found] == [
        ("category create", "done"),
        ("category create", "failed"),
        ("category resize", "done"),
        ("category delete", "interrupted"),
        ("category delete", "done"),
    ]
    assert found[0]["arguments"] == {"target": name, "buckets": "2"}
    assert found[1]["reason"].startswith(f"Category {name} was not created")
    assert found[2]["arguments"] == {"name": name, "buckets": "4", "stateless": "True"}
    assert {(each["user"], each["machine"]) for each in found} == {(getpass.getuser(), socket.gethostname())}
    assert all(began_ms <= each["begun_ms"] <= each["ended_ms"] <= time.time() * 1000 for each in found)
    listed = wide(cli, "category resize")
    assert f"category resize name={name} buckets=4 stateless=True" in listed


def test_a_run_is_recorded_where_it_creates_categories(cli: Cli, prefix: str) -> None:
    """It changes the bus once; its second run creates nothing."""
    name = f"{prefix}.clicks"
    (cli.folder / f"{prefix}.py").write_text(APP.replace("{name}", name))
    for _ in range(2):
        cli.ok("run", f"{prefix}.py", "--create", "--until-end")

    [entry] = entries(cli, f"{prefix}.py")
    assert (entry["command"], entry["outcome"]) == ("run --create", "done")


def test_a_killed_command_is_listed_as_unfinished(cli: Cli, prefix: str, wait_until: Callable[..., None]) -> None:
    """It was recorded before it changed anything."""
    name = f"{prefix}.clicks"
    cli.ok("category", "create", name)
    (cli.folder / "app.py").write_text(APP.replace("{name}", name))
    os.mkfifo(cli.folder / "never")  # nothing writes to it, so the command waits
    sending = cli.start("category", "send", name, "--app", "app.py", "never")
    wait_until(lambda: [each["command"] for each in entries(cli, name)] == ["category create", "category send"])
    sending.send_signal(signal.SIGKILL)
    sending.communicate()

    assert entries(cli, name)[-1]["ended_ms"] is None
    assert "unfinished" in wide(cli, "category send")


def test_secrets_are_not_recorded(cli: Cli, prefix: str) -> None:
    """An address is recorded without its password."""
    target = f"{prefix}.py"
    secret = "hunter2-of-this-test"  # noqa: S105 - of no one
    (cli.folder / target).write_text("import penstock as ps\n")
    refused = cli("bootstrap", target, "--store", f"postgresql://jo:{secret}@127.0.0.1:1/x")
    assert refused.returncode != 0
    [entry] = entries(cli, target)

    assert entry["outcome"] == "failed"
    assert "jo" in entry["arguments"]["store"]
    assert secret not in json.dumps(entry)


def test_an_operation_without_a_log_continues(cli: Cli) -> None:
    """The command fails by itself, after a note that it was not recorded."""
    done = cli("category", "delete", "clicks", "--yes", "--kafka", "127.0.0.1:1")

    assert done.returncode == 1
    assert "`penstock category delete` is not in the audit log" in done.stderr
    assert "No Kafka broker answers" in done.stderr


def test_every_command_is_recorded_or_changes_nothing() -> None:
    """A new command must be put into one of these groups."""
    commands = {" ".join(words): command for words, command in leaves(Penstock(name="penstock"))}
    recorded = {name: getattr(command.callback, "audited", None) for name, command in commands.items()}

    assert set(commands) == CHANGING | RUNNING | OFFLINE | READING
    assert {name: words for name, words in recorded.items() if words} == {name: name for name in CHANGING}


def leaves(root: Any) -> list[tuple[tuple[str, ...], Any]]:
    """Return all commands with their words."""
    found = []
    for words in commands_of(root):
        command = root
        for word in words:
            command = command.commands[word]
        if words:
            found.append((words, command))
    return found
