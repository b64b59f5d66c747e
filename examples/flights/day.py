"""A day of operations: the commands that operators of the flights pipeline run, on a separate Kafka.

    python examples/flights/day.py

Deploy, load and monitor the app; alert on a backlog; add workers; kill a worker; deploy a new version and a faulty one, and roll back;
replay yesterday's stream through changed code; process everything again; and stop. Each step checks its result. All services listen on
loopback and stop at the end, also after Ctrl-C. The output stays in .penstock/day until the next run.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from threading import Event, Thread
from typing import Any

from records import Flight, Scored, scored
from records import flights as category
from source import flights
from stage import console, end, local_kafka, penstock, play, start

from penstock.processors import PenstockError
from penstock.transport import Bucket, Bus, Outgoing, Position
from penstock.transport.codecs import Codecs
from penstock.transport.kafka import KafkaBus, KafkaSettings

FOLDER = Path(".penstock/day")
APP = FOLDER / "app" / "app.py"
ALERTS = FOLDER / "alerts.jsonl"
NOTES = FOLDER / "alerts.log"
LIMIT_S = 180.0
FEW = 40_000
"""The number of flights before the backlog, and the number of single flights at the end."""
AT_ONCE = 50
"""The number of last flights that are sent at once."""

CONFIGURATION = """
backup = "{folder}/backups"
backup-every = 5

[[alerting.rule]]
name = "backlog"
metric = "backlog_events"
above = 20000
duration-s = 1
"""

GOOD = "return mean + surprise / 10,"
SLOWER = "return mean + surprise / 20,"


class UnexpectedResult(PenstockError):
    """A step did not have the expected result."""


def main() -> int:
    """Run the day; return 0 if every step had the expected result."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    shutil.copytree(Path(__file__).parent, APP.parent, ignore=shutil.ignore_patterns("__pycache__", "*.md"))
    configuration = FOLDER / "penstock.toml"
    configuration.write_text(CONFIGURATION.format(folder=FOLDER.absolute()))
    os.environ |= {"PENSTOCK_DIR": str(FOLDER.absolute()), "PENSTOCK_CONFIG": str(configuration.absolute())}
    every = flights()
    with local_kafka(FOLDER) as kafka:
        bus = KafkaBus(KafkaSettings(kafka))
        try:
            deploy_and_load(bus, every[:FEW])
            fall_behind_and_scale_out(bus, every[FEW:-FEW])
            lose_a_worker()
            with Trickling(bus, every[-FEW:]):
                roll_forward_and_back()
            until("all processors have caught up", caught_up)
            expect_scored(bus, every)
            replay(every)
            start_over(bus, every)
        finally:
            take_down()
    expect("nothing is deployed any more", shown("deployments") == [])
    console.print("\n[bold green]Every step had the expected result.[/]")
    return 0


def deploy_and_load(bus: Bus, few: list[Flight]) -> None:
    """Deploy the app, send flights, and show its status."""
    title("Deploy and load")
    penstock("category", "create", str(APP))
    penstock("deploy", str(APP))
    send(bus, few)
    until("all of them are processed", caught_up)
    penstock("status", str(APP))
    penstock("status", str(APP), "--graph", "text")


def fall_behind_and_scale_out(bus: Bus, many: list[Flight]) -> None:
    """Send more flights than one worker can process at once, wait for the alert, and scale the slowest processor."""
    title("An alert reports the backlog")
    command = ("alerts", "run", str(APP), "--every", "0.5", "--command", f"tee -a {ALERTS.absolute()}")
    alerts = start(*command, notes=NOTES)
    try:
        until("alerts are evaluated", lambda: "evaluates the alerts" in NOTES.read_text())
        send(bus, many)
        until("an alert has fired", lambda: ALERTS.exists() and "backlog" in ALERTS.read_text())
        penstock("alerts", "list")
        penstock("scale", "scorer", "--workers", "2")
        until("all processors have caught up", caught_up)
    finally:
        alerts.terminate()
        end(alerts)
    penstock("status", str(APP), "--workers")


class Trickling:
    """Sends a few flights at a time while the block runs, and the remaining flights at its end."""

    def __init__(self, bus: Bus, some: list[Flight]) -> None:
        self._bus = bus
        self._left = some
        self._ended = Event()
        self._thread = Thread(target=self._send)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        send(self._bus, self._left)

    def _send(self) -> None:
        while not self._ended.wait(0.2) and len(self._left) > AT_ONCE:
            write(self._bus, self._left[:AT_ONCE])
            self._left = self._left[AT_ONCE:]


def lose_a_worker() -> None:
    """Kill a worker; its supervisor starts a replacement."""
    title("A worker is killed")
    lost = deployed("scorer")["worker_status"][0]["pid"]
    os.kill(lost, signal.SIGKILL)
    until(
        "another has taken its place",
        lambda: is_ready("scorer") and deployed("scorer")["worker_status"][0]["pid"] != lost,
    )
    penstock("deployments")


def roll_forward_and_back() -> None:
    """Deploy a new version, then a faulty one, which is rolled back, and return to the first version."""
    title("A new version, a bad one, and back")
    change(GOOD, SLOWER)
    penstock("deploy", f"{APP}:Scorer")
    expect("both workers run the new version", versions() == [2, 2])
    change(SLOWER, "raise ValueError('a bad day')  #")
    code = penstock("deploy", f"{APP}:Scorer", check=False)
    expect("the bad one was refused, and the one before runs on", code == 1 and versions() == [2, 2])
    penstock("rollback", "scorer")
    expect("the first version runs again", versions() == [1, 1])
    penstock("deployments", "scorer")


def replay(every: list[Flight]) -> None:
    """Replay a route's flights through the old and the changed scorer, beside the live one, and show the differences."""
    title("What would another scorer have said?")
    before = APP.with_name("before.py")
    change("raise ValueError('a bad day')  #", GOOD)
    before.write_text(APP.read_text())
    change(GOOD, SLOWER)
    route = next(flight.route for flight in every if flight.dep_delay is not None)
    asked = ("--from", "1d ago", "--key", route, "--state", "empty", "--limit", "3", "--against", str(before))
    expect("they differ", penstock("replay", f"{APP}:Scorer", *asked, check=False) == 1)
    change(SLOWER, GOOD)


def start_over(bus: Bus, every: list[Flight]) -> None:
    """Reset the scorer, so that it processes all flights again."""
    title("Everything from the beginning")
    expect("a reset is refused while it runs", penstock("reset", f"{APP}:Scorer", "--to", "latest", check=False) == 1)
    penstock("undeploy", "scorer")
    before = len(scores(bus))
    penstock("reset", f"{APP}:Scorer", "--to", "earliest", "--dry-run")
    penstock("reset", f"{APP}:Scorer", "--to", "earliest", "--yes")
    penstock("deploy", f"{APP}:Scorer")
    until("it has caught up", caught_up)
    expect("each score was written again", len(scores(bus)) - before == len(departed(every)))
    penstock("status", str(APP))


def take_down() -> None:
    """Stop all deployments."""
    title("Taken down")
    for name in [each["name"] for each in shown("deployments")]:
        penstock("undeploy", name, "--purge", "--yes", check=False)


def send(bus: Bus, some: list[Flight]) -> None:
    """Write flights to their category, and print their number."""
    write(bus, some)
    console.print(f"{len(some):,} flights are on the bus.")


def write(bus: Bus, some: list[Flight]) -> None:
    """Write flights to their category; durable on return."""
    keys, values = category.keys_of(some), Codecs(bus).of(category).encode(some)
    with closing(bus.writer()) as writer:
        writer.send(category.name, map(Outgoing, (key.encode() for key in keys), values))
        writer.flush()


def scores(bus: Bus) -> list[Scored]:
    """Return the scorer's outputs."""
    positions = [Position(Bucket(scored.name, number), 0) for number in bus.catalog.ends(scored.name)]
    left, codec, found = {position.bucket for position in positions}, Codecs(bus).of(scored), list[Scored]()
    with closing(bus.scanner(positions)) as scanner:
        while left:
            polled = scanner.poll(1.0)
            for batch in polled.batches:
                found += codec.decode(batch.messages).events
            left -= {end.bucket for end in polled.ended}
    return found


def expect_scored(bus: Bus, every: list[Flight]) -> None:
    """Check that the scores contain every departed flight and no other, regardless of killed workers."""
    found = {(score.carrier, score.flight, score.scheduled, score.route) for score in scores(bus)}
    expect("each departure has a score", found == departed(every))


def departed(every: Iterable[Flight]) -> set[tuple[str, int, int, str]]:
    """Return the departed flights."""
    return {(one.carrier, one.flight, one.scheduled, one.route) for one in every if one.dep_delay is not None}


def change(before: str, after: str) -> None:
    """Change the app's file."""
    text = APP.read_text()
    if before not in text:
        raise UnexpectedResult(f"{APP} does not contain {before!r}")
    APP.write_text(text.replace(before, after))


def shown(*arguments: str) -> Any:
    """Return the JSON output of a command."""
    command = [sys.executable, "-m", "penstock", *arguments, "--json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def deployed(name: str) -> dict[str, Any]:
    """Return the status of a deployment."""
    return next(each for each in shown("deployments") if each["name"] == name)


def is_ready(name: str) -> bool:
    """Return whether all workers of a deployment are ready."""
    found = deployed(name)
    return bool(found["ready"] == found["workers"])


def versions() -> list[int]:
    """Return the version of each worker of the scorer."""
    return [worker["version"] for worker in deployed("scorer")["worker_status"]]


def caught_up() -> bool:
    """Return whether no processor has a backlog."""
    return all(each["backlog_events"] == 0 for each in shown("status", str(APP))["processors"])


def until(what: str, holds: Callable[[], bool]) -> None:
    """Wait until a condition is true."""
    deadline = time.monotonic() + LIMIT_S
    while not holds():
        if time.monotonic() > deadline:
            raise UnexpectedResult(f"Not within {LIMIT_S:.0f} s: {what}")
        time.sleep(0.5)
    console.print(f"[green]✓[/] {what}")


def expect(what: str, holds: bool) -> None:
    """Check a condition."""
    if not holds:
        raise UnexpectedResult(f"Check failed: {what}")
    console.print(f"[green]✓[/] {what}")


def title(text: str) -> None:
    """Print the title of a step."""
    console.rule(f"[bold]{text}")


if __name__ == "__main__":
    play(main)
