"""Measures one job over the archive with one method.

    python backfill_run.py WAREHOUSE OUTPUT (lates|days|gaps) (columns|events|sql|naive) FIRST_DAY LAST_DAY

Prints the events read, the seconds, the processor seconds of all processes, and the maximum memory of a Python worker in MiB. Spark's start
and the imports of its workers are not measured.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd  # type: ignore[import-untyped]  # of the benchmarks alone
import psutil
import pyarrow as pa
from flights_app import Days, Flight, Gap, Gaps, Lates
from msgspec.structs import asdict
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation calls it
from pyspark.sql.window import Window

import penstock as ps
from penstock.backfill.run import run_backfill
from penstock.backfill.spark import spark_session
from penstock.backfill.warehouse import open_warehouse
from penstock.processors.apps import AppName

HERE = Path(__file__).parent
PROCESSORS = {"lates": "Lates", "days": "Days", "gaps": "Gaps"}
APPS = {"columns": HERE / "flights_app.py", "events": HERE / "flights_by_event.py"}
DAY_MS = 86_400_000


class Job(NamedTuple):
    """A job, from the command line."""

    warehouse: str
    output: str
    work: str
    way: str
    first: str
    last: str

    @property
    def place(self) -> str:
        """The output folder."""
        return f"{self.output}/{self.work}-{self.way}"


def main(job: Job) -> None:
    """Measure one job."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(HERE)
    with spark_session("local[2]") as spark:
        events = spark.read.parquet(f"{job.warehouse}/category=replayed").where(
            F.col("ds").between(job.first, job.last)
        )
        count = events.count()
        compute = way_of(job, events)
        spark.range(0, 200_000, 1, 4).mapInArrow(imported, "id long").count()
        with measured_processes() as usage:
            compute()
    print(count, *(round(value, 2) for value in usage))


def way_of(job: Job, events: DataFrame) -> Callable[[], object]:
    """Return a function that runs the job with its method."""
    if job.way in APPS:
        return lambda: run_backfill(
            AppName(APPS[job.way], PROCESSORS[job.work]),
            open_warehouse(job.warehouse),
            first=date.fromisoformat(job.first),
            last=date.fromisoformat(job.last),
            output=open_warehouse(job.place),
            overwrite=True,
        )
    ways = {"sql": SPARK_SQL, "naive": NAIVE}[job.way]
    rows = ways[job.work](events)
    return lambda: rows.repartition("ds").write.mode("overwrite").partitionBy("ds").parquet(job.place)


def imported(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Import a worker's modules before the measurement."""
    import penstock.backfill.steps.columnar  # noqa: PLC0415, F401 - imported in the worker

    yield from batches


def lates_by_hand(events: DataFrame) -> DataFrame:
    """Return the late departures, as an experienced Spark user computes them."""
    quarters = F.floor(F.col("dep_delay") / 15).alias("quarters")
    return events.where("dep_delay >= 15").select("route", "scheduled", "tailnum", quarters, "ds")


def days_by_hand(events: DataFrame) -> DataFrame:
    """Return the days of routes."""
    departed = events.where("dep_delay is not null")
    of_day = departed.groupBy("route", F.expr(f"scheduled div {DAY_MS} * {DAY_MS}").alias("day"))
    found = of_day.agg(F.count("*").alias("departures"), F.avg("dep_delay"), F.max("dep_delay"))
    return found.withColumn("ds", F.expr(f"cast(date_from_unix_date(cast(day div {DAY_MS} as int)) as string)"))


def gaps_by_hand(events: DataFrame) -> DataFrame:
    """Return the departures with the time since the previous departure on the bus."""
    in_order = Window.partitionBy("route").orderBy("_bucket", "_offset")
    gap = F.col("scheduled") - F.lag("scheduled").over(in_order)
    return events.select("route", "scheduled", "flight", gap.alias("gap_ms"), "ds")


def in_pandas(work: str) -> Callable[[DataFrame], DataFrame]:
    """Return the same Python code within `applyInPandas`, as in a first implementation."""

    def compute(events: DataFrame) -> DataFrame:
        return events.groupBy("route").applyInPandas(NAIVE_STEPS[work], SCHEMAS[work])

    return compute


def naive_lates(group: pd.DataFrame) -> pd.DataFrame:
    """Process a route's rows."""
    process = Lates().process
    return to_rows([output for event in flights_in(group) for output in process(event)], Lates.writes)


def naive_gaps(group: pd.DataFrame) -> pd.DataFrame:
    """Process a route's rows, in the order of the bus."""
    process, outputs = Gaps().process, list[Gap]()
    state: int | None = None
    for event in flights_in(group.sort_values(["_bucket", "_offset"])):
        state, new = process(event, state, None)  # type: ignore[arg-type]  # it does not use its context
        outputs += new
    return to_rows(outputs, Gaps.writes)


def naive_days(group: pd.DataFrame) -> pd.DataFrame:
    """Fold a route's rows by day."""
    processor, slots = Days(), dict[int, Any]()
    monoid = processor.monoid
    for event in flights_in(group):
        observation = processor.observe(event)
        if observation is not None:
            start = event.scheduled - event.scheduled % DAY_MS
            slots[start] = monoid.fold(slots[start], observation) if start in slots else monoid.lift(observation)
    route = group["route"].iloc[0]
    found = [
        processor.result(route, ps.windows.Window(at, at + DAY_MS), monoid.value(partial))
        for at, partial in slots.items()
    ]
    return to_rows(found, Days.writes)


def flights_in(group: pd.DataFrame) -> Iterator[Flight]:
    """Yield a route's rows as records."""
    names = list(Flight.__struct_fields__)
    for row in group[names].itertuples(index=False):
        values = row._asdict()
        values["dep_delay"] = None if pd.isna(values["dep_delay"]) else values["dep_delay"]
        yield Flight(**values)


def to_rows(outputs: list[Any], category: Any) -> pd.DataFrame:
    """Return records as rows."""
    rows = pd.DataFrame([asdict(output) for output in outputs], columns=list(category.record.__struct_fields__))
    return rows.assign(ds=pd.to_datetime(rows[category.times.column], unit="ms").dt.strftime("%Y-%m-%d"))


SPARK_SQL: dict[str, Callable[[DataFrame], DataFrame]] = {
    "lates": lates_by_hand,
    "days": days_by_hand,
    "gaps": gaps_by_hand,
}
NAIVE_STEPS = {"lates": naive_lates, "days": naive_days, "gaps": naive_gaps}
NAIVE: dict[str, Callable[[DataFrame], DataFrame]] = {work: in_pandas(work) for work in NAIVE_STEPS}
SCHEMAS = {
    "lates": "route string, scheduled long, tailnum string, quarters long, ds string",
    "gaps": "route string, scheduled long, flight long, gap_ms double, ds string",
    "days": "route string, day long, departures long, mean_delay double, worst_delay double, ds string",
}


@contextmanager
def measured_processes() -> Iterator[list[float]]:
    """Measure this process and its descendants in the block: seconds, processor seconds, and the maximum memory of a worker in MiB."""
    usage: list[float] = []
    ended, most = threading.Event(), [0.0]

    def watch() -> None:
        while not ended.wait(0.3):
            memory = [_resident(process) for process in _workers()]
            most[0] = max(most[0], *memory, 0.0)

    watching = threading.Thread(target=watch, daemon=True)
    began_s, spent_s = time.monotonic(), _spent_s()
    watching.start()
    yield usage
    ended.set()
    watching.join()
    usage += [time.monotonic() - began_s, _spent_s() - spent_s, most[0]]


def _workers() -> list[psutil.Process]:
    return [process for process in psutil.Process().children(recursive=True) if "python" in _name(process)]


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def _resident(process: psutil.Process) -> float:
    try:
        return float(process.memory_info().rss) / 2**20
    except psutil.NoSuchProcess:
        return 0.0


def _spent_s() -> float:
    """Return the processor time of all processes, including ended workers."""
    own = psutil.Process()
    spent = own.cpu_times().user + own.cpu_times().system
    for process in own.children(recursive=True):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        spent += times.user + times.system + times.children_user + times.children_system
    return float(spent)


if __name__ == "__main__":
    main(Job(*sys.argv[1:]))
