"""A bus that requires tokens, which a function of the user's returns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.cli import Cli
from support.token_kafka import TOKENS, configuration, token_kafka

APP = '''
import penstock as ps

class Reading(ps.Record, frozen=True):
    meter: str
    at: ps.EventTime

readings = ps.Category("readings", Reading, key="meter", event_time="at", buckets=2)
passed = ps.Category("passed", Reading, key="meter", event_time="at", buckets=2)

class Passed(ps.Stateless):
    """Passes readings on, in transactions."""
    reads, writes = readings, passed
    output_semantics = ps.Semantics.EXACTLY_ONCE
    def process(self, event):
        yield event
'''

TOKENS_OF_A_WORKER = 40
"""Several for each of its clients."""


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker for all tests of this file."""
    with token_kafka(tmp_path_factory.mktemp("tokens")) as address:
        yield address


@pytest.fixture
def penstock(bootstrap: str, tmp_path: Path) -> Iterator[Cli]:
    """The command line in a folder with an app, a module of tokens and a configuration."""
    (tmp_path / "penstock.toml").write_text(configuration(bootstrap, "tokens:token"))
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "tokens.py").write_text(TOKENS)
    cli = Cli(None, tmp_path)
    yield cli
    cli.end_all()


def made(folder: Path) -> int:
    """Return how many tokens were made."""
    return len((folder / "made").read_text())


def test_every_client_gets_tokens_and_new_ones_before_they_expire(
    penstock: Cli, tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    """A worker with transactions lives longer than its tokens, and the broker lets it authenticate again."""
    penstock.ok("category", "create", "app.py")
    before = made(tmp_path)
    worker = penstock.start("run", "app.py")
    wait_until(lambda: made(tmp_path) >= before + TOKENS_OF_A_WORKER or worker.poll() is not None, 240)
    send = ("category", "send", "readings", "--app", "app.py")
    penstock.ok(*send, stdin="".join(json.dumps({"meter": f"m{n}", "at": n}) + "\n" for n in range(20)))

    def passed() -> list[str]:
        return penstock.ok("category", "tail", "passed", "--from", "0", "--no-follow", "--json").splitlines()

    wait_until(lambda: len(passed()) >= 20, 240)
    worker.terminate()
    _, err = worker.communicate(timeout=240)

    assert len(passed()) == 20
    assert worker.returncode == 0, err
    assert "refuses this client" not in err


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("tokens:failing", "the token service is closed"),
        ("tokens:expired", "has expired; compare this machine's clock"),
    ],
)
def test_a_function_that_returns_no_token_is_named(penstock: Cli, bootstrap: str, function: str, says: str) -> None:
    """The log names it; the error of the command does not blame the brokers alone."""
    (penstock.folder / "penstock.toml").write_text(configuration(bootstrap, function))
    done = penstock("category", "show")

    assert done.returncode == 1
    assert f"The token function {function} failed: " in done.stderr
    assert says in done.stderr
    assert "there was no token for the Kafka client within 10 s" in done.stderr
    assert "Traceback" not in done.stderr
