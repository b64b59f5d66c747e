"""While no broker answers, a query server answers with the results that it has."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from support.cli import LIMIT_S, Cli
from support.kafka_proxy import KafkaProxy
from support.query_site import Site, WaitUntil, ask, counts, minute_of, random_views

from penstock.query import QueryClient


def test_a_server_answers_during_an_outage_and_catches_up(
    through_proxy: tuple[str, KafkaProxy], tmp_path: Path, prefix: str, wait_until: WaitUntil
) -> None:
    """The answers say that they are not current. Afterwards they contain the results that were written meanwhile."""
    address, proxy = through_proxy
    cli = Cli(address, tmp_path)
    site = Site(cli, prefix, wait_until)
    first, second = random_views(400, 6), random_views(600, 7)
    before = Counter((view["page"], minute_of(view)) for view in first)
    after = before + Counter((view["page"], minute_of(view)) for view in second)
    try:
        site.send(first)
        site.run()
        server = site.serve("Counts")
        with QueryClient(server.url, timeout_s=LIMIT_S) as client:
            assert counts(ask(client, site)) == before
            proxy.cut_off()
            wait_until(lambda: ask(client, site).as_of.problem != "")
            assert counts(ask(client, site)) == before

            proxy.let_through()
            site.send(second)
            site.run()
            wait_until(lambda: counts(ask(client, site)) == after)
            wait_until(lambda: ask(client, site).as_of.problem == "")
    finally:
        cli.end_all()
