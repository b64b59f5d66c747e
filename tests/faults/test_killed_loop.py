"""Workers of a running loop are killed: it ends, each message circulates exactly once, and windows behind it contain what was late on its way."""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

from support.cli import LIMIT_S, Cli
from support.plain import values

from penstock.transport import Outgoing
from penstock.transport.kafka import KafkaBus

PARCELS = 900
PLACES = 23
KILLS = 4
HOUR_MS = 3_600_000
APP = """
from datetime import timedelta

import penstock as ps


class Parcel(ps.Record, frozen=True):
    place: str
    at: ps.EventTime
    number: int
    left: int


class Hour(ps.Record, frozen=True):
    place: str
    at: ps.EventTime
    visits: int


sent = ps.Category("PREFIX.sent", Parcel, key="place", event_time="at", buckets=2)
onward = ps.Category("PREFIX.onward", Parcel, key="place", event_time="at", buckets=2)
visits = ps.Category("PREFIX.visits", Parcel, key="place", event_time="at", buckets=2)
hours = ps.Category("PREFIX.hours", Hour, key="place", event_time="at", buckets=2)
EVERY = ps.CheckpointInterval(time=timedelta(seconds=0.2))


class Forward(ps.Stateful):
    name = "PREFIX.forward"
    reads, feedback = (sent, onward), onward
    writes, state = (onward, visits), int
    state_semantics = output_semantics = ps.Semantics.EXACTLY_ONCE
    checkpoint = EVERY

    def process(self, parcel, state, context):
        outputs = [ps.To(visits, parcel)]
        if parcel.left:
            following = f"p{(int(parcel.place[1:]) * 7 + parcel.number) % PLACES}"
            outputs.append(ps.To(onward, Parcel(following, parcel.at, parcel.number, parcel.left - 1)))
        return (state or 0) + 1, outputs


class Hours(ps.Aggregator):
    name = "PREFIX.count"
    reads, writes = visits, hours
    monoid, window = ps.monoids.Count(), ps.windows.Tumbling(timedelta(hours=1))
    emit, late, watermark = ps.AtWatermark(), ps.OnLate.DROP, ps.watermarks.UpstreamWatermark()
    output_semantics, checkpoint = ps.Semantics.EXACTLY_ONCE, EVERY

    def result(self, key, window, value):
        return Hour(key, window.start, value)
""".replace("PLACES", str(PLACES))
Visit = tuple[str, int, int, int]


def parcels(begin: int, end: int) -> list[Visit]:
    """Return the place, time, number and passes of parcels, in order of time."""
    return [(f"p{number % PLACES}", number * 60_000, number, number % 30) for number in range(begin, end)]


def expected_visits(sent: list[Visit]) -> Counter[Visit]:
    """Follow each parcel."""
    found = Counter[Visit]()
    for place, at, number, left in sent:
        here = int(place[1:])
        for remaining in range(left, -1, -1):
            found[f"p{here}", at, number, remaining] += 1
            here = (here * 7 + number) % PLACES
    return found


def send(bus: KafkaBus, category: str, sent: list[Visit]) -> None:
    """Write parcels."""
    names = ("place", "at", "number", "left")
    writer = bus.writer()
    lines = [(one[0].encode(), json.dumps(dict(zip(names, one, strict=True))).encode()) for one in sent]
    writer.send(category, [Outgoing(key, value) for key, value in lines])
    writer.flush()
    writer.close()


def test_a_loop_whose_workers_are_killed_ends_with_each_message_processed_once(
    cli: Cli, kafka: str, kafka_bus: KafkaBus, prefix: str, wait_until: Callable[..., None]
) -> None:
    """The loop has two workers, one of which is killed repeatedly. Another worker writes the windows after it."""
    rng = random.Random(7)
    (cli.folder / "app.py").write_text(APP.replace("PREFIX", prefix))
    (cli.folder / "impatient.toml").write_text(
        "[kafka-settings]\nsession.timeout.ms = 2000\nheartbeat.interval.ms = 500\ntransaction.timeout.ms = 2000\n"
    )
    run = ("run", "--config", "impatient.toml")
    cli.ok("category", "create", "app.py")
    workers = [cli.start(*run, "app.py:Forward", "--dir", name) for name in ("one", "two")]
    windows = cli.start(*run, "app.py:Hours")

    def circulated() -> int:
        return sum(kafka_bus.catalog.stable_ends(f"{prefix}.onward").values())

    for kill, (begin, end) in enumerate(pairwise(range(0, PARCELS + 1, PARCELS // KILLS))):
        before = circulated()
        send(kafka_bus, f"{prefix}.sent", parcels(begin, end))
        wait_until(lambda before=before: circulated() > before + 50)
        time.sleep(rng.uniform(0, 0.5))
        workers[kill % 2].send_signal(signal.SIGKILL)
        workers[kill % 2].wait()
        workers[kill % 2] = cli.start(*run, "app.py:Forward", "--dir", ("one", "two")[kill % 2])
    last = [(f"p{place}", PARCELS * 60_000 + 2 * HOUR_MS, PARCELS + place, 0) for place in range(PLACES)]
    truth, by_hour = expected_visits(parcels(0, PARCELS) + last), Counter[tuple[str, int]]()
    for (place, at, *_), times in truth.items():
        if at <= PARCELS * 60_000:
            by_hour[place, at // HOUR_MS * HOUR_MS] += times
    send(kafka_bus, f"{prefix}.sent", last)
    wait_until(lambda: len(values(kafka, f"{prefix}.hours")) >= len(by_hour))
    for worker in (*workers, windows):
        worker.send_signal(signal.SIGTERM)
    for worker in (*workers, windows):
        worker.communicate(timeout=LIMIT_S)
    cli.ok(*run, "app.py", "--until-end", "--dir", "one")
    visited = Counter(
        (one["place"], one["at"], one["number"], one["left"]) for one in values(kafka, f"{prefix}.visits")
    )
    counted = Counter({(one["place"], one["at"]): one["visits"] for one in values(kafka, f"{prefix}.hours")})

    assert visited == truth
    assert counted == by_hour
