"""`penstock run` on a real broker: outputs, shutdown, and errors."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from support.cli import Cli
from support.exactness import expect_hours_count_each_reading_once, expect_totals_count_each_reading_once
from support.meters import readings

from penstock.ops.start.dev_services.services import LocalServices
from penstock.transport import BusUnreachable
from penstock.transport.kafka import KafkaBus, KafkaSettings


def members(kafka: str, group: str) -> int:
    """Count the members of a group that own buckets."""
    admin = AdminClient({"bootstrap.servers": kafka})  # its futures resolve only while it exists
    description = admin.describe_consumer_groups([group])[group].result(timeout=60)
    return sum(bool(member.assignment.topic_partitions) for member in description.members)


def test_a_whole_app_runs_to_the_end(cli: Cli, app: Path, prefix: str, kafka: str) -> None:
    """It has all three kinds and two codecs, and each processor has its own process. Every result equals an independent computation."""
    cli.ok("category", "create", str(app))
    cli.ok("category", "send", f"{prefix}.readings", "--app", str(app), stdin=readings(3000))
    cli.ok("run", str(app), "--until-end")

    expect_totals_count_each_reading_once(kafka, prefix, 3000)
    expect_hours_count_each_reading_once(kafka, prefix, 3000)


def test_a_second_run_resumes_where_the_first_ended(cli: Cli, app: Path, prefix: str, kafka: str) -> None:
    """State and positions persist; no event is processed twice."""
    cli.ok("category", "create", str(app))
    for start in (0, 1000, 2000):
        cli.ok("category", "send", f"{prefix}.readings", "--app", str(app), stdin=readings(1000, start=start))
        cli.ok("run", str(app), "--until-end")

    expect_totals_count_each_reading_once(kafka, prefix, 3000)
    expect_hours_count_each_reading_once(kafka, prefix, 3000)


def test_sigterm_ends_with_a_last_checkpoint(
    cli: Cli, app: Path, prefix: str, kafka: str, kafka_bus: KafkaBus, wait_until: Callable[..., None]
) -> None:
    """It is stopped in the middle and restarted, and counts each event once."""
    cli.ok("category", "create", str(app))
    cli.ok("category", "send", f"{prefix}.readings", "--app", str(app), stdin=readings(3000))
    cli.ok("run", f"{app}:Large", "--until-end")
    worker = cli.start("run", f"{app}:Totals", "--json")
    wait_until(lambda: bool(kafka_bus.catalog.committed(f"{prefix}.totals", f"{prefix}.large")))
    worker.send_signal(signal.SIGTERM)
    out, err = worker.communicate(timeout=60)
    assert worker.returncode == 0, err
    cli.ok("category", "send", f"{prefix}.readings", "--app", str(app), stdin=readings(1000, start=3000))
    cli.ok("run", str(app), "--until-end")

    assert json.loads(out)["events_in"] > 0
    expect_totals_count_each_reading_once(kafka, prefix, 4000)


def test_two_workers_share_the_buckets_and_hand_state_over(
    cli: Cli, app: Path, prefix: str, kafka: str, kafka_bus: KafkaBus, wait_until: Callable[..., None]
) -> None:
    """Buckets move to a worker that joins and back from one that leaves, and every total is exact."""
    cli.ok("category", "create", str(app))

    def done() -> bool:
        ends = kafka_bus.catalog.describe(f"{prefix}.large").ends
        return sum(kafka_bus.catalog.committed(f"{prefix}.totals", f"{prefix}.large").values()) == sum(ends.values())

    def feed(start: int) -> None:
        cli.ok("category", "send", f"{prefix}.readings", "--app", str(app), stdin=readings(1000, start=start))
        cli.ok("run", f"{app}:Large", "--until-end")
        wait_until(done)

    first = cli.start("run", f"{app}:Totals", "--json")
    feed(0)
    second = cli.start("run", f"{app}:Totals", "--json")
    feed(1000)
    wait_until(lambda: members(kafka, f"{prefix}.totals") == 2)
    feed(2000)
    first.send_signal(signal.SIGTERM)
    assert first.wait(60) == 0
    feed(3000)
    second.send_signal(signal.SIGTERM)
    out, err = second.communicate(timeout=60)

    assert json.loads(out)["events_in"] > 0, err
    expect_totals_count_each_reading_once(kafka, prefix, 4000)


def test_a_whole_app_stops_cleanly(
    cli: Cli, app: Path, prefix: str, kafka: str, kafka_bus: KafkaBus, wait_until: Callable[..., None]
) -> None:
    """On SIGTERM, every processor saves a last checkpoint. After a restart, nothing is processed twice."""
    cli.ok("category", "create", str(app))
    cli.ok("category", "send", f"{prefix}.readings", "--app", str(app), stdin=readings(2000))
    running = cli.start("run", str(app))
    wait_until(lambda: kafka_bus.catalog.describe(f"{prefix}.totals").events > 0)
    running.send_signal(signal.SIGTERM)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 0, err
    cli.ok("run", str(app), "--until-end")

    expect_totals_count_each_reading_once(kafka, prefix, 2000)
    expect_hours_count_each_reading_once(kafka, prefix, 2000)


def test_a_worker_without_buckets_ends_with_the_others(cli: Cli, app: Path, prefix: str, kafka: str) -> None:
    """With more workers than buckets, `--until-end` ends for each, and every event counts once."""
    cli.ok("category", "create", str(app))
    cli.ok("category", "send", f"{prefix}.readings", "--app", str(app), stdin=readings(2000))
    cli.ok("run", f"{app}:Large", "--until-end")
    workers = [cli.start("run", f"{app}:Totals", "--until-end") for _ in range(5)]
    for worker in workers:
        _, err = worker.communicate(timeout=240)  # five processes start at once
        assert worker.returncode == 0, err

    expect_totals_count_each_reading_once(kafka, prefix, 2000)


def test_a_worker_outlives_its_broker(app: Path, prefix: str, tmp_path: Path, wait_until: Callable[..., None]) -> None:
    """It waits while the broker is down and continues when the broker is back; nothing is lost."""
    services, cli = LocalServices(tmp_path / "own"), None
    try:
        bootstrap = services.up(["kafka"], progress=print)["kafka"].endpoints["bootstrap"]
        cli, catalog = Cli(bootstrap, tmp_path), KafkaBus(KafkaSettings(bootstrap)).catalog

        def read(wanted: int) -> bool:
            try:
                return sum(catalog.committed(f"{prefix}.large", f"{prefix}.readings").values()) == wanted
            except BusUnreachable:
                return False

        cli.ok("category", "create", str(app))
        worker = cli.start("run", f"{app}:Large", "--json")
        for start in (0, 1000):
            cli.ok("category", "send", f"{prefix}.readings", "--app", str(app), stdin=readings(1000, start=start))
            wait_until(lambda start=start: read(start + 1000))
            services.down(["kafka"], progress=print)
            assert services.up(["kafka"], progress=print)["kafka"].endpoints["bootstrap"] == bootstrap
        worker.send_signal(signal.SIGTERM)
        out, err = worker.communicate(timeout=60)
    finally:
        if cli is not None:
            cli.end_all()
        services.down(["kafka"], progress=print)

    assert worker.returncode == 0, err
    assert json.loads(out)["events_in"] == 2000


def test_a_bad_message_becomes_a_dead_letter_and_is_counted(cli: Cli, app: Path, prefix: str, kafka: str) -> None:
    """Its bytes and origin are readable; the good messages around it are processed."""
    cli.ok("category", "create", str(app))
    producer = Producer({"bootstrap.servers": kafka})
    for value in (b'{"meter":"m1","at":1,"litres":10}', b"\xff{", b'{"meter":"m1","at":2,"litres":20}'):
        producer.produce(f"{prefix}.readings", value, b"m1")
    producer.flush()
    done = cli("run", f"{app}:Large", "--until-end", "--json")
    tail = cli.ok("category", "tail", f"{prefix}.large.dead_letters", "--from", "0", "--limit", "1", "--json")
    letter = json.loads(tail)["value"]

    assert done.returncode == 0, done.stderr
    tally = json.loads(done.stdout)
    assert (tally["events_in"], tally["events_out"], tally["dead_letters"]) == (3, 2, 1)
    assert (letter["category"], letter["offset"], letter["value"]) == (f"{prefix}.readings", 1, "\\xff{")
    assert f"{prefix}.readings" in done.stderr


def test_a_run_that_rejects_every_message_fails(cli: Cli, app: Path, prefix: str, kafka: str) -> None:
    """A script must not take it for a success."""
    cli.ok("category", "create", str(app))
    producer = Producer({"bootstrap.servers": kafka})
    for meter in ("m1", "m2"):
        producer.produce(f"{prefix}.readings", b"\xff{", meter.encode())
    producer.flush()

    fails(
        cli("run", f"{app}:Large", "--until-end"),
        "read 2 events and rejected every one",
        f"{prefix}.large.dead_letters",
    )


def fails(done: Any, *says: str) -> None:
    """Check that a command fails properly: one paragraph, no stack trace, a non-zero exit code."""
    assert done.returncode not in {0, None}
    assert "Traceback" not in done.stderr
    assert sum(line.startswith("Error:") for line in done.stderr.splitlines()) == 1, done.stderr
    for words in says:
        assert words in " ".join(done.stderr.split()), done.stderr


def test_an_unreachable_broker_is_named(cli: Cli, app: Path) -> None:
    """The error contains its address and what to check."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    fails(
        cli("run", f"{app}:Large", "--fail-fast", PENSTOCK_KAFKA=address),
        address,
        "No Kafka broker answers",
        "refuses the connection, so nothing listens there",
        "Start the broker, or correct the address",
    )


COMMANDS_THAT_DO_NOT_WAIT = (
    ("category", "show"),
    ("status",),
    ("alerts", "list"),
    ("serve", "metrics", "--once"),
    ("archive", "run", "APP", "--fail-fast"),
    ("alerts", "run", "--fail-fast"),
    ("serve", "dashboard", "--port", "0", "--fail-fast"),
    ("serve", "metrics", "--port", "0", "--fail-fast"),
    ("status", "--watch", "--fail-fast"),
)


def test_commands_that_do_not_wait_report_an_unreachable_broker_in_time(cli: Cli, app: Path) -> None:
    """Single-step commands and `--fail-fast` end with an error after ten seconds without an answer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        started = [
            cli.start(*(str(app) if word == "APP" else word for word in command), PENSTOCK_KAFKA=address)
            for command in COMMANDS_THAT_DO_NOT_WAIT
        ]
        for process in started:
            out, err = process.communicate(timeout=240)  # nine processes start at once
            done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
            fails(done, address, "No Kafka broker answers", "within 10 s")


def test_outputs_of_an_idle_worker_wait_for_nothing(
    cli: Cli, app: Path, prefix: str, kafka_bus: KafkaBus, wait_until: Callable[..., None]
) -> None:
    """They wait neither for a checkpoint nor for more outputs in the same request."""
    app.write_text(
        app.read_text().replace(
            "reads, writes = readings, large",
            "reads, writes = readings, large\n"
            "    checkpoint = ps.CheckpointInterval(time=__import__('datetime').timedelta(hours=1))",
        )
    )
    cli.ok("category", "create", str(app))
    (cli.folder / "penstock.toml").write_text('[kafka-settings]\n"linger.ms" = 170000\n"session.timeout.ms" = 300000\n')
    cli.start("run", f"{app}:Large")
    cli.ok("category", "send", f"{prefix}.readings", "--app", str(app), stdin=readings(100))
    wait_until(lambda: sum(kafka_bus.catalog.ends(f"{prefix}.large").values()) > 0, 150)


@pytest.mark.parametrize("narrow", [pytest.param("{}.large", marks=pytest.mark.exhaustive), "{}.large.dead_letters"])
def test_a_category_with_a_small_size_limit_is_refused(
    cli: Cli, kafka: str, app: Path, prefix: str, narrow: str
) -> None:
    """At the start, the error contains the command that raises the limit; after that, or with smaller batches, the worker runs."""
    cli.ok("category", "create", str(app))
    cli.ok("category", "send", f"{prefix}.readings", "--app", str(app), stdin=readings(3_000))
    name = narrow.format(prefix)
    limit(kafka, name, "65536")
    fails(cli("run", f"{app}:Large", "--until-end"), name, "65,536", f"--alter --topic {name}", "Nothing was written")

    (cli.folder / "penstock.toml").write_text('[kafka-settings]\n"message.max.bytes" = 16000\n')
    fails(
        cli("run", f"{app}:Large", "--until-end"),
        "message.max.bytes",
        "16,000",
        "16,384",
        "Nothing was read or written",
    )

    (cli.folder / "penstock.toml").write_text('[kafka-settings]\n"batch.size" = 16384\n')
    cli.ok("run", f"{app}:Large", "--until-end")


def limit(kafka: str, category: str, largest: str) -> None:
    """Set the maximum batch size of a category."""
    entry = ConfigEntry("max.message.bytes", largest, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, category, incremental_configs=[entry])
    client = AdminClient({"bootstrap.servers": kafka})
    client.incremental_alter_configs([resource])[resource].result(timeout=60)


def test_a_missing_category_is_named_with_the_command_that_creates_it(cli: Cli, app: Path, prefix: str) -> None:
    """Nothing starts."""
    fails(cli("run", f"{app}:Large"), f"{prefix}.readings", "penstock category create")


def test_a_wrong_number_of_buckets_is_refused(cli: Cli, app: Path, prefix: str) -> None:
    """The error contains both numbers and the remedy."""
    cli.ok("category", "create", str(app))
    cli.ok("category", "resize", f"{prefix}.readings", "6")
    fails(cli("run", f"{app}:Large"), "6 buckets on the bus", "declares 4", "declare buckets=6")


def test_co_partitioned_inputs_must_have_the_same_buckets(cli: Cli, app: Path, prefix: str) -> None:
    """The worker refuses two inputs with different bucket counts before it joins a group."""
    text = app.read_text() + (
        f"odd = ps.Category('{prefix}.odd', Total, key='meter', event_time='at', buckets=3)\n"
        "class Both(Totals):\n    name = 'both'\n    reads = (large, odd)\n"
    )
    app.write_text(text)
    fails(cli("run", f"{app}:Both"), "not co-partitioned", f"{prefix}.large has 4 buckets, {prefix}.odd has 3 buckets")


def test_an_unreadable_app_file_is_explained(cli: Cli, app: Path) -> None:
    """The file is missing or broken, or lacks the requested processor."""
    fails(cli("run", "nowhere.py"), "app file nowhere.py does not exist")
    fails(cli("run", f"{app}:Larg"), "no processor 'Larg'", "Large, Totals, Hours")
    app.write_text(app.read_text() + "\nfrom nowhere import nothing\n")
    fails(cli("run", str(app)), "No module named 'nowhere'", "line ")


def test_an_event_without_event_time_stops_the_worker_without_a_loss(
    cli: Cli, app: Path, prefix: str, kafka: str, kafka_bus: KafkaBus
) -> None:
    """The error names category, bucket, offset and field; earlier events are saved, and each restart stops at the same event."""
    cli.ok("category", "create", str(app))
    producer = Producer({"bootstrap.servers": kafka})
    for value in (b'{"meter":"m1","at":1,"litres":10}', b'{"meter":"m1","litres":11}'):
        producer.produce(f"{prefix}.readings", value, b"m1")
    producer.flush()
    for _ in range(2):
        done = cli("run", f"{app}:Large", "--until-end")
        fails(
            done,
            f"{prefix}.readings/",
            "at offset 1",
            "no event time: 'at' is missing or null",
            "ErrorPolicy.DEAD_LETTER",
        )

    assert sum(kafka_bus.catalog.describe(f"{prefix}.large").ends.values()) == 1


def test_an_exception_stops_the_processor_and_is_quoted(cli: Cli, app: Path, prefix: str) -> None:
    """The error has the exception's text and the event's position; in a whole app, it stops the other processors, too."""
    cli.ok("category", "create", str(app))
    cli.ok("category", "send", f"{prefix}.readings", "--app", str(app), stdin='{"meter":"m","at":1,"litres":-5}\n')
    fails(cli("run", f"{app}:Large", "--until-end"), "Large raised ValueError: -5 litres", "at offset 0")
    whole = cli("run", str(app), "--until-end")

    assert whole.returncode == 1
    assert "Large ended with an error" in " ".join(whole.stderr.split())
    assert "Traceback" not in whole.stderr


@pytest.mark.parametrize("line", ["nonsense", '{"meter": "m", "at": "late", "litres": 1}'])
def test_an_invalid_record_is_not_sent(cli: Cli, app: Path, prefix: str, kafka_bus: KafkaBus, line: str) -> None:
    """The error names the line, and no line of the file is written."""
    cli.ok("category", "create", str(app))
    given = app.with_name("readings.jsonl")
    given.write_text('{"meter":"m","at":1,"litres":5}\n' + line)
    done = cli("category", "send", f"{prefix}.readings", str(given), "--app", str(app))

    fails(done, "Line 2 is not a Reading", "Nothing was written")
    assert kafka_bus.catalog.describe(f"{prefix}.readings").events == 0


@pytest.fixture
def seven_expired(cli: Cli, app: Path, prefix: str, kafka: str, kafka_bus: KafkaBus) -> dict[int, int]:
    """Process 1,000 readings, then send 1,000 more, of which Kafka has deleted the first seven of each bucket.

    Returns:
        The committed positions.
    """
    cli.ok("category", "create", str(app))
    cli.ok("category", "send", f"{prefix}.readings", "--app", str(app), stdin=readings(1000))
    cli.ok("run", f"{app}:Large", "--until-end")
    positions = kafka_bus.catalog.committed(f"{prefix}.large", f"{prefix}.readings")
    cli.ok("category", "send", f"{prefix}.readings", "--app", str(app), stdin=readings(1000))
    expired = [TopicPartition(f"{prefix}.readings", bucket, offset + 7) for bucket, offset in positions.items()]
    admin = AdminClient({"bootstrap.servers": kafka})
    for future in admin.delete_records(expired).values():
        future.result(timeout=60)
    return positions


def test_a_position_that_kafka_no_longer_retains_is_refused(
    cli: Cli, app: Path, prefix: str, kafka_bus: KafkaBus, seven_expired: dict[int, int]
) -> None:
    """The error contains the number of expired events, and a restart reports the same, so none is skipped."""
    for _ in range(2):
        fails(cli("run", f"{app}:Large", "--until-end"), "7 events expired", "nothing was skipped", "--from-earliest")

    assert kafka_bus.catalog.committed(f"{prefix}.large", f"{prefix}.readings") == seven_expired


def test_expired_events_are_skipped_on_request(cli: Cli, app: Path, seven_expired: dict[int, int]) -> None:
    """With --from-earliest a processor continues with the retained events, and logs the number of skipped ones per bucket."""
    done = cli("run", f"{app}:Large", "--until-end", "--from-earliest", "--json")

    assert done.returncode == 0, done.stderr
    assert done.stderr.count("skipped 7 events") == len(seven_expired)
    assert json.loads(done.stdout)["events_in"] == 1000 - 7 * len(seven_expired)
