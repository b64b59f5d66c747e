"""The backfill: each processor of an app over its own archived input, upstream ones first, in Spark.

archive --plan--> rows of outputs --written aside, by category and day--> published, category by category
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from types import MappingProxyType

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation calls it

from ...processors.declare.aggregator import Aggregator
from ...processors.declare.apps import App, AppName
from ...processors.declare.categories import AnyCategory
from ...processors.declare.processor import Processor
from ...processors.declare.stateful import Stateful
from ...transport.kafka import KafkaBus
from ..errors import BackfillRefused
from ..outputs.output_folder import OutputFolder
from ..sources.bus_part import BusPart
from ..sources.coverage import EVER, WantedDays, covered, noted
from ..sources.external_inputs import ExternalInputs, said_of, taken
from ..sources.source import Source
from ..spark.counts import Counters, taken_by
from ..spark.failures import told
from ..spark.hadoop import Folders
from ..spark.progress import Progress, followed, silent
from ..spark.session import settle, spark_session
from ..spark.shipped_app import ShippedApp
from ..spark.shipping import place
from ..steps.outputs import slot_of
from ..steps.step import Step
from ..warehouse.columns import DAY_COLUMN, OUTPUT_MARKS, Columns
from ..warehouse.layout import Days, folder_of
from ..warehouse.warehouse import Warehouse, open_warehouse
from .plans import Order, days_read, order_of, plan

Orders = Mapping[type[Processor], "Order | None"]
"""In which order the events of each processor come; None where it does not matter."""


@dataclass(frozen=True)
class NodeResult:
    """What a backfill did for one processor.

    Args:
        processor: its class's name.
        kind: stateless, stateful or aggregator.
        events_in: events it was given, without those that only warmed its state up.
        events_out: records it gave.
        set_aside: events it raised for and that were left out, as it asks (`on_error = ErrorPolicy.DEAD_LETTER`), or that found no row
            where it looks one up.
        seconds: how long it took.
        note: what else a reader should know; may be empty.
    """

    processor: str
    kind: str
    events_in: int
    events_out: int
    set_aside: int
    seconds: float
    note: str


def run_backfill(
    app_name: AppName,
    warehouse: Warehouse,
    *,
    first: date,
    last: date,
    output: str,
    master: str = "local[*]",
    order: Order | None = None,
    chained: bool = False,
    overwrite: bool = False,
    until_now: KafkaBus | None = None,
    allow_missing: bool = False,
    places: ExternalInputs = MappingProxyType({}),
    progress: Progress = silent,
) -> list[NodeResult]:
    """Run the processors of an app over the archive, for the days from `first` to `last` of event time, both included.

    Args:
        app_name: the app, or one processor of it; a cluster is sent what it needs.
        warehouse: the archive.
        first: the first UTC day.
        last: the last UTC day.
        output: a folder or an ``hdfs://`` location; its categories lie there as in the warehouse.
        master: where Spark runs.
        order: in which order the events come of processors whose result depends on it; None for that which fits each.
        chained: give each processor what those before it in the app give in this run, instead of what is archived of it.
        overwrite: replace categories that are in the output already; otherwise they are refused.
        until_now: the bus from which to read on where the archive ends, up to where it ends itself as this begins; None for the
            archive alone.
        allow_missing: go on where days of the inputs are missing, or are not complete; see `coverage`.
        places: where inputs are taken from that are not read from the archive, such as the output of an earlier run.
        progress: told how far each processor is.

    Raises:
        BusError: the bus does not answer, or has not the categories.
        BackfillRefused: it cannot be done, or would overwrite; nothing was started.
        BackfillFailed: a processor failed; its output was not published.
        AppFileError, DeclarationError: the app.
    """
    if last < first:
        raise BackfillRefused(f"No day lies between {first} and {last}: give the earlier one first.")
    app = app_name.load()
    chain = Chain.of(app, chained=chained)
    elsewhere = taken(places, chain.read_from_outside(app))
    chain = replace(chain, elsewhere=frozenset(elsewhere))
    orders = {
        processor: order_of(processor, order, archived=chain.is_archived(processor)) for processor in app.processors
    }
    for processor in app.processors:
        for category in processor.inputs():
            Columns(category.record)
    days = Days(first, last)
    wanted = _wanted(app, orders, chain, days)
    beyond = allow_missing or until_now is not None  # what the archive has not yet, the bus has
    missing = said_of(elsewhere, wanted) | covered(
        warehouse, [one for one in wanted if one.category.name not in elsewhere], allow_missing=beyond
    )
    target = open_warehouse(output).location
    with spark_session(master) as spark:
        with told("Sending the app to Spark"):
            placed = place(spark.sparkContext, app_name, app.processors)
        with told("Looking at warehouse and output"):
            folder = OutputFolder(Folders(spark, target), overwrite=overwrite)
            made = {name: folder.aside(name) for name in chain.made}
            made |= {name: f"{there.location}/{folder_of(name)}" for name, there in elsewhere.items()}
            read = [category for category in _read(app.processors) if category.name not in made]
            bus = BusPart.of(spark, until_now, placed, warehouse, read) if until_now else None
            source = Source(spark, warehouse, made, bus)
            _refuse_missing(app, source)
            folder.begin(category.name for category in _written(app.processors))
        run = _Run(placed, source, days, chain, folder, missing)
        try:
            return list(run.nodes(app, orders, progress))
        except BaseException:
            settle(spark)
            raise
        finally:
            folder.discard()


@dataclass(frozen=True)
class Chain:
    """How the processors of a run hang together.

    Args:
        made: the categories that are read in the run that gives them.
        elsewhere: those that are read from where no bus has put them in an order.
    """

    made: frozenset[str]
    elsewhere: frozenset[str] = frozenset()

    @staticmethod
    def of(app: App, *, chained: bool) -> Chain:
        """Return how those of an app do: by the archive, or one by the other."""
        read = {category.name for processor in app.processors for category in processor.inputs()}
        written = {category.name for category in _written(app.processors)}
        return Chain(frozenset(read & written if chained else ()))

    def is_archived(self, processor: type[Processor]) -> bool:
        """Tell whether all that a processor reads comes from the archive."""
        return (self.made | self.elsewhere).isdisjoint(category.name for category in processor.inputs())

    def read_from_outside(self, app: App) -> list[AnyCategory]:
        """Return what the processors read that write something, and that is not made in the run."""
        read = [category for processor in app.processors if processor.outputs() for category in processor.inputs()]
        return [category for category in read if category.name not in self.made]


def _read(processors: Sequence[type[Processor]]) -> list[AnyCategory]:
    """Return what processors read that are run, which are those that write."""
    return [category for processor in processors if processor.outputs() for category in processor.inputs()]


def _written(processors: Sequence[type[Processor]]) -> list[AnyCategory]:
    return [category for processor in processors for category in processor.outputs()]


def _wanted(app: App, orders: Orders, chain: Chain, days: Days) -> list[WantedDays]:
    """Return what is taken of each archived input, by all processors that write something."""
    wanted: dict[str, WantedDays] = {}
    for processor in filter(lambda processor: processor.outputs(), app.processors):
        read = EVER if chain.made else days_read(processor, orders[processor], days)
        for category in processor.inputs():
            if category.name not in chain.made:
                other = wanted.get(category.name, WantedDays(category, read, days)).read
                both = Days(min(read.first, other.first), max(read.last, other.last))
                wanted[category.name] = WantedDays(category, both, days)
    return list(wanted.values())


def _refuse_missing(app: App, source: Source) -> None:
    archive = Folders(source.spark, source.location)
    for processor in app.processors:
        names = [category.name for category in processor.inputs() if category.name not in source.made]
        missing = [name for name in names if not (source.bus or archive.has(name))]
        if missing and processor.outputs():
            raise BackfillRefused(
                f"{processor.__name__} reads {', '.join(missing)}, which is not in the warehouse {source.location}. "
                "Nothing was started. Archive it first, name the processors to run one by one (path/app.py:Processor), or, where "
                "processors of the same app write it, give them their inputs in the run itself (`--chained`)."
            )


@dataclass(frozen=True)
class _Run:
    app: ShippedApp
    source: Source
    days: Days
    chain: Chain
    folder: OutputFolder
    missing: Mapping[str, str]

    def nodes(self, app: App, orders: Orders, progress: Progress) -> Iterator[NodeResult]:
        """Run one processor after the other, and publish each category when no later one has to do with it."""
        for processor in app.processors:
            yield self._node(processor, orders[processor], progress)
            with told(processor.__name__):
                self._publish(app, processor)

    def _node(self, processor: type[Processor], order: Order | None, progress: Progress) -> NodeResult:
        """Run one processor, whose output is then complete and not published."""
        if not processor.outputs():
            return NodeResult(
                processor.__name__, _kind_of(processor), 0, 0, 0, 0.0, "writes nothing, so it was not run"
            )
        began_s = time.monotonic()
        context = self.source.spark.sparkContext
        steps: list[Counters] = []
        bus = self.source.bus
        origins = bus.origins(self.source.spark, processor.inputs()) if bus else {}

        def step_over(category: AnyCategory) -> Step:
            steps.append(Counters.of(context))
            return Step(self.app, processor.name, category.name, steps[-1], origins.get(category.name))

        with (
            told(processor.__name__),
            followed(context, processor.__name__, lambda: taken_by(steps), progress),
        ):
            frame, note = plan(processor, self.source, self._computed, order, step_over)
            _write(frame, processor, self.folder)
        return NodeResult(
            processor.__name__,
            _kind_of(processor),
            taken_by(steps),
            sum(step.events_out.value for step in steps),
            sum(step.set_aside.value for step in steps),
            time.monotonic() - began_s,
            "; ".join(
                filter(None, [noted(self.missing, processor.inputs(), note), *(bus.notes(origins) if bus else ())])
            ),
        )

    @property
    def _computed(self) -> Days:
        """The days that are computed: in a chain all of them, since what comes later may depend on any."""
        return Days(date.min, date.max) if self.chain.made else self.days

    def _publish(self, app: App, processor: type[Processor]) -> None:
        """Publish what is whole now, and not read any more."""
        done = app.processors.index(processor) + 1
        later = app.processors[done:]
        read = {category.name for other in later for category in other.inputs()} & self.chain.made
        pending = read | {category.name for category in _written(later)}
        for name in dict.fromkeys(category.name for category in _written(app.processors[:done])):
            if name not in pending and name not in self.folder.published:
                if self.chain.made:
                    self.folder.keep(name, self.days)
                self.folder.publish(name)


def _write(frame: DataFrame, processor: type[Processor], folder: OutputFolder) -> None:
    """Compute the rows once, and write each category's own."""
    several = len(processor.outputs()) > 1
    if several:
        frame.persist(StorageLevel.DISK_ONLY)
    for number, category in enumerate(processor.outputs()):
        slot = slot_of(number)
        folder.add(
            frame.where(F.col(slot).isNotNull()).select(f"{slot}.*", *OUTPUT_MARKS.names, DAY_COLUMN), category.name
        )
    if several:
        frame.unpersist()


def _kind_of(processor: type[Processor]) -> str:
    if issubclass(processor, Aggregator):
        return "aggregator"
    return "stateful" if issubclass(processor, Stateful) else "stateless"
