"""Counters of batch steps, without Spark."""

from __future__ import annotations

from pyspark.accumulators import Accumulator

from penstock.backfill.spark import Counters, TaskCount
from penstock.backfill.spark.counts import HIGHEST


def counters() -> Counters:
    """Return counters like those of a Spark worker."""
    return Counters(*(TaskCount(Accumulator(number, {}, HIGHEST)) for number in range(3)))
