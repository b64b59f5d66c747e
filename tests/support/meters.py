"""The source of an app with three processors, one of each kind, on categories with the prefix {prefix}; and its input."""

from __future__ import annotations

import json

HOUR = 3_600_000

APP = """
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

class Hourly(ps.Record, frozen=True):
    meter: str
    hour: ps.EventTime
    litres: int

readings = ps.Category("{prefix}.readings", Reading, key="meter", event_time="at", buckets=4)
large = ps.Category("{prefix}.large", Reading, key="meter", event_time="at", buckets=4, codec="avro")
totals = ps.Category("{prefix}.totals", Total, key="meter", event_time="at", buckets=4)
hours = ps.Category("{prefix}.hours", Hourly, key="meter", event_time="hour", buckets=4)

class Large(ps.Stateless):
    name = "{prefix}.large"
    reads, writes = readings, large
    def process(self, event):
        if event.litres < 0:
            raise ValueError(str(event.litres) + " litres")
        return [event] if event.litres >= 10 else []

class Totals(ps.Stateful):
    name = "{prefix}.totals"
    reads, writes, state = large, totals, int
    def process(self, event, state, context):
        total = (state or 0) + event.litres
        return total, [Total(context.key, context.event_time, total)]

class Hours(ps.Aggregator):
    name = "{prefix}.hours"
    reads, writes = large, hours
    monoid = ps.monoids.Sum()
    window = ps.windows.Tumbling(__import__("datetime").timedelta(hours=1))
    def observe(self, event):
        return event.litres
    def result(self, key, window, value):
        return Hourly(key, window.start, value)
"""


def readings(count: int, *, start: int = 0) -> str:
    """Return readings as JSON lines: 7 meters, every 10 minutes, 0 to 24 litres."""
    made = ({"meter": f"m{n % 7}", "at": n * HOUR // 6, "litres": n % 25} for n in range(start, start + count))
    return "".join(json.dumps(reading) + "\n" for reading in made)
