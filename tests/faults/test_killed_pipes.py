"""Programs of pipes and their workers are killed, between the steps of a checkpoint and anywhere; their guarantees hold."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from support.cli import Cli
from support.plain import messages
from support.subjects import PIPES, Subject, events
from support.trials import create_job, expect_guarantees
from support.victims import Kill

from penstock.processors.shard import Gap, steps_of
from penstock.transport import Outgoing
from penstock.transport.kafka import KafkaBus

EVENTS = events(200)
LINES = [b"line %d" % number for number in range(20_000)]
KILLS = 6
PAUSE_S = 0.05
"""How long a program that will be killed takes for a checkpoint: on a busy machine, too, kills come long before the end."""
CASES = [(subject, Gap(before)) for subject in PIPES for before in (*steps_of(subject.make("any")), None)]


@pytest.mark.parametrize(("subject", "gap"), CASES, ids=str)
def test_guarantees_hold_after_a_kill_in_each_gap(
    subject: Subject, gap: Gap, kafka: str, kafka_bus: KafkaBus, tmp_path: Path, prefix: str
) -> None:
    """Each output exists once, at least, or at most, as declared."""
    job = create_job(subject, EVENTS, prefix, kafka_bus, tmp_path)

    assert job.run(Kill(gap)) == -signal.SIGKILL
    assert job.run() == 0
    expect_guarantees(job, EVENTS)


COPY = """#!/usr/bin/env python3
import sys, time
pause_s = float(sys.argv[1])
for line in sys.stdin.buffer:
    sys.stdout.buffer.write(line)
    if line[:1] == b"\\x1e":
        time.sleep(pause_s)
        sys.stdout.buffer.flush()
"""


def kill_child(worker: subprocess.Popen[str]) -> None:
    """Kill the program of a worker, if it runs just now."""
    with suppress(psutil.NoSuchProcess, ProcessLookupError):
        for child in psutil.Process(worker.pid).children():
            os.kill(child.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    "outputs", [pytest.param("at-least-once", marks=pytest.mark.exhaustive), "at-most-once", "exactly-once"]
)
def test_guarantees_hold_when_programs_and_workers_are_killed_anywhere(
    outputs: str,
    cli: Cli,
    kafka: str,
    kafka_bus: KafkaBus,
    prefix: str,
    wait_until: Callable[..., None],
) -> None:
    """Programs are killed several times while each worker lives, and each worker in the end."""
    rng = random.Random(7)
    (cli.folder / "slowly.py").write_text(COPY)
    (cli.folder / "impatient.toml").write_text(
        "[kafka-settings]\nsession.timeout.ms = 2000\nheartbeat.interval.ms = 500\ntransaction.timeout.ms = 2000\n"
    )
    cli.ok("category", "create", f"{prefix}.in", "--buckets", "2")
    cli.ok("category", "create", f"{prefix}.out", "--buckets", "2")
    writer = kafka_bus.writer()
    writer.send(f"{prefix}.in", [Outgoing(b"%d" % (at % 9), line, -1, None) for at, line in enumerate(LINES)])
    writer.flush()
    writer.close()
    options = ("--every", "50", "--outputs", outputs, "--config", "impatient.toml", "--name", f"{prefix}.copy")
    run = ("pipe", f"{prefix}.in", "--to", f"{prefix}.out", *options)
    for _ in range(KILLS):
        before = kafka_bus.catalog.describe(f"{prefix}.out").events
        worker = cli.start(*run, "--", "python3", "slowly.py", str(PAUSE_S))
        wait_until(lambda before=before: kafka_bus.catalog.describe(f"{prefix}.out").events > before)
        for _ in range(3):
            time.sleep(rng.uniform(0, 0.1))
            kill_child(worker)
        time.sleep(rng.uniform(0, 0.1))
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    last = json.loads(cli.ok(*run, "--until-end", "--json", "--", "python3", "slowly.py", "0"))
    written = Counter(value for _, _, value in messages(kafka, f"{prefix}.out"))

    assert last["events_in"] > 0, "all kills came after the end"
    assert written.keys() <= set(LINES)
    if outputs != "at-most-once":
        assert written.keys() == set(LINES)
    if outputs != "at-least-once":
        assert max(written.values()) == 1
