"""Two brokers: input on one, output on the other, and a worker that is killed in between."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import pytest
from support.cli import Cli
from support.plain import values

from penstock.ops.start.dev_services.services import running_kafka
from penstock.transport.kafka import KafkaBus, KafkaSettings

APP = '''
import time
import penstock as ps

class Reading(ps.Record, frozen=True):
    meter: str
    at: ps.EventTime
    litres: int

class Total(ps.Record, frozen=True):
    meter: str
    at: ps.EventTime
    litres: int

readings = ps.Category("{prefix}.readings", Reading, key="meter", event_time="at", buckets=2)
totals = ps.Category("{prefix}.totals", Total, key="meter", event_time="at", buckets=2, codec="avro", cluster="billing")
large = ps.Category("{prefix}.large", Reading, key="meter", event_time="at", buckets=2, cluster="billing")

class Totals(ps.Stateful):
    """Sums each meter, for another cluster."""
    name = "{prefix}.totals"
    reads, writes, state = readings, (totals, large), int
    checkpoint = ps.CheckpointInterval(events=500)
    def process(self, event, state, context):
        time.sleep(0.002)
        total = (state or 0) + event.litres
        return total, [Total(event.meter, event.at, total), event]
'''
EVENTS, KILLS = 4_000, 2
METERS = [f"m{number}" for number in range(20)]
TIMEOUTS = "[kafka-settings]\nsession.timeout.ms = 2000\nheartbeat.interval.ms = 500\n"


def running_totals(events: Sequence[dict[str, Any]], meter: str) -> Iterator[tuple[int, int]]:
    """Yield the time of each event of a meter, and its total after it."""
    own = [event for event in events if event["meter"] == meter]
    yield from zip([event["at"] for event in own], accumulate(event["litres"] for event in own), strict=True)


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A second broker; its address."""
    with running_kafka(tmp_path_factory.mktemp("second")) as bootstrap:
        yield bootstrap


@pytest.fixture
def here(cli: Cli, second: str, prefix: str) -> Cli:
    """The command line in a folder with the app and the addresses of both clusters."""
    (cli.folder / "app.py").write_text(APP.replace("{prefix}", prefix))
    (cli.folder / "penstock.toml").write_text(f'{TIMEOUTS}[clusters.billing]\nkafka = "{second}"\n')
    return cli


def test_outputs_on_another_cluster_are_written_at_least_once(
    here: Cli, kafka: str, second: str, prefix: str, wait_until: Callable[..., None]
) -> None:
    """Killed workers lose no output. State, positions and dead letters are on the main cluster; the outputs and their schemas are not."""
    events = [{"meter": METERS[n % len(METERS)], "at": 1_700_000_000_000 + n, "litres": n % 7} for n in range(EVENTS)]
    main, billing = KafkaBus(KafkaSettings(kafka)), KafkaBus(KafkaSettings(second))
    here.ok("category", "create", "app.py")
    here.ok("category", "send", f"{prefix}.readings", "--app", "app.py", stdin="\n".join(map(json.dumps, events)))
    for _ in range(KILLS):
        before = billing.catalog.describe(f"{prefix}.large").events
        worker = here.start("run", "app.py")
        wait_until(lambda before=before: billing.catalog.describe(f"{prefix}.large").events > before + 600)
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    here.ok("run", "app.py", "--until-end")
    tailed = here.ok(
        "category", "tail", f"{prefix}.totals", "--cluster", "billing", "--from", "0", "--no-follow", "--json"
    )

    sums = {(meter, at, total) for meter in METERS for at, total in running_totals(events, meter)}
    assert {event["at"] for event in values(second, f"{prefix}.large")} == {event["at"] for event in events}
    totals = [json.loads(line)["value"] for line in tailed.splitlines()]
    assert {(total["meter"], total["at"], total["litres"]) for total in totals} == sums
    assert {f"{prefix}.totals", f"{prefix}.large"}.isdisjoint(main.catalog.names())
    assert {f"{prefix}.readings", f"{prefix}.totals.dead_letters"}.isdisjoint(billing.catalog.names())
    assert sum(main.catalog.committed(f"{prefix}.totals", f"{prefix}.readings").values()) == EVENTS


def test_a_worker_waits_for_the_other_cluster_and_names_it(here: Cli, wait_until: Callable[..., None]) -> None:
    """A worker waits for it as for the first cluster. Commands that need it fail with its name."""
    here.ok("category", "create", "app.py")
    (here.folder / "penstock.toml").write_text('[clusters.billing]\nkafka = "127.0.0.1:1"\n')
    failed = here("run", "app.py", "--until-end", "--fail-fast")
    assert failed.returncode == 1
    assert "Cluster billing: No Kafka broker answers at 127.0.0.1:1" in failed.stderr

    (here.folder / "penstock.toml").write_text('[clusters.biling]\nkafka = "127.0.0.1:1"\n')
    refused = here("run", "app.py", "--until-end")
    assert refused.returncode == 1
    assert (
        "is on cluster billing, and penstock.toml has no table [clusters.billing]. Did you mean `biling`?"
        in " ".join(refused.stderr.split())
    )


def test_commands_use_the_declared_cluster(here: Cli, prefix: str) -> None:
    """Nothing reads or writes a category of the same name on the main cluster."""
    here.ok("category", "create", f"{prefix}.large", "--buckets", "3")
    here.ok("category", "create", "app.py")
    here.ok(
        "category",
        "send",
        f"{prefix}.large",
        "--app",
        "app.py",
        stdin='{"meter": "m", "at": 1700000000000, "litres": 1}',
    )
    here.ok(
        "category",
        "send",
        f"{prefix}.readings",
        "--app",
        "app.py",
        stdin='{"meter": "m", "at": 1700000000000, "litres": 2}',
    )
    here.ok("run", "app.py", "--until-end")
    shown = json.loads(here.ok("category", "show", f"{prefix}.large", "--cluster", "billing", "--json"))
    on_main = json.loads(here.ok("category", "show", f"{prefix}.large", "--json"))
    replayed = here("replay", "app.py:Totals", "--from", "0", "--against", "live")

    assert (shown["buckets"], shown["events"]) == (2, 2)
    assert (on_main["buckets"], on_main["events"]) == (3, 0)
    assert replayed.returncode in {0, 1}, replayed.stderr
    assert "live" in replayed.stdout + replayed.stderr
