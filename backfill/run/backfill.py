"""Backfill in Spark: each processor of an app over its archived input, upstream processors first.

archive --plan--> blocks of outputs --temporary folder, by category and day--> published, category by category
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from enum import Enum
from types import MappingProxyType

from ...processors.apps import App, AppName
from ...processors.declare import Aggregator, AnyCategory, Destination, Processor, Stateful, plan_of
from ...transport.kafka import KafkaBus
from ..errors import BackfillRefused
from ..outputs import OutputFolder
from ..sources import (
    ALL_DAYS,
    BatchEvents,
    BusPart,
    ExternalInputs,
    WantedDays,
    check_coverage,
    expect_archived,
    external_input_notes,
    external_inputs,
    joined_notes,
)
from ..spark import (
    Counters,
    Folders,
    Progress,
    ShippedApp,
    no_progress,
    reported_progress,
    ship,
    spark_session,
    total_events_in,
    translated_errors,
    wait_for_tasks,
)
from ..steps import BatchStep, name_in_batch, times_in_batch
from ..warehouse import Days, RecordColumns, Warehouse, folder_of
from .plans import Order, days_read, expect_no_loop, order_of, plan

Orders = Mapping[type[Processor], "Order | None"]
"""The order of events of each processor; None if it does not matter."""


class Written(Enum):
    """The outputs that a run computes."""

    CATEGORIES = "categories"
    ALL = "categories and sinks"

    def of(self, processor: type[Processor]) -> tuple[Destination, ...]:
        """Return what a run writes of a processor."""
        plan = plan_of(processor)
        return plan.destinations if self is Written.ALL else plan.outputs


@dataclass(frozen=True)
class NodeResult:
    """The result of a backfill for one processor.

    Args:
        processor: the name of its class.
        kind: stateless, stateful or aggregator.
        events_in: events processed, without the ones that only warmed up its state.
        events_out: records written.
        rejected: events that were skipped under its error policy (`on_error = ErrorPolicy.DEAD_LETTER`), or that have no row in a lookup.
        seconds: the duration.
        note: a remark for the reader; may be empty.
    """

    processor: str
    kind: str
    events_in: int
    events_out: int
    rejected: int
    seconds: float
    note: str


def run_backfill(
    app_name: AppName,
    warehouse: Warehouse,
    *,
    first: date,
    last: date,
    output: Warehouse,
    master: str = "local[*]",
    written: Written = Written.CATEGORIES,
    order: Order | None = None,
    chained: bool = False,
    overwrite: bool = False,
    until_now: KafkaBus | None = None,
    allow_missing: bool = False,
    places: ExternalInputs = MappingProxyType({}),
    progress: Progress = no_progress,
) -> list[NodeResult]:
    """Run the processors of an app over the archive, for the days of event time from `first` to `last`, inclusive.

    Args:
        app_name: the app, or one processor of it.
        warehouse: the archive.
        first: the first UTC day.
        last: the last UTC day.
        output: the location for the output categories, in the layout of the warehouse.
        master: the Spark master.
        written: the outputs to compute. The rows of a sink get a folder of their own; see `name_in_batch`.
        order: the order of events for processors whose result depends on it; None for the default of each.
        chained: read the outputs of earlier processors from this run instead of the archive.
        overwrite: replace existing categories in the output; otherwise they are refused.
        until_now: the bus to read beyond the archive's end, up to its own end at the start of the run; None for the archive only.
        allow_missing: continue if days of the inputs are missing or incomplete; see `coverage`.
        places: the locations of inputs outside the archive, such as the output of an earlier run.
        progress: receives the progress of each processor.

    Raises:
        BusError: the bus failed, or lacks the categories.
        BackfillRefused: the run is impossible, or would overwrite output; nothing was started.
        BackfillFailed: a processor failed; its output was not published.
        AppFileError, DeclarationError: the app cannot be loaded.
    """
    if last < first:
        raise BackfillRefused(f"The first day, {first}, is later than the last day, {last}. Exchange them.")
    app, days = app_name.load(), Days(first, last)
    expect_no_loop(app)
    _expect_columns(app)
    _expect_all_outputs(app, written)
    running = [processor for processor in app.processors if written.of(processor)]
    chain = Chain.of(app, chained=chained)
    elsewhere = external_inputs(places, chain.read_from_outside(running))
    chain = replace(chain, elsewhere=frozenset(elsewhere))
    orders = {processor: order_of(processor, order, archived=chain.is_archived(processor)) for processor in running}
    _expect_folders(running, written)
    _expect_days_of_rows(orders, written, chain)
    tolerant = allow_missing or until_now is not None  # the bus has the days that are not archived yet
    notes = _checked_inputs(_wanted(orders, chain, days), warehouse, elsewhere, allow_missing=tolerant)
    if until_now is None:
        for processor in running:
            expect_archived(processor, _archived_inputs(processor, chain), warehouse, _OF_AN_APP)
    with spark_session(master) as spark:
        with translated_errors("Sending the app to Spark"):
            shipped = ship(spark.sparkContext, app_name, app.processors)
        with translated_errors("Opening the warehouse and the output"):
            folder = OutputFolder(Folders(spark, output.location), output.files, overwrite=overwrite)
            made = {name: folder.aside(name) for name in chain.made}
            made |= {name: f"{place.location}/{folder_of(name)}" for name, place in elsewhere.items()}
            archived = [category for category in _read(running) if category.name not in made]
            bus = BusPart.of(spark, until_now, shipped, warehouse, archived) if until_now else None
            source = BatchEvents(spark, warehouse, made, bus)
            folder.begin(names_in_batch(running, written))
        run = _Run(shipped, source, days, chain, folder, written, notes)
        try:
            return list(run.nodes(app, orders, progress))
        except BaseException:
            wait_for_tasks(spark)
            raise
        finally:
            folder.discard()


def _expect_columns(app: App) -> None:
    """Raise DeclarationError for an input whose records have no columns."""
    for processor in app.processors:
        for category in plan_of(processor).sources:
            RecordColumns(category.record)


def _expect_all_outputs(app: App, written: Written) -> None:
    """Raise BackfillRefused if the run would write the outputs of a processor in part, or nothing at all."""
    outputs = {processor: written.of(processor) for processor in app.processors}
    in_part = next(
        (each for each, some in outputs.items() if some and len(some) < len(plan_of(each).destinations)), None
    )
    nothing = next((each for each in outputs if plan_of(each).sinks), None) if not any(outputs.values()) else None
    refused = in_part or nothing
    if refused is None:
        return
    sinks = ", ".join(sink.name for sink in plan_of(refused).sinks)
    beside = f" beside {plan_of(refused).outputs[0].name}" if in_part else ""
    raise BackfillRefused(
        f"{refused.__name__} writes {sinks}{beside}, and this run would only write categories. Nothing was started. Write the rows to the sink, too, "
        "with `--output sinks`."
    )


def _expect_folders(processors: Sequence[type[Processor]], written: Written) -> None:
    """Raise BackfillRefused if a category and a sink, or two sinks, would have the same folder."""
    names: dict[str, str] = {}
    for destination in (destination for processor in processors for destination in written.of(processor)):
        other = names.setdefault(name_in_batch(destination), destination.name)
        if other != destination.name:
            raise BackfillRefused(
                f"{other} and {destination.name} would have the same folder in the output. Nothing was started. Run their processors one by one "
                "(path/app.py:Processor), each into a folder of its own."
            )


def _expect_days_of_rows(orders: Orders, written: Written, chain: Chain) -> None:
    """Raise BackfillRefused if rows of a sink would be computed, of which no day is known."""
    for processor, order in orders.items():
        for sink in plan_of(processor).sinks if written is Written.ALL else ():
            if order is not None:
                times_in_batch(sink)
            if chain.made:
                raise BackfillRefused(
                    f"{processor.__name__} writes rows to {sink.name}, which have no event time, and `--chained` computes all days to keep some of them. "
                    "Nothing was started. First write the categories with `--chained --output LOCATION`; then run path/app.py:"
                    f"{processor.__name__} with `--input LOCATION --output sinks`."
                )


def _checked_inputs(
    wanted: Sequence[WantedDays], warehouse: Warehouse, elsewhere: Mapping[str, Warehouse], *, allow_missing: bool
) -> dict[str, str]:
    """Check the days to read; return notes by category."""
    archived = [input_days for input_days in wanted if input_days.category.name not in elsewhere]
    return external_input_notes(elsewhere, wanted) | check_coverage(warehouse, archived, allow_missing=allow_missing)


@dataclass(frozen=True)
class Chain:
    """The origins of the categories that a run reads, besides the archive.

    Args:
        made: the categories that the run writes and reads.
        elsewhere: the categories that are read from outside the archive, without an order on a bus.
    """

    made: frozenset[str]
    elsewhere: frozenset[str] = frozenset()

    @staticmethod
    def of(app: App, *, chained: bool) -> Chain:
        """Return the chain of an app; without chaining, the archive is between all processors."""
        read = {category.name for processor in app.processors for category in plan_of(processor).sources}
        made = {category.name for processor in app.processors for category in plan_of(processor).outputs}
        return Chain(frozenset(read & made if chained else ()))

    def is_archived(self, processor: type[Processor]) -> bool:
        """Return whether all inputs of a processor come from the archive."""
        return (self.made | self.elsewhere).isdisjoint(category.name for category in plan_of(processor).sources)

    def read_from_outside(self, processors: Sequence[type[Processor]]) -> list[AnyCategory]:
        """Return the inputs that the run does not write itself."""
        return [category for category in _read(processors) if category.name not in self.made]


_OF_AN_APP = (
    "Archive it first, run processors one by one (path/app.py:Processor), or, if a processor of the same app writes it, use its output of "
    "this run (`--chained`)."
)


def _archived_inputs(processor: type[Processor], chain: Chain) -> list[AnyCategory]:
    """Return the inputs of a processor that come from the archive."""
    outside = chain.made | chain.elsewhere
    return [category for category in _read([processor]) if category.name not in outside]


def _read(processors: Sequence[type[Processor]]) -> list[AnyCategory]:
    return [category for processor in processors for category in plan_of(processor).sources]


def names_in_batch(processors: Sequence[type[Processor]], written: Written) -> list[str]:
    """Return the names of what a run writes in its output."""
    return [name_in_batch(destination) for processor in processors for destination in written.of(processor)]


def _wanted(orders: Orders, chain: Chain, days: Days) -> list[WantedDays]:
    """Return the days to read of each archived input, over all processors that run."""
    wanted: dict[str, WantedDays] = {}
    for processor, order in orders.items():
        read = ALL_DAYS if chain.made else days_read(processor, order, days)
        for category in plan_of(processor).sources:
            if category.name not in chain.made:
                other = wanted.get(category.name, WantedDays(category, read, days)).read
                both = Days(min(read.first, other.first), max(read.last, other.last))
                wanted[category.name] = WantedDays(category, both, days)
    return list(wanted.values())


@dataclass(frozen=True)
class _Run:
    app: ShippedApp
    source: BatchEvents
    days: Days
    chain: Chain
    folder: OutputFolder
    written: Written
    input_notes: Mapping[str, str]

    def nodes(self, app: App, orders: Orders, progress: Progress) -> Iterator[NodeResult]:
        """Run the processors in order; publish each category after the last processor that reads or writes it."""
        for processor in app.processors:
            yield self._node(processor, orders.get(processor), progress)
            with translated_errors(processor.__name__):
                self._publish(app, processor)

    def _node(self, processor: type[Processor], order: Order | None, progress: Progress) -> NodeResult:
        """Run one processor; its output is complete but not published."""
        if not self.written.of(processor):
            sinks = ", ".join(sink.name for sink in plan_of(processor).sinks)
            reason = f"it writes only {sinks}; `--output sinks` includes it" if sinks else "it writes no category"
            return NodeResult(processor.__name__, _kind_of(processor), 0, 0, 0, 0.0, f"not run, since {reason}")
        began_s = time.monotonic()
        context = self.source.spark.sparkContext
        steps: list[Counters] = []
        bus = self.source.bus
        origins = bus.origins(self.source.spark, plan_of(processor).sources) if bus else {}

        def step_over(category: AnyCategory) -> BatchStep:
            steps.append(Counters.of(context))
            return BatchStep(self.app, processor.name, category.name, steps[-1], origins.get(category.name))

        with (
            translated_errors(processor.__name__),
            reported_progress(context, processor.__name__, lambda: total_events_in(steps), progress),
        ):
            blocks, note = plan(processor, self.source, self._computed, order, step_over)
            self.folder.add(processor, blocks)
        notes = [joined_notes(self.input_notes, plan_of(processor).sources, note), *(bus.notes(origins) if bus else ())]
        return NodeResult(
            processor.__name__,
            _kind_of(processor),
            total_events_in(steps),
            sum(step.events_out.value for step in steps),
            sum(step.rejected.value for step in steps),
            time.monotonic() - began_s,
            "; ".join(filter(None, notes)),
        )

    @property
    def _computed(self) -> Days:
        """The days to compute: all days of a chain, since later processors may depend on any."""
        return ALL_DAYS if self.chain.made else self.days

    def _publish(self, app: App, processor: type[Processor]) -> None:
        """Publish the categories that no later processor reads or writes."""
        done = app.processors.index(processor) + 1
        later = app.processors[done:]
        read = {category.name for other in later for category in plan_of(other).sources} & self.chain.made
        pending = read | set(names_in_batch(later, self.written))
        for name in dict.fromkeys(names_in_batch(app.processors[:done], self.written)):
            if name not in pending and name not in self.folder.published:
                if self.chain.made:
                    self.folder.keep(name, self.days)
                self.folder.publish(name)


def _kind_of(processor: type[Processor]) -> str:
    if issubclass(processor, Aggregator):
        return "aggregator"
    return "stateful" if issubclass(processor, Stateful) else "stateless"
