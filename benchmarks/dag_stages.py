"""The processors of the latency benchmark of a DAG: stages that pass ticks on and count them in their state.

    python dag_stages.py BOOTSTRAP RUN STAGE INTERVAL_MS OUTPUT

Runs one stage until a termination signal.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import penstock as ps
from penstock.ops.kernel import Environment, assemble_worker, prepare, tune_memory
from penstock.ops.shell import stop_on_signals
from penstock.processors.declare import Category
from penstock.transport.kafka import KafkaBus, KafkaSettings

BUCKETS = 2


class Tick(ps.Record, frozen=True):
    """An event whose time is the time of sending."""

    key: str
    at: ps.EventTime


def ticks(run: str, stage: int) -> Category[Tick]:
    """Return the input of a stage, which is the output of the previous stage."""
    return ps.Category(f"{run}.{stage}", Tick, key="key", event_time="at", buckets=BUCKETS, retention=None)


class Passing(ps.Stateful):
    """Counts the ticks of each key, and passes them on."""

    state = int

    def process(self, event: Tick, state: int | None, context: ps.Context) -> tuple[int, Iterable[Tick]]:
        """Return the count, and the tick."""
        return (state or 0) + 1, (event,)


def stage_of(run: str, stage: int, interval: timedelta, output: ps.Semantics) -> type[Passing]:
    """Return a stage, with adaptive checkpoints for the interval 0. The first stage estimates its watermark from events; the others use upstream watermarks."""
    declared = {
        "name": f"{run}.stage-{stage}",
        "reads": ticks(run, stage),
        "writes": ticks(run, stage + 1),
        "output_semantics": output,
        "checkpoint": ps.CheckpointInterval(time=interval) if interval else ps.CheckpointInterval(adaptive=True),
        "watermark": ps.watermarks.UpstreamWatermark() if stage else ps.watermarks.BoundedOutOfOrderness(),
    }
    return type("Stage", (Passing,), declared)


def main(bootstrap: str, run: str, stage: str, interval_ms: str, output: str) -> None:
    """Run one stage."""
    processor = stage_of(run, int(stage), timedelta(milliseconds=int(interval_ms)), ps.Semantics[output])
    bus = KafkaBus(KafkaSettings(bootstrap))
    tune_memory()
    with (
        TemporaryDirectory() as folder,
        assemble_worker(prepare(processor, bus), bus, Environment(Path(folder))) as worker,
        stop_on_signals(worker.stop),
    ):
        worker.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
