"""A command imports what it needs, so that it answers at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {
    "duckdb",
    "hdfs",
    "pandas",
    "pyarrow",
    "pyspark",
    "redis",
    "psycopg",
    "rocksdict",
    "sqlglot",
    "starlette",
    "supervisor",
}
SCRIPT = """
import sys

from penstock.ops.shell import command_line
from penstock.ops.shell.command_line.table import import_command

import_command(sys.argv[1:])
print(" ".join({name.partition(".")[0] for name in sys.modules}))
"""


def modules_of(*arguments: str) -> set[str]:
    """Return the top-level modules that are imported to parse a command."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, check=True, timeout=240
    )
    return set(done.stdout.split())


def test_help_needs_no_client_and_no_arrays() -> None:
    """The list of commands is known without them."""
    imported = modules_of("--help")

    assert "typer" in imported
    assert not imported & (HEAVY | {"confluent_kafka", "numpy"})


@pytest.mark.parametrize("command", ["status", "logs", "dead-letters"])
def test_a_look_at_the_bus_needs_no_store_no_spark_and_no_server(command: str) -> None:
    """It needs only the client of Kafka."""
    imported = modules_of(command)

    assert "confluent_kafka" in imported
    assert not imported & HEAVY


def test_a_look_at_the_bus_needs_no_process_and_no_web_client() -> None:
    """Only deployments on this machine and local services need them."""
    assert not modules_of("status") & {"http", "psutil"}
