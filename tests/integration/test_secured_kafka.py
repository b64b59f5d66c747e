"""A bus with TLS and a password: one file contains the settings, and the password appears nowhere else."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import plain
from support.cli import Cli
from support.secured_kafka import PASSWORD, SecuredKafka, secured_kafka
from typer.testing import CliRunner

from penstock.ops.shell.command_line.main import app
from penstock.transport import BusRefuses, BusUnreachable
from penstock.transport.kafka import catalog

APP = '''
import penstock as ps

class Reading(ps.Record, frozen=True):
    meter: str
    at: ps.EventTime
    litres: float

def category(name):
    return ps.Category(name, Reading, key="meter", event_time="at", buckets=2)

readings, large, totals = category("readings"), category("large"), category("totals")

class Large(ps.Stateless):
    """Passes on large readings."""
    reads, writes = readings, large
    def process(self, event):
        if event.litres > 1:
            yield event

class Totals(ps.Stateful):
    """Sums each meter, in transactions."""
    reads, writes, state = large, totals, float
    output_semantics = ps.Semantics.EXACTLY_ONCE
    def process(self, event, state, context):
        total = (state or 0.0) + event.litres
        return total, [Reading(event.meter, event.at, total)]
'''
READINGS = [{"meter": f"m{n % 3}", "at": 1_700_000_000_000 + n, "litres": float(n)} for n in range(60)]
WRONG = "a-wrong-one-of-the-tests"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """A broker for all tests of this file."""
    with secured_kafka(tmp_path_factory.mktemp("secured")) as kafka:
        yield kafka


@pytest.fixture
def penstock(secured: SecuredKafka, tmp_path: Path) -> Iterator[Cli]:
    """The command line in a folder with a configuration, with the password in the environment."""
    (tmp_path / "penstock.toml").write_text(secured.configuration())
    (tmp_path / "app.py").write_text(APP)
    cli = Cli(None, tmp_path)
    cli.environment |= {"KAFKA_PASSWORD": PASSWORD}
    yield cli
    cli.end_all()


def test_a_secured_kafka_works_and_the_password_is_hidden(penstock: Cli, secured: SecuredKafka, tmp_path: Path) -> None:
    """Transactional workers, commands and Spark's Kafka reader use it, at the most verbose log level and with Spark's event log."""
    spark = tmp_path / "spark-events"
    spark.mkdir()
    penstock.environment |= {
        "PENSTOCK_LOG_LEVEL": "debug",
        "PENSTOCK_LOG_FORMAT": "json",
        "PYSPARK_SUBMIT_ARGS": f"--conf spark.eventLog.enabled=true --conf spark.eventLog.dir={spark} --conf spark.eventLog.compress=false "
        "pyspark-shell",
    }
    completed = [
        penstock("category", "create", "app.py"),
        penstock("category", "send", "readings", "--app", "app.py", stdin="\n".join(map(json.dumps, READINGS))),
        penstock("run", "app.py", "--until-end", "--json"),
    ]
    plain.read(secured.bootstrap, "totals", secured.client())  # waits for the markers of the last transaction
    completed += [
        penstock("category", "tail", "totals", "--from", "0", "--no-follow", "--json"),
        penstock("backfill", "app.py:Large", "--from", "2023-11-14", "--to", "now", "--master", "local[1]", "--json"),
    ]
    for done in completed:
        assert done.returncode == 0, done.stderr
    totals = [json.loads(line)["value"] for line in completed[3].stdout.splitlines()]
    [computed] = json.loads(completed[4].stdout)
    logged = [json.loads(line) for line in completed[2].stderr.splitlines()]
    owned = {(line["processor"], tuple(line["buckets"])) for line in logged if "buckets" in line}

    assert max(total["litres"] for total in totals if total["meter"] == "m0") == sum(range(3, 60, 3))
    assert (computed["events_in"], computed["events_out"]) == (60, 58)
    assert {("large", (0, 1)), ("totals", (0, 1))} <= owned
    assert any(b"BatchScan penstock-bus" in file.read_bytes() for file in spark.rglob("events*"))
    assert not occurrences(PASSWORD, completed, tmp_path)


def occurrences(secret: str, completed: list[subprocess.CompletedProcess[str]], folder: Path) -> list[str]:
    """Return where a secret can be read: in the output of commands and in the remaining files."""
    printed = [" ".join(done.args) for done in completed if secret in done.stdout + done.stderr + " ".join(done.args)]
    return printed + [
        str(path) for path in folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()
    ]


@pytest.mark.parametrize(
    ("differing", "says"),
    [
        ({"sasl_password": WRONG}, "sasl.password"),
        ({"sasl_mechanism": "PLAIN"}, "SCRAM-SHA-256"),
        ({"ssl_ca_location": None}, "certificate"),
    ],
)
@pytest.mark.parametrize("command", ["category show", "category create another"])
def test_an_authentication_failure_gives_advice_and_hides_the_password(
    secured: SecuredKafka,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    command: str,
    differing: dict[str, str | None],
    says: str,
) -> None:
    """The command does not treat it as an outage, and ends at once."""
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    (tmp_path / "wrong.toml").write_text(secured.configuration(**differing))
    with pytest.raises(BusRefuses) as refused:
        CliRunner().invoke(app, [*command.split(), "--config", str(tmp_path / "wrong.toml")], catch_exceptions=False)
    message = str(refused.value)

    assert message.startswith(f"Kafka at {secured.bootstrap} refuses this client: ")
    assert says in message
    assert "[kafka-settings]" in message
    for secret in (WRONG, PASSWORD):
        assert secret not in message + "".join(capfd.readouterr())


def test_a_client_without_tls_is_advised_to_enable_it(
    secured: SecuredKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker closes its connection without an error, as a broker that shuts down does."""
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    monkeypatch.setattr(catalog, "ANSWER_LIMIT_S", 1.0)
    (tmp_path / "plain.toml").write_text(secured.configuration(security_protocol="PLAINTEXT"))
    command = ["category", "show", "--config", str(tmp_path / "plain.toml")]
    with pytest.raises(BusUnreachable, match=r"security\.protocol"):
        CliRunner().invoke(app, command, catch_exceptions=False)


def test_a_worker_that_is_refused_ends_with_one_paragraph(penstock: Cli, secured: SecuredKafka, tmp_path: Path) -> None:
    """It has read no events."""
    (tmp_path / "penstock.toml").write_text(secured.configuration(sasl_password=WRONG))
    done = penstock("run", "app.py:Large", "--until-end")

    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith("Error: Kafka at ")
    assert WRONG not in line
