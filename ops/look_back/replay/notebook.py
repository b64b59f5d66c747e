"""Past events and replays as tables, for notebooks and scripts. Nothing is written: no category, no state, no position.

from penstock import notebook

orders_now = notebook.read(orders, last=timedelta(minutes=10))
trial = notebook.replay(Totals, last=timedelta(hours=1))
trial[totals].to_pandas()
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from ....processors import DeclarationError, PenstockError, counted, ending
from ....processors.declare import AnyCategory, Processor, plan_of
from ....transport import Bucket, Bus, OffsetRange, named_cluster, read_offset_range, split_batch
from ....transport.codecs import Codecs
from ....transport.kafka import KafkaBus, KafkaSettings
from ...kernel import expect_categories, expect_side_inputs, open_processor
from .bus_source import BusEventSource
from .debugger import only
from .event_source import PastRange
from .initial_state import AtStart, Empty
from .outputs import Output, OutputCollector
from .past_watermarks import past_watermarks
from .replay import Replay, ReplayCallbacks
from .shard_replay import ReplayCounts

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]  # no stubs in the lock
    import polars as pl
    import pyarrow as pa

SHOWN = 10
"""The number of records that a notebook shows."""


class Origin(NamedTuple):
    """Where a record of a table comes from.

    Args:
        bucket: the number of its bucket; of an output, the bucket of its shard.
        key: its key.
        event_time: its event time (milliseconds since 1970, UTC).
        at_ms: its arrival (milliseconds since 1970, UTC); None for an output.
    """

    bucket: int
    key: str
    event_time: int
    at_ms: int | None = None


@dataclass(frozen=True, repr=False)
class Records(Sequence[Any]):
    """Records of one category, in order, as a sequence and as a table.

    A table has the fields of the record type, and `_bucket`, `_key`, `_event_time` and, of past events, `_arrived`; times in milliseconds
    since 1970, UTC.

    Args:
        category: the category.
        records: the records.
        origins: the origin of each of them.
        undecodable: the number of messages that did not decode.
    """

    category: AnyCategory
    records: Sequence[Any]
    origins: Sequence[Origin]
    undecodable: int = 0

    def __len__(self) -> int:
        return len(self.records)

    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> Records: ...
    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return replace(self, records=self.records[at], origins=self.origins[at])
        return self.records[at]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.records)

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table.

        Raises:
            PenstockError: Arrow is not installed.
        """
        try:
            import pyarrow as pa  # noqa: PLC0415 - is missing in penstock-core

            from ....backfill.warehouse import RecordColumns  # noqa: PLC0415 - imports Arrow
        except ImportError as error:
            raise PenstockError(
                "Tables need Arrow, which is not installed. Install it with `pip install 'penstock-core[notebook]'`. The records are also a sequence: `list(table)`."
            ) from error
        columns = RecordColumns(self.category.record)
        table = pa.Table.from_arrays(columns.arrays(self.records), schema=columns.schema)
        for name, values in self._marks():
            table = table.append_column(name, pa.array(values))
        return table

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas data frame.

        Raises:
            PenstockError: pandas, or Arrow, is not installed.
        """
        table = self.to_arrow()
        try:
            return table.to_pandas()
        except ModuleNotFoundError as error:
            raise PenstockError(
                "Data frames need pandas, which is not installed. Install it with `pip install 'penstock-core[notebook]'`. `to_arrow()` and "
                "`list(table)` need no pandas."
            ) from error

    def to_polars(self) -> pl.DataFrame:
        """Return a Polars data frame."""
        import polars as pl  # noqa: PLC0415 - only who uses it needs it

        return pl.DataFrame(self.to_arrow())

    def _marks(self) -> Iterator[tuple[str, Sequence[object]]]:
        yield "_bucket", [origin.bucket for origin in self.origins]
        yield "_key", [origin.key for origin in self.origins]
        yield "_event_time", [origin.event_time for origin in self.origins]
        if any(origin.at_ms is not None for origin in self.origins):
            yield "_arrived", [origin.at_ms for origin in self.origins]

    def __repr__(self) -> str:
        more = f"\n  … and {len(self) - SHOWN:,} more" if len(self) > SHOWN else ""
        return self._caption + "".join(f"\n  {each!r}" for each in self[:SHOWN]) + more

    @property
    def _caption(self) -> str:
        lost = f", and {counted(self.undecodable, 'message')} that did not decode" if self.undecodable else ""
        return f"{counted(len(self), 'record')} of {self.category.name}{lost}"

    def _repr_html_(self) -> str:
        from html import escape  # noqa: PLC0415 - notebooks only

        table = self[:SHOWN].to_arrow()
        header = "".join(f"<th>{escape(name)}</th>" for name in table.column_names)
        rows = ("".join(f"<td>{escape(str(value))}</td>" for value in row.values()) for row in table.to_pylist())
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        more = f"<p>… and {len(self) - SHOWN:,} more</p>" if len(self) > SHOWN else ""
        return (
            f"<p>{escape(self._caption)}</p><table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>{more}"
        )


@dataclass(frozen=True, repr=False)
class ReplayResult(Mapping[AnyCategory, Records]):
    """The outputs of a replay, by category.

    Args:
        processor: the processor.
        counts: the numbers of events, outputs, late events and dead letters.
        outputs: the outputs of each category. Tombstones are counted, but contain no record.
    """

    processor: type[Processor]
    counts: ReplayCounts
    outputs: Mapping[str, Records]

    def __getitem__(self, category: AnyCategory) -> Records:
        return self.outputs[category.name]

    def __iter__(self) -> Iterator[AnyCategory]:
        return (records.category for records in self.outputs.values())

    def __len__(self) -> int:
        return len(self.outputs)

    def __repr__(self) -> str:
        return "\n".join([f"{self.processor.__name__}: {self.counts}", *map(repr, self.outputs.values())])

    def _repr_html_(self) -> str:
        tables = "".join(records._repr_html_() for records in self.outputs.values())
        return f"<p>{self.processor.__name__}: {self.counts}</p>{tables}"


def read(
    category: AnyCategory,
    *,
    last: timedelta | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    key: str | None = None,
    limit: int = 100_000,
    kafka: str | None = None,
    settings: Mapping[str, str] | None = None,
    bus: Bus | None = None,
) -> Records:
    """Return past events of a category, in order of arrival.

    Args:
        category: the category.
        last: the time before now in which the events arrived. Default: ten minutes.
        since: the arrival of the first event, instead of `last`.
        until: the end of the range, excluded. Default: now.
        key: events of this key only.
        limit: the greatest number of messages to read; of more, the last ones.
        kafka: the addresses of brokers. Default: the environment variable `PENSTOCK_KAFKA`.
        settings: further settings of the Kafka client, such as for TLS.
        bus: a bus in place of a cluster, such as the memory bus of tests.

    Raises:
        DeclarationError: both `last` and `since` are given, or a time has no offset from UTC.
        BusError: no cluster is named; the category is missing; no broker answers.
    """
    begin, cluster = _begin(last, since, until), bus or _connected(kafka, settings)
    codec = Codecs(cluster).of(category)
    found: list[tuple[Origin, Any]] = []
    undecodable = 0
    for stretch in _last_messages(cluster, category.name, begin, until, limit):
        for received in read_offset_range(cluster, stretch):
            batch = split_batch(codec, received)
            decoded, arrivals = codec.decode(batch.messages), batch.arrivals_ms()
            undecodable += len(decoded.bad)
            keys, times = category.keys_of(decoded.events), category.event_times_of(decoded.events)
            for at, event_key, time, event in zip(decoded.at, keys, times, decoded.events, strict=True):
                if key in (None, event_key):
                    found.append((Origin(batch.bucket.number, event_key, time, int(arrivals[at])), event))
    found.sort(key=lambda pair: pair[0].at_ms or 0)
    found = found[-limit:]
    return Records(category, [event for _, event in found], [origin for origin, _ in found], undecodable)


def _last_messages(
    bus: Bus, category: str, begin: datetime, until: datetime | None, limit: int
) -> Iterator[OffsetRange]:
    """Yield the last messages of a range in each bucket, at most `limit`."""
    starts, ends = bus.catalog.at_time(category, begin), dict(bus.catalog.stable_ends(category))
    if until is not None:
        ends = {number: min(end, ends[number]) for number, end in bus.catalog.at_time(category, until).items()}
    firsts = bus.catalog.describe(category).starts
    for number, end in ends.items():
        start = max(starts[number], end - limit, firsts[number])
        if start < end:
            yield OffsetRange(Bucket(category, number), start, end)


def replay(
    processor: type[Processor],
    *,
    last: timedelta | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    key: str | None = None,
    from_empty: bool = False,
    kafka: str | None = None,
    settings: Mapping[str, str] | None = None,
    bus: Bus | None = None,
) -> ReplayResult:
    """Process past events, and return the outputs. The live processor, its state and its categories are not touched.

    Args:
        processor: the processor; it need not be deployed.
        last: the time before now in which the events arrived. Default: ten minutes.
        since: the arrival of the first event, instead of `last`.
        until: the end of the range, excluded. Default: now.
        key: events of this key only.
        from_empty: whether to begin with an empty state. Default: with the state that the retained events before the range produce.
        kafka: the addresses of brokers. Default: the environment variable `PENSTOCK_KAFKA`.
        settings: further settings of the Kafka client, such as for TLS.
        bus: a bus in place of a cluster, such as the memory bus of tests.

    Raises:
        DeclarationError: the processor is invalid, or both `last` and `since` are given.
        BusError: no cluster is named; a category is missing; no broker answers.
        ReplayStopped: a worker would stop at an event.
        ReplayRefused: events of the range have expired.
    """
    plan = plan_of(processor)
    plan.check()
    span, cluster = PastRange(_begin(last, since, until), until), bus or _connected(kafka, settings)
    expect_categories(processor, plan.inputs, cluster)
    expect_side_inputs(processor, cluster)
    found: dict[str, list[Output]] = {destination.name: [] for destination in plan.destinations}
    collector = OutputCollector(
        processor, key, [lambda output: found[output.category.name].append(output)], keeps=False
    )
    with ending(open_processor(processor, cluster)) as running, past_watermarks(running, cluster) as upstream:
        if key is not None:
            only(running, key)
        numbers = range(plan.inputs[0].buckets)
        past = BusEventSource(running, cluster)
        for shard in Replay(running, past, span, Empty() if from_empty else AtStart(None), numbers, upstream).shards():
            with closing(shard.play(collector.counts, ReplayCallbacks())) as played:
                collector.all(played)
    outputs = {category.name: _records(category, found[category.name]) for category in plan.outputs}
    return ReplayResult(processor, collector.counts, outputs)


def _records(category: AnyCategory, outputs: Sequence[Output]) -> Records:
    found = [
        (output.record, Origin(output.number, output.key, output.event_time))
        for output in outputs
        if output.event_time is not None
    ]
    return Records(category, [record for record, _ in found], [origin for _, origin in found])


def _begin(last: timedelta | None, since: datetime | None, until: datetime | None) -> datetime:
    if last is not None and since is not None:
        raise DeclarationError("`last` and `since` both name the beginning of the range. Give one of them.")
    for name, point in (("since", since), ("until", until)):
        if point is not None and point.utcoffset() is None:
            raise DeclarationError(
                f"`{name}={point!r}` has no offset from UTC, so it is no point in time. Give one, such as datetime.now(timezone.utc)."
            )
    return since or datetime.now(UTC) - (last or timedelta(minutes=10))


def _connected(kafka: str | None, settings: Mapping[str, str] | None) -> KafkaBus:
    return KafkaBus(KafkaSettings(kafka or named_cluster(), dict(settings or {})))
