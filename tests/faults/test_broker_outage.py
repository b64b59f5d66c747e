"""During a broker outage that exceeds every client timeout, workers wait, and can be started and stopped."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.browser import Browser
from support.cli import Cli
from support.exactness import expect_totals_count_each_reading_once
from support.kafka_proxy import (
    DESCRIBE_CONFIGS,
    FIND_COORDINATOR,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FETCH,
    KafkaProxy,
)
from support.meters import readings
from support.subjects import EXACT, PAIRS, Subject, events
from support.trials import create_job, expect_guarantees
from support.victims import LIMIT_S, SHORT_TIMEOUTS, Job, exit_code_of

from penstock.ops.kernel import prepare
from penstock.transport import BusUnreachable, Catalog
from penstock.transport.kafka import KafkaBus, KafkaSettings
from penstock.transport.kafka.catalog import DECISION_LIMIT_S

EVENTS = events(1_500)
SUBJECTS = [Subject("stateful", *pair) for pair in PAIRS] + [Subject("stateless", EXACT, EXACT)]
IMPATIENT = {**SHORT_TIMEOUTS, "message.timeout.ms": "2000", "socket.timeout.ms": "2000"}
"""Sessions, transactions and messages that time out long before the outage ends."""
OUTAGE_S = 12.0
DONE_LIMIT_S = 400.0

Wait = Callable[..., None]


@pytest.fixture
def outer(through_proxy: tuple[str, KafkaProxy], tmp_path: Path) -> Iterator[Cli]:
    """The command line with the proxy's address."""
    cli = Cli(through_proxy[0], tmp_path)
    yield cli
    cli.end_all()


def committed(bus: KafkaBus, job: Job) -> int:
    """Return the number of events that a job's group has committed, or 0 if it is unknown."""
    with suppress(BusUnreachable):  # after the outage, this process's client rests before it connects again
        return sum(bus.catalog.committed(f"{job.prefix}.subject", f"{job.prefix}.events").values())
    return 0


def test_workers_of_every_row_outlast_a_long_outage(
    through_proxy: tuple[str, KafkaProxy], proxy: KafkaProxy, tmp_path: Path, prefix: str, wait_until: Wait
) -> None:
    """Their sessions, transactions and messages time out: no worker ends, and each row's guarantee holds."""
    bus = KafkaBus(KafkaSettings(through_proxy[0]))
    jobs = []
    for number, subject in enumerate(SUBJECTS):
        folder = tmp_path / str(number)
        folder.mkdir()
        made = create_job(subject, EVENTS, f"{prefix}.{number}", bus, folder)
        prepare(subject.make(made.prefix), bus).close()
        jobs.append(Job(subject, made.prefix, made.kafka, folder, settings=IMPATIENT, batch=10, endless=True))
    workers = [job.start() for job in jobs]
    try:
        wait_until(lambda: all(committed(bus, job) for job in jobs), DONE_LIMIT_S)
        proxy.cut_off()
        time.sleep(OUTAGE_S)
        proxy.let_through()
        wait_until(lambda: all(committed(bus, job) >= len(EVENTS) for job in jobs), DONE_LIMIT_S)
        assert [worker.exitcode for worker in workers] == [None] * len(workers)
        for worker in workers:
            os.kill(worker.pid or 0, signal.SIGTERM)
        assert [exit_code_of(worker, LIMIT_S) for worker in workers] == [0] * len(workers)
    finally:
        for worker in workers:
            worker.kill()
    for job in jobs:
        expect_guarantees(job, EVENTS)


def test_a_worker_that_starts_during_an_outage_waits(
    through_proxy: tuple[str, KafkaProxy], proxy: KafkaProxy, outer: Cli, app: Path, prefix: str
) -> None:
    """It logs that it waits, and continues when the broker is back; with `--fail-fast` it ends."""
    outer.ok("category", "create", str(app))
    outer.ok("category", "send", f"{prefix}.readings", "--app", str(app), stdin=readings(300))
    outer.ok("run", f"{app}:Large", "--until-end")
    proxy.cut_off()
    hasty = outer("run", f"{app}:Totals", "--until-end", "--fail-fast")
    assert hasty.returncode == 1
    worker = outer.start("run", f"{app}:Totals", "--until-end")
    assert worker.stderr is not None
    line = ""
    while "--fail-fast ends instead" not in line:
        line = worker.stderr.readline()
        assert worker.poll() is None
    proxy.let_through()
    worker.communicate(timeout=DONE_LIMIT_S)

    assert worker.returncode == 0
    expect_totals_count_each_reading_once(through_proxy[0], prefix, 300)


@pytest.mark.parametrize("processor", ["Large", "Totals"])
def test_a_worker_that_is_stopped_during_an_outage_ends_in_time(
    through_proxy: tuple[str, KafkaProxy],
    proxy: KafkaProxy,
    outer: Cli,
    app: Path,
    prefix: str,
    wait_until: Wait,
    processor: str,
) -> None:
    """The next worker repeats the work that it could not save."""
    exact = app.with_name("exact.py")
    exact.write_text(
        app.read_text().replace(
            "    reads, writes", "    output_semantics = ps.Semantics.EXACTLY_ONCE\n    reads, writes"
        )
    )
    bus = KafkaBus(KafkaSettings(through_proxy[0]))
    outer.ok("category", "create", str(exact))
    outer.ok("category", "send", f"{prefix}.readings", "--app", str(exact), stdin=readings(3_000))
    if processor == "Totals":
        outer.ok("run", f"{exact}:Large", "--until-end")
    read = {"Large": "readings", "Totals": "large"}[processor]
    worker = outer.start("run", f"{exact}:{processor}", "--stop-within", "5")
    wait_until(lambda: bool(bus.catalog.committed(f"{prefix}.{processor.lower()}", f"{prefix}.{read}")))
    proxy.cut_off()
    time.sleep(2)
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=LIMIT_S)
    proxy.let_through()

    assert worker.returncode in {0, 75}  # everything may have been saved before
    outer.ok("run", str(exact), "--until-end")
    expect_totals_count_each_reading_once(through_proxy[0], prefix, 3_000)


REQUESTS: list[tuple[int, Callable[[Catalog, str, str], object]]] = [
    (METADATA, lambda catalog, _, name: catalog.topics([name])),
    (DESCRIBE_CONFIGS, lambda catalog, _, name: catalog.durability(name)),
    (LIST_OFFSETS, lambda catalog, _, name: catalog.ends(name)),
    (FIND_COORDINATOR, lambda catalog, group, name: catalog.committed(group, name)),
    (OFFSET_FETCH, lambda catalog, group, name: catalog.committed(group, name)),
]


@pytest.mark.parametrize(("request_", "call"), REQUESTS, ids=["topics", "settings", "ends", "coordinator", "positions"])
def test_a_request_ends_if_the_broker_goes_away_during_it(
    through_proxy: tuple[str, KafkaProxy],
    proxy: KafkaProxy,
    outer: Cli,
    app: Path,
    prefix: str,
    request_: int,
    call: Callable[[Catalog, str, str], object],
) -> None:
    """Neither monitoring nor a worker would otherwise report the outage."""
    outer.ok("category", "create", str(app))
    catalog = KafkaBus(KafkaSettings(through_proxy[0])).catalog
    catalog.names()
    proxy.cut_at = request_
    failed: list[BusUnreachable] = []

    def request() -> None:
        with pytest.raises(BusUnreachable, match="No Kafka broker answers") as raised:
            call(catalog, f"{prefix}.large", f"{prefix}.readings")
        failed.append(raised.value)

    requesting = threading.Thread(target=request, daemon=True)
    requesting.start()
    requesting.join(DECISION_LIMIT_S / 2)

    assert failed


@pytest.mark.parametrize(
    ("command", "ready"),
    [
        (("archive", "run", "APP", "--until-end"), "Archived 300 events"),
        (("alerts", "run", "APP", "--every", "0.5"), "Kafka answers, after"),
        pytest.param(("serve", "metrics", "--port", "0"), "Metrics are at", marks=pytest.mark.exhaustive),
        pytest.param(("status", "APP", "--watch", "--json"), "Kafka answers, after", marks=pytest.mark.exhaustive),
    ],
    ids=lambda it: it[0] if isinstance(it, tuple) else "",
)
def test_other_commands_that_start_during_an_outage_wait(
    proxy: KafkaProxy, outer: Cli, app: Path, prefix: str, command: tuple[str, ...], ready: str
) -> None:
    """Each reports that it waits, and completes when the broker is back."""
    outer.ok("category", "create", str(app))
    outer.ok("category", "send", f"{prefix}.readings", "--app", str(app), stdin=readings(300))
    proxy.cut_off()
    process = outer.start(*(str(app) if word == "APP" else word for word in command))
    assert process.stderr is not None
    line = ""
    while "--fail-fast ends instead" not in line:
        line = process.stderr.readline()
        assert line, "it ended"
    proxy.let_through()
    while ready not in line:
        line = process.stderr.readline()
        assert line, "it ended"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=DONE_LIMIT_S)


def test_a_dashboard_shows_the_last_known_status_during_an_outage(
    browser: Browser, proxy: KafkaProxy, outer: Cli, app: Path, prefix: str, wait_until: Wait
) -> None:
    """It shows the age and the reason, even if it was started during the outage. Afterwards it continues by itself."""
    outer.ok("category", "create", str(app))
    first, address = dashboard(outer, app)
    browser.show(address)
    wait_until(lambda: prefix in browser.text("table tbody"))
    proxy.cut_off()
    wait_until(lambda: "last known status" in browser.text("#banner"), DONE_LIMIT_S)
    first.terminate()
    first.wait(DONE_LIMIT_S)
    _, address = dashboard(outer, app)
    browser.show(address)
    wait_until(lambda: re.search(r"last known status, .* old", browser.text("#banner")) is not None, DONE_LIMIT_S)
    shown = browser.text("table tbody")
    proxy.let_through()
    wait_until(lambda: browser.text("#banner") == "", DONE_LIMIT_S)

    assert prefix in shown


def dashboard(cli: Cli, app: Path) -> tuple[subprocess.Popen[str], str]:
    """Start a dashboard; return its process and its address."""
    process = cli.start("serve", "dashboard", str(app), "--port", "0")
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"The dashboard is at (http://\S+)", line):
            return process, found[1]
    raise AssertionError("it ended")
