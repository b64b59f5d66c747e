"""The counts of a worker, as a program reads them."""

from __future__ import annotations

import json

from penstock.ops.worker.metrics import Metrics
from penstock.processors.lookups import LookupMetrics


def test_the_counts_of_a_worker_are_json() -> None:
    """`penstock run --json` prints all counts, those of lookups too, and no figures that only Prometheus reads."""
    metrics = Metrics(events_in=3, lookups=LookupMetrics(keys=2))
    metrics.restores.record(10, 0.5)

    counts = json.loads(json.dumps(metrics.counts()))

    assert (counts["events_in"], counts["lookups"]["keys"]) == (3, 2)
    assert counts.keys().isdisjoint({"timings", "restores", "state_cache"})
