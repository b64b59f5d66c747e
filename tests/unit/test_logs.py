"""Log lines as text and as JSON."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import penstock as ps
from penstock.command import main
from penstock.ops.kernel import Driver
from penstock.ops.shell import EventFields, note, print_error, with_log_fields, with_log_filter
from penstock.ops.shell.logs.setup import LogFormat, LogLevel, configure_logging
from penstock.processors import PenstockError
from penstock.transport.kafka import KafkaSettings


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Restore the logging configuration after each test."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)


def lines(text: str) -> list[dict[str, Any]]:
    """Parse JSON lines."""
    return [json.loads(line) for line in text.splitlines()]


def test_a_json_line_contains_time_level_logger_processor_and_message(capsys: pytest.CaptureFixture[str]) -> None:
    """It also contains extra fields, the class of an error, and a stack trace, on one line."""
    configure_logging(LogFormat.JSON, LogLevel.INFO)
    log = logging.getLogger("penstock.worker")
    with with_log_fields(processor="scorer", worker="ab-0"):
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


def test_a_text_line_names_the_processor(capsys: pytest.CaptureFixture[str]) -> None:
    """Several processors may share a terminal. Extra fields follow the message."""
    configure_logging(LogFormat.PRETTY, LogLevel.WARNING)
    with with_log_fields(processor="scorer", worker="ab-0"):
        logging.getLogger("penstock.worker").warning("Late.", extra={"behind_s": 3})
    logging.getLogger("penstock.worker").info("below the level")

    assert capsys.readouterr().err.rstrip().endswith("WARNING scorer: Late. behind_s=3")


def test_a_level_applies_to_all_but_verbose_libraries(capsys: pytest.CaptureFixture[str]) -> None:
    """It includes loggers of the user's code."""
    configure_logging(LogFormat.PRETTY, LogLevel.DEBUG)
    for name in ("mine", "penstock.state", "py4j.clientserver"):
        logging.getLogger(name).debug("from %s", name)
    errors = capsys.readouterr().err

    assert "from mine" in errors
    assert "from penstock.state" in errors
    assert "py4j" not in errors


def test_notes_and_errors_are_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Standard error contains no other lines."""
    configure_logging(LogFormat.JSON, LogLevel.INFO)
    note("Created.")
    print_error("It broke.")

    assert [(line["level"], line["message"]) for line in lines(capsys.readouterr().err)] == [
        ("info", "Created."),
        ("error", "It broke."),
    ]


def test_a_failed_command_logs_its_error_as_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The environment variable selects the format."""
    monkeypatch.delenv("PENSTOCK_KAFKA", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_LOG_FORMAT", "json")
    monkeypatch.setattr(sys, "argv", ["penstock", "category", "show"])
    with pytest.raises(SystemExit) as exit_:
        main()
    [line] = lines(capsys.readouterr().err)

    assert exit_.value.code == 1
    assert line["level"] == "error"
    assert line["message"].startswith("No Kafka cluster is named")


@pytest.mark.parametrize("level", [LogLevel.DEBUG, LogLevel.WARNING])
def test_lines_of_the_kafka_client_have_the_same_format(
    level: LogLevel, capfd: pytest.CaptureFixture[str], wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    """With DEBUG, they report each connection attempt; otherwise, one line reports the outage."""
    configure_logging(LogFormat.JSON, level)
    producer, logged = Producer(KafkaSettings("127.0.0.1:1").for_writer()), []

    def is_logged() -> bool:
        producer.poll(0.1)
        logged.extend(lines(capfd.readouterr().err))
        loggers = {line["logger"] for line in logged}
        return "penstock.kafka" in loggers and (level is not LogLevel.DEBUG or "penstock.kafka.client" in loggers)

    wait_until(is_logged)
    assert level is LogLevel.DEBUG or {line["logger"] for line in logged} == {"penstock.kafka"}


def test_an_unwritable_folder_is_named_without_a_stack_trace(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The file system's reason is part of the message."""
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["penstock", "dev", "up", "kafka", "--dir", str(tmp_path / "file")])

    with pytest.raises(SystemExit) as exit_:
        main()

    error = " ".join(capsys.readouterr().err.split())
    assert exit_.value.code == 1
    assert "File exists. The command stopped" in error
    assert "Traceback" not in error


class Reading(ps.Record, frozen=True):
    """A reading of a meter."""

    meter: str
    at: ps.EventTime


readings = ps.Category("readings", Reading, key="meter", event_time="at", buckets=2)
copies = ps.Category("copies", Reading, key="meter", event_time="at", buckets=2)
LOG = logging.getLogger("shop.meters")
READINGS = [Reading(f"m{number % 3}", number) for number in range(20)]


def helper(event: Reading) -> None:
    """Log in a function that `process` calls."""
    LOG.warning("reading %d", event.at)


class Logging(ps.Stateless[Reading, Reading]):
    """Logs some events."""

    reads, writes = readings, copies

    def process(self, event: Reading) -> list[Reading]:
        if event.at % 7 == 0:
            helper(event)
        return []


class LoggingAsync(ps.Stateless[Reading, Reading]):
    """Logs in concurrent calls."""

    reads, writes = readings, copies

    async def process(self, event: Reading) -> list[Reading]:
        await asyncio.sleep(0)
        if event.at % 7 == 0:
            await asyncio.sleep(0)
            helper(event)
        return []


class LoggingState(ps.Stateful[Reading, int, Reading]):
    """Logs some events, and in timers."""

    reads, writes, state = readings, copies, int
    watermark = ps.watermarks.BoundedOutOfOrderness(timedelta(0))

    def process(self, event: Reading, state: int | None, context: ps.Context) -> tuple[int, list[Reading]]:
        if event.at % 7 == 0:
            helper(event)
        if event.at == 1:
            context.timer(4)
        return 1, []

    def on_timer(self, timer: ps.Timer, state: int, context: ps.Context) -> tuple[int, list[Reading]]:
        LOG.warning("timer")
        return state, []


@pytest.mark.parametrize("processor", [Logging, LoggingAsync, LoggingState])
def test_a_line_of_user_code_contains_the_event(
    processor: type[ps.Processor], capsys: pytest.CaptureFixture[str]
) -> None:
    """The line has its bucket, offset and key, also in functions that the processor calls. A timer has the key and its time."""
    configure_logging(LogFormat.JSON, LogLevel.WARNING)
    driver = Driver(processor)
    with with_log_filter(EventFields()):
        driver.send(readings, READINGS)
        LOG.warning("outside")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    offsets: dict[int, int] = {}
    expected = set()
    for reading in READINGS:
        bucket = readings.bucket_of(reading.meter)
        offset = offsets[bucket] = offsets.get(bucket, -1) + 1
        if reading.at % 7 == 0:
            expected.add((f"reading {reading.at}", f"readings/{bucket}", offset, reading.meter))

    found = {
        (line["message"], line["bucket"], line["offset"], line["key"]) for line in lines if "reading" in line["message"]
    }
    assert found == expected
    timers = [line for line in lines if line["message"] == "timer"]
    assert [(line["key"], line["timer"]) for line in timers] == ([("m1", 4)] if processor is LoggingState else [])
    assert not any("offset" in line for line in timers)
    [outside] = [line for line in lines if line["message"] == "outside"]
    assert not {"bucket", "offset", "key"} & outside.keys()
