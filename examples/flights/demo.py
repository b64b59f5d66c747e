"""The whole example from nothing: flights through four processors on Kafka, then through the same four in Spark.

    python examples/flights/demo.py

Everything it starts listens on loopback and is stopped at the end, also after Ctrl-C; what it wrote stays in
.penstock/demo until the next run.
"""

from __future__ import annotations

import os
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

from records import Ranking, rankings
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from source import produce
from stage import console, local_kafka, penstock, play

from penstock.transport import Bucket, Bus, Position
from penstock.transport.codecs import Codecs
from penstock.transport.kafka import KafkaBus, KafkaSettings

APP = Path(__file__).with_name("app.py")
FOLDER = Path(".penstock/demo")
FIRST, LAST = "2013-01-01", "2014-01-01"  # the last flights of New York's 2013 are scheduled in 2014, UTC


def main() -> int:
    """Run the demo; the exit code of the comparison."""
    began = time.monotonic()
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.environ["PENSTOCK_DIR"] = str(FOLDER)  # for all that is run here
    # The Spark sessions are short: Java's optimizing compiler would take a third of their time, for code that hardly runs any more.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
    with local_kafka(FOLDER) as bootstrap:
        bus = KafkaBus(KafkaSettings(bootstrap))
        penstock("category", "create", str(APP))
        send_flights(bus)
        penstock("run", str(APP), "--until-end")
        show(latest_rankings(bus))
        # All flights are sent, so a bucket without more of them need not hold back the days of the others.
        penstock("archive", "run", str(APP), "--until-end", "--idle-after", "0s")
        penstock("backfill", str(APP), "--from", FIRST, "--to", LAST)
        code = penstock("compare", str(APP), "--from", FIRST, "--to", LAST, check=False)
    console.print(
        f"\n{time.monotonic() - began:.0f} s in all. To look around: [bold]penstock dev up kafka --dir {FOLDER}[/]"
    )
    console.print(f"and then [bold]penstock category tail rankings --from 0 --dir {FOLDER}[/].")
    return code


def send_flights(bus: Bus) -> None:
    """Write the flights of 2013 to their category."""
    console.print("\n[bold cyan]The flights of 2013, in the order in which they left:[/]")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        bar = bars.add_task("flights", total=336_776)
        sent = produce(bus, lambda done: bars.update(bar, completed=done))
    console.print(f"{sent:,} flights are on the bus.")


def latest_rankings(bus: Bus) -> list[Ranking]:
    """Read the rankings: of each carrier and day, the last one is the one that counts."""
    latest: dict[tuple[str, int], Ranking] = {}
    ends = bus.catalog.describe(rankings.name).ends
    reader = bus.scanner([Position(Bucket(rankings.name, number), 0) for number in ends])
    left, codec = {Bucket(rankings.name, number) for number in ends}, Codecs(bus).of(rankings)
    while left:
        polled = reader.poll(1.0)
        for batch in polled.batches:
            latest.update({(r.carrier, r.day): r for r in codec.decode(batch.messages).events})
        left -= {end.bucket for end in polled.ended}
    reader.close()
    return list(latest.values())


def show(found: list[Ranking]) -> None:
    """Print the days that stood out most."""
    table = Table("carrier", "day", "most unusually late departures to", title="The most unusual days", box=None)
    for ranking in sorted(found, key=lambda ranking: -ranking.top[0].score)[:8]:
        day = datetime.fromtimestamp(ranking.day / 1000, tz=UTC).date()
        top = "  ".join(f"{line.dest} {line.score / 60_000:,.1f} h" for line in ranking.top)
        table.add_row(ranking.carrier, str(day), top)
    console.print(table)
    console.print(f"{len(found):,} rankings in all.")


if __name__ == "__main__":
    play(main)
