"""`penstock run` with a lookup in a real PostgreSQL that is unavailable at first."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from support.cli import Cli
from support.databases import PASSWORD, Postgres
from support.meters import readings
from support.plain import values
from support.proxy import Proxy
from support.stores import unique_name

from penstock.processors.retry import LOG_EVERY_S

LOOKUP = '''
import penstock as ps
from app import Reading, readings

class Place(ps.Record, frozen=True):
    name: str

class Placed(Reading, frozen=True):
    place: str

class Placing(ps.LookupJoin):
    """Joins a meter to its place."""
    name = "{prefix}.placing"
    reads = readings
    writes = ps.Category("{prefix}.placed", Placed, key="meter", event_time="at", buckets=4)
    source = ps.lookups.PostgresTable("{table}", Place, key="meter")
    on_miss = ps.lookups.OnMiss.DROP
    on_unreachable = ps.lookups.OnUnreachable.WAIT
    cache = ps.lookups.Cached()
    output_semantics = ps.Semantics.EXACTLY_ONCE
    def key_of(self, event):
        return event.meter
    def join(self, event, row):
        yield Placed(event.meter, event.at, event.litres, row.name)
'''


def test_a_worker_waits_for_the_store_and_joins_each_event_once(
    cli: Cli, app: Path, prefix: str, kafka: str, postgres: Postgres, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    """It reads the same events again until the store answers, reports its counts, and shows no password."""
    table, lookup = unique_name("places"), app.with_name("placing.py")
    with postgres.session() as session:
        session.execute(f"CREATE TABLE {table} (meter text PRIMARY KEY, name text)")
        session.execute(f"INSERT INTO {table} SELECT 'm' || n, 'place ' || n FROM generate_series(1, 6) AS n")
    lookup.write_text(LOOKUP.replace("{prefix}", prefix).replace("{table}", table))
    cli.ok("category", "create", str(lookup))
    cli.ok("category", "send", f"{prefix}.readings", "--app", str(lookup), stdin=readings(700))
    with closing(Proxy(postgres.target)) as proxy:
        proxy.refuse()
        url = postgres.url.replace(f":{postgres.target[1]}/", f":{proxy.port}/")
        began_s = time.monotonic()
        worker = cli.start("run", f"{lookup}:Placing", "--until-end", "--json", PENSTOCK_LOOKUPS=url)
        wait_until(lambda: proxy.refusals >= 4 or worker.poll() is not None)
        proxy.resume()
        took_s = time.monotonic() - began_s
        out, err = worker.communicate(timeout=240)

    assert worker.returncode == 0, err
    tally = json.loads(out)
    assert (tally["events_in"], tally["events_out"], tally["unmatched"]) == (700, 600, 100)
    assert tally["lookups"]["failed_requests"] >= 4
    assert tally["lookups"]["keys"] > tally["lookups"]["missing"] >= 1
    assert 1 <= err.count("The worker retries until the source answers") <= 1 + took_s // LOG_EVERY_S
    assert PASSWORD not in out + err
    placed = values(kafka, f"{prefix}.placed")
    assert len(placed) == 600
    assert all(one["place"] == f"place {one['meter'][1:]}" for one in placed)
