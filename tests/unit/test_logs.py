"""Lines of the log, for people and for programs."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from penstock.ops.cli import main
from penstock.ops.cli.output import complain, note
from penstock.ops.logs.setup import LogFormat, LogLevel, on_each_line, set_up
from penstock.processors.errors import PenstockError
from penstock.transport.kafka import KafkaSettings


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Other tests find the log as it was."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)


def lines(text: str) -> list[dict[str, Any]]:
    """Lines for programs, read."""
    return [json.loads(line) for line in text.splitlines()]


def test_a_line_for_programs_says_when_how_grave_whence_for_whom_and_what(capsys: pytest.CaptureFixture[str]) -> None:
    """With the fields that were given, the kind of an error, and a trace where there is one; each on one line."""
    set_up(LogFormat.JSON, LogLevel.INFO)
    log = logging.getLogger("penstock.worker")
    with on_each_line(processor="scorer", worker="ab-0"):
        log.info("saved %d\nevents", 3, extra={"buckets": [1, 2], "place": Path("x")})
        log.warning("%s", PenstockError("It broke."))
        try:
            float("why")
        except ValueError:
            log.exception("failed")
    log.error("alone")
    saved, broke, failed, alone = lines(capsys.readouterr().err)

    assert saved.pop("time").endswith("Z")
    assert saved == {
        "level": "info",
        "logger": "penstock.worker",
        "processor": "scorer",
        "worker": "ab-0",
        "message": "saved 3\nevents",
        "buckets": [1, 2],
        "place": "x",
    }
    assert (broke["message"], broke["error"], broke["level"]) == ("It broke.", "PenstockError", "warning")
    assert failed["exception"].endswith("could not convert string to float: 'why'")
    assert "processor" not in alone


def test_a_line_for_people_says_of_which_processor_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Of several that share a terminal; what was given beside the message is told."""
    set_up(LogFormat.PRETTY, LogLevel.WARNING)
    with on_each_line(processor="scorer", worker="ab-0"):
        logging.getLogger("penstock.worker").warning("Late.", extra={"behind_s": 3})
    logging.getLogger("penstock.worker").info("not grave enough")

    assert capsys.readouterr().err.rstrip().endswith("WARNING scorer: Late. behind_s=3")


def test_a_level_is_for_all_but_what_libraries_tell_of_each_request(capsys: pytest.CaptureFixture[str]) -> None:
    """What the user's own code says is told as well."""
    set_up(LogFormat.PRETTY, LogLevel.DEBUG)
    for name in ("mine", "penstock.state", "py4j.clientserver"):
        logging.getLogger(name).debug("of %s", name)
    said = capsys.readouterr().err

    assert "of mine" in said
    assert "of penstock.state" in said
    assert "py4j" not in said


def test_notes_and_errors_are_lines_for_programs_where_all_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing else comes between."""
    set_up(LogFormat.JSON, LogLevel.INFO)
    note("Created.")
    complain("It broke.")

    assert [(line["level"], line["message"]) for line in lines(capsys.readouterr().err)] == [
        ("info", "Created."),
        ("error", "It broke."),
    ]


def test_a_command_that_fails_says_so_in_the_form_that_was_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also in the environment's."""
    monkeypatch.delenv("PENSTOCK_KAFKA", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_LOG_FORMAT", "json")
    monkeypatch.setattr(sys, "argv", ["penstock", "category", "list"])
    with pytest.raises(SystemExit) as ended:
        main()
    [line] = lines(capsys.readouterr().err)

    assert ended.value.code == 1
    assert line["level"] == "error"
    assert line["message"].startswith("No Kafka cluster is named")


@pytest.mark.parametrize("level", [LogLevel.DEBUG, LogLevel.WARNING])
def test_what_the_kafka_client_says_goes_the_same_way(
    level: LogLevel, capfd: pytest.CaptureFixture[str], wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    """Its attempts to reach a broker, for who wants details; else one line, which is ours."""
    set_up(LogFormat.JSON, level)
    producer, said = Producer(KafkaSettings("127.0.0.1:1").for_writer()), []

    def told() -> bool:
        producer.poll(0.1)
        said.extend(lines(capfd.readouterr().err))
        loggers = {line["logger"] for line in said}
        return "penstock.kafka" in loggers and (level is not LogLevel.DEBUG or "penstock.kafka.client" in loggers)

    wait_until(told)
    assert level is LogLevel.DEBUG or {line["logger"] for line in said} == {"penstock.kafka"}
