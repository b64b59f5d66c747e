"""Steps of Spark's workers, without Spark: the same results for any split into batches."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support.step_counts import counters

import penstock as ps
from penstock.backfill.archive import archive_schema, archive_schema_of
from penstock.backfill.spark import ShippedApp, Transform
from penstock.backfill.spark.failures import WorkerFailure
from penstock.backfill.steps import (
    BatchStep,
    EventBlocks,
    Inputs,
    PartOf,
    Split,
    aggregation,
    arrival_order,
    arrival_order_step,
    event_time_step,
    mapper_step,
    reducer_step,
    stateful_reducer,
)
from penstock.backfill.warehouse import DAY_MS, MARKS, Days, RecordColumns
from penstock.processors.apps import AppName
from penstock.processors.keyed_state import StateCache
from penstock.processors.operators import open_operator, stateful
from penstock.state import MemoryShardState

FIRST_DAY_MS = 15_706 * DAY_MS
DAYS = Days(date(2013, 1, 2), date(2013, 1, 2))


class Word(ps.Record, frozen=True):
    """A spoken word."""

    speaker: str
    at: ps.EventTime
    word: str


class NumberedWord(Word, frozen=True):
    """A word or text of a speaker, with a number."""

    number: int


words = ps.Category("words", Word, key="speaker", event_time="at", buckets=1)
heard = ps.Category("heard", NumberedWord, key="speaker", event_time="at", buckets=1)
spoken = ps.Category("spoken", NumberedWord, key="speaker", event_time="at", buckets=1)
echoed = ps.Category("echoed", Word, key="speaker", event_time="at", buckets=1)


class Echo(ps.Stateless):
    """Writes each word twice, and raises at one word between both outputs."""

    reads, writes = words, echoed
    on_error = ps.ErrorPolicy.DEAD_LETTER

    def process(self, event: Word) -> Iterable[Word]:
        """Return the word twice."""
        yield event
        if event.word == "w13":
            raise ValueError(event.word)
        yield event


class Number(ps.Stateful):
    """Numbers a speaker's words."""

    reads, writes = words, heard
    state = int

    def process(self, event: Word, state: int | None, context: ps.Context) -> tuple[int, list[NumberedWord]]:
        """Return the word with its number."""
        number = (state or 0) + 1
        return number, [NumberedWord(event.speaker, event.at, event.word, number)]


class Forget(ps.Stateless):
    """Writes a tombstone for each word."""

    reads, writes = words, echoed

    def process(self, event: Word) -> list[ps.Tombstone]:
        """Forget the speaker."""
        return [ps.Tombstone(event.speaker)]


class ForgetStateful(ps.Stateful):
    """The same with a state."""

    reads, writes, state = words, echoed, int

    def process(self, event: Word, state: int | None, context: ps.Context) -> tuple[int, list[ps.To]]:
        """Forget the speaker."""
        return 1, [ps.To(echoed, ps.Tombstone(event.speaker))]


class Silence(ps.Stateful):
    """Counts a speaker's words until an hour without any."""

    reads, writes, state = words, heard, int

    def process(self, event: Word, state: int | None, context: ps.Context) -> tuple[int, list[NumberedWord]]:
        """Count the word, and set a timer."""
        context.timer(event.at + 3_600_000)
        return (state or 0) + 1, []

    def on_timer(self, timer: ps.Timer, state: int, context: ps.Context) -> tuple[None, list[NumberedWord]]:
        """Write the count, and start again."""
        return None, [NumberedWord(context.key, timer.at, "silence", state)]


class Retold(ps.Stateful):
    """Writes a speaker's words so far, in order of event time."""

    reads, writes, state = words, heard, str
    ordered = True
    watermark = ps.watermarks.BoundedOutOfOrderness(timedelta(days=3))

    def process(self, event: Word, state: str | None, context: ps.Context) -> tuple[str, list[NumberedWord]]:
        """Add the word to the story."""
        story = f"{state or ''}{event.word} "
        return story, [NumberedWord(event.speaker, event.at, story, len(story))]


class RetoldSoon(Retold):
    """The same with a bound of five hours."""

    watermark = ps.watermarks.BoundedOutOfOrderness(timedelta(hours=5))


class Talks(ps.Aggregator):
    """Counts a speaker's words per session."""

    reads, writes = words, heard
    monoid: ClassVar[ps.monoids.Monoid[Any]] = ps.monoids.Count()
    window = ps.windows.Session(timedelta(hours=1))
    emit = ps.AtWatermark()
    late = ps.OnLate.DROP

    def result(self, key: str, window: ps.windows.Window, value: int) -> NumberedWord:
        """Return the count at the session's end."""
        return NumberedWord(key, window.end, "silence", value)


class Recently(ps.Aggregator):
    """Aggregates a speaker's words of the last six hours at each word."""

    reads, writes = words, heard
    monoid: ClassVar[ps.monoids.Monoid[Any]] = ps.monoids.TupleOf(
        ps.monoids.FirstArrived(), ps.monoids.LastArrived(), ps.monoids.Count()
    )
    window = ps.windows.Sliding(timedelta(hours=6))
    watermark = ps.watermarks.BoundedOutOfOrderness(timedelta(days=3))
    emit = ps.AtWatermark()
    late = ps.OnLate.DROP

    def observe(self, event: Word) -> tuple[str, str, int]:
        """Return the word for each part."""
        return event.word, event.word, 1

    def result(self, key: str, window: ps.windows.Window, value: tuple[str, str, int]) -> NumberedWord:
        """Return the first word, the last word and the count."""
        first, last, count = value
        return NumberedWord(key, window.end - 1, f"{first}-{last}", count)


class RecentlySoon(Recently):
    """The same with a bound of five hours."""

    watermark = ps.watermarks.BoundedOutOfOrderness(timedelta(hours=5))


class Newest(ps.Aggregator):
    """A speaker's last word in an hour."""

    reads, writes = words, spoken
    monoid = ps.monoids.TupleOf(ps.monoids.LastArrived(), ps.monoids.Count())
    window = ps.windows.Tumbling(timedelta(hours=1))

    def observe(self, event: Word) -> tuple[str, int]:
        """Return the word for both parts."""
        return event.word, 1

    def result(self, key: str, window: ps.windows.Window, value: tuple[str, int]) -> NumberedWord:
        """Return both."""
        return NumberedWord(key, window.start, *value)


class Dictionary:
    """Contains every tenth word; the next `failures` requests with keys fail."""

    def __init__(self) -> None:
        self.failures = 0

    def open(self) -> Dictionary:
        return self

    def fetch(self, keys: Sequence[str]) -> dict[str, str]:
        if keys and self.failures:
            self.failures -= 1
            raise ps.lookups.LookupUnreachable("The dictionary is away.")
        return {key: f"{key}!" for key in keys if key.endswith("0")}

    def close(self) -> None:
        pass


class Define(ps.LookupJoin):
    """Writes the dictionary's entries, and drops other words."""

    reads, writes = words, echoed
    source = Dictionary()
    on_miss = ps.lookups.OnMiss.DROP
    on_unreachable = ps.lookups.OnUnreachable.WAIT

    def key_of(self, event: Word) -> str:
        return event.word

    def join(self, event: Word, row: str) -> Iterable[Word]:
        """Return the entry."""
        yield Word(event.speaker, event.at, row)


class DefineOrStop(Define):
    """The same, but stops without an entry or an answer."""

    on_miss = ps.lookups.OnMiss.STOP
    on_unreachable = ps.lookups.OnUnreachable.STOP


def step_of(processor: str) -> BatchStep:
    """Return a processor's step over the words of this file."""
    return BatchStep(ShippedApp(AppName(Path(__file__))), processor, "words", counters())


def said_words() -> list[Word]:
    """Return words of a few speakers on two days, out of order."""
    dice = random.Random(3)
    return [Word(f"s{dice.randrange(5)}", FIRST_DAY_MS + dice.randrange(2 * DAY_MS), f"w{n}") for n in range(200)]


def nearly_in_order() -> list[Word]:
    """Return words up to six hours out of order, and a few that are half a day later still."""
    dice = random.Random(4)
    step, behind = 2 * DAY_MS // 600, DAY_MS // 4
    late = [DAY_MS // 2 if n % 150 == 149 else 0 for n in range(600)]
    return [
        Word(f"s{dice.randrange(9)}", FIRST_DAY_MS + n * step - dice.randrange(behind) - late[n], f"w{n}")
        for n in range(600)
    ]


def stored(events: Sequence[tuple[int, Word]], size: int) -> list[pa.RecordBatch]:
    """Return events with their offsets, as batches of the archive."""
    columns = RecordColumns(Word)
    batches = []
    for start in range(0, len(events), size):
        offsets, part = zip(*events[start : start + size], strict=True)
        marks: list[tuple[list[Any], pa.DataType]] = [
            ([0] * len(part), pa.int32()),
            (list(offsets), pa.int64()),
            (words.keys_of(part), pa.string()),
            (words.event_times_of(part), pa.int64()),
            (words.event_times_of(part), pa.int64()),
        ]
        arrays = [*columns.arrays(part), *(pa.array(values, kind) for values, kind in marks)]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=archive_schema(columns)))
    return batches


def as_input(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Convert batches of the archive to batches of a processor's only input."""
    names = [name for name in batches[0].schema.names if name not in MARKS.names]
    return [
        pa.RecordBatch.from_arrays(
            [
                pa.array([0] * batch.num_rows, pa.int32()),
                *(batch.column(name) for name in MARKS.names),
                pa.StructArray.from_arrays([batch.column(name) for name in names], names=names),
            ],
            names=["_input", *MARKS.names, "_event_0"],
        )
        for batch in batches
    ]


def outputs(transform: Transform, batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Return the records of a step's output rows."""
    return [row["_output_0"] for batch in transform(iter(batches)) for row in batch.to_pylist()]


def shuffled(blocks: EventBlocks, batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return the sorted blocks of each part, which one task packs from batches in any order."""
    packed = pa.Table.from_batches(blocks.packed(iter(batches))).sort_by(
        [(name, "ascending") for name in ("part", "bucket", "range")]
    )
    return [
        packed.filter(pc.field("part") == part).combine_chunks().to_batches()[0] for part in range(blocks.split.parts)
    ]


@pytest.mark.parametrize(("size", "drained"), [(1, 1), (7, 50), (1000, 100_000)])
def test_a_reducer_carries_a_keys_state_from_range_to_range(
    monkeypatch: pytest.MonkeyPatch, size: int, drained: int
) -> None:
    """The operator drops saved states nevertheless. Words before the days count without output."""
    monkeypatch.setattr(stateful, "STATE_CACHE", StateCache(0))
    monkeypatch.setattr(stateful_reducer, "DRAINED_EVENTS", drained)
    numbered: list[NumberedWord] = []
    said: Counter[str] = Counter()
    for word in said_words():
        said[word.speaker] += 1
        if DAYS.contains(word.at):
            numbered.append(NumberedWord(word.speaker, word.at, word.word, said[word.speaker]))
    step, blocks = step_of("Number"), EventBlocks.of(archive_schema_of(words), Split(PartOf.KEY, 1), 50)
    [part] = shuffled(blocks, stored(sorted(enumerate(said_words()), key=lambda sent: sent[1].speaker), size))
    given = outputs(reducer_step(step, blocks, DAYS), [part])

    assert [NumberedWord(**record) for record in given] == numbered
    assert step.counters.events_in.value == step.counters.events_out.value == len(numbered)


@pytest.mark.parametrize("flush_events", [1, 30, 1000])
def test_partials_merge_in_bus_order(monkeypatch: pytest.MonkeyPatch, flush_events: int) -> None:
    """Two tasks with a range each, and partials emitted in turns, result in the last word."""
    monkeypatch.setattr(aggregation, "FLUSH_EVENTS", flush_events)
    sent, step = list(enumerate(said_words())), step_of("Newest")
    tasks = [aggregation.partials_step(step)(iter(stored(part, 10))) for part in (sent[:120], sent[120:])]
    rows = sorted(
        (row for task in tasks for batch in task for row in batch.to_pylist()),
        key=lambda row: (row["key"], row["start"], row["bucket"], row["offset"]),
    )
    shuffled = pa.RecordBatch.from_pylist(rows, schema=aggregation.PARTIALS)
    given = outputs(aggregation.merge_step(step), [shuffled.slice(0, 5), shuffled.slice(5)])
    slots: dict[tuple[str, int], list[str]] = {}
    for _, word in sent:
        slots.setdefault((word.speaker, word.at - word.at % 3_600_000), []).append(word.word)

    assert [NumberedWord(**record) for record in given] == [
        NumberedWord(key, start, found[-1], len(found)) for (key, start), found in sorted(slots.items())
    ]


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("processor", ["Silence", "Talks"])
def test_timers_fire_between_events(processor: str, size: int) -> None:
    """Sessions end likewise; timers after the newest event do not fire."""
    sent = sorted(enumerate(said_words()), key=lambda word: (word[1].speaker, word[1].at, word[0]))
    newest = max(word.at for _, word in sent)
    given = outputs(event_time_step(Inputs([step_of(processor)]), DAYS, newest), as_input(stored(sent, size)))

    truth = []
    for speaker, of_speaker in groupby((word for _, word in sent), key=lambda word: word.speaker):
        times = [word.at for word in of_speaker]
        count = 0
        for at, following in zip(times, [*times[1:], None], strict=True):
            count += 1
            silent_at = at + 3_600_000
            if silent_at <= (newest if following is None else following):
                truth.append((speaker, silent_at, count))
                count = 0
    assert [(one["speaker"], one["at"], one["number"]) for one in given] == [
        one for one in truth if DAYS.contains(one[1])
    ]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_sliding_windows_equal_the_streams(size: int) -> None:
    """A key's last window is equal, too. At the same time, the first word counts first."""
    sent = [Word(word.speaker, word.at // 3_600_000 * 3_600_000, word.word) for word in said_words()]
    operator = open_operator(Recently(), MemoryShardState())
    operator.feed(words, sent, stop_at_error=True)
    streamed = operator.advance({"words": FIRST_DAY_MS + 9 * DAY_MS}, {}).outputs
    archived = sorted(enumerate(sent), key=lambda word: (word[1].speaker, word[1].at, word[0]))
    given = outputs(
        event_time_step(Inputs([step_of("Recently")]), DAYS, FIRST_DAY_MS), as_input(stored(archived, size))
    )

    assert [NumberedWord(**one) for one in given] == sorted(
        (one for one in streamed if DAYS.contains(one.at)), key=lambda one: (one.speaker, one.at)
    )


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_ordered_events_are_reduced_in_delivery_order(size: int) -> None:
    """Events may have the same time, and arrive in any order."""
    sent = [Word(word.speaker, word.at // (DAY_MS // 8) * (DAY_MS // 8), word.word) for word in said_words()]
    operator = open_operator(Retold(), MemoryShardState())
    operator.feed(words, sent, stop_at_error=True)
    streamed = operator.advance({"words": FIRST_DAY_MS + 9 * DAY_MS}, {}).outputs
    archived = sorted(enumerate(sent), key=lambda word: (word[1].speaker, word[1].at, word[0]))
    given = outputs(event_time_step(Inputs([step_of("Retold")]), DAYS, FIRST_DAY_MS), as_input(stored(archived, size)))

    assert [(one["speaker"], one["at"], one["word"]) for one in given] == sorted(
        ((one.speaker, one.at, one.word) for one in streamed if DAYS.contains(one.at)), key=itemgetter(0)
    )


@pytest.mark.parametrize(("size", "drained"), [(1, 1), (7, 50), (1000, 100_000)])
@pytest.mark.parametrize("processor", ["Silence", "Talks", "RetoldSoon", "RecentlySoon"])
def test_a_bucket_in_order_of_arrival_has_its_shards_outputs(
    monkeypatch: pytest.MonkeyPatch, processor: str, size: int, drained: int
) -> None:
    """Its input is rows or blocks. Late events are late again, and checkpoints do not change the result."""
    monkeypatch.setattr(arrival_order, "DRAINED_EVENTS", drained)
    sent = nearly_in_order()
    shard = open_operator(globals()[processor](), MemoryShardState())
    fed = shard.feed(words, sent, stop_at_error=True)
    batches, blocks = (
        stored(list(enumerate(sent)), size),
        EventBlocks.of(archive_schema_of(words), Split(PartOf.BUCKET, 1), 50),
    )
    inputs, inputs_in_blocks = Inputs([step_of(processor)]), Inputs([step_of(processor)])
    read = partial(inputs_in_blocks.events_in, blocks)
    given = outputs(arrival_order_step(inputs, inputs.events, DAYS), as_input(batches))

    assert fed.late
    assert given
    assert given == outputs(arrival_order_step(inputs_in_blocks, read, DAYS), shuffled(blocks, batches[::-1]))
    assert given == [msgspec.structs.asdict(one) for one in fed.outputs if DAYS.contains(one.at)]


@pytest.mark.parametrize("kind", ["mapper", "reducer", "event time", "arrival order"])
def test_a_backfill_stops_at_a_tombstone(kind: str) -> None:
    """Each step stops: its output contains only records, so the deletion would be lost."""
    step = step_of("Forget" if kind == "mapper" else "ForgetStateful")
    by_speaker = sorted(enumerate(said_words()), key=lambda sent: (sent[1].speaker, sent[0]))
    stored_words = stored(by_speaker, 64)
    blocks = EventBlocks.of(archive_schema_of(words), Split(PartOf.KEY, 1), 50)
    inputs = Inputs([step])
    transform, batches = {
        "mapper": (mapper_step(step), stored_words),
        "reducer": (reducer_step(step, blocks, DAYS), shuffled(blocks, stored_words)),
        "event time": (event_time_step(inputs, DAYS, FIRST_DAY_MS), as_input(stored_words)),
        "arrival order": (arrival_order_step(inputs, inputs.events, DAYS), as_input(stored_words)),
    }[kind]

    with pytest.raises(
        WorkerFailure, match=r"returned a tombstone of the key .*None of Forget.*'s output was published"
    ):
        outputs(transform, batches)


def test_events_far_ahead_of_their_arrival_are_rejected() -> None:
    """A worker rejects them, too."""
    step = step_of("Echo")
    [batch] = stored(list(enumerate(said_words()[:10])), 64)
    arrived = pa.array([0] * 3 + batch.column("_arrived").to_pylist()[3:], pa.int64())
    late = batch.set_column(batch.schema.get_field_index("_arrived"), batch.schema.field("_arrived"), arrived)
    kept = [row for kept in step.accepted(iter([late])) for row in kept.column("_offset").to_pylist()]

    assert kept == list(range(3, 10))
    assert step.counters.rejected.value == 3


def test_a_mapper_rejects_a_failing_event() -> None:
    """The outputs of the event before the error are dropped, too, as in the stream."""
    step = step_of("Echo")
    given = outputs(mapper_step(step), stored(list(enumerate(said_words())), 64))

    assert len(given) == 2 * 199
    assert (step.counters.events_in.value, step.counters.rejected.value) == (200, 1)


def test_a_mapper_looks_up_as_a_worker_does() -> None:
    """It retries a failed lookup, and counts events without a row as rejected."""
    step = step_of("Define")
    step.opened.processor.source.failures = 3  # type: ignore[attr-defined]  # the source in this file, imported as an app
    given = outputs(mapper_step(step), stored(list(enumerate(said_words())), 64))

    assert [one["word"] for one in given] == [f"w{number}!" for number in range(0, 200, 10)]
    assert (step.counters.events_in.value, step.counters.rejected.value) == (200, 180)


def test_a_mapper_stops_without_a_row_or_an_answer() -> None:
    """The error names the event, or the first event of a failed request."""
    step = step_of("DefineOrStop")
    stops = list(enumerate(said_words()))[10:]
    with pytest.raises(
        Exception, match=r"words/0 at offset 11: there is no row for key 'w11'.*on_miss = OnMiss.DEAD_LETTER"
    ):
        outputs(mapper_step(step), stored(stops, 64))
    step.opened.processor.source.failures = 1  # type: ignore[attr-defined]
    with pytest.raises(Exception, match=r"words/0 at offset 10: The dictionary is away.*The backfill stopped there"):
        outputs(mapper_step(step), stored(stops, 64))
