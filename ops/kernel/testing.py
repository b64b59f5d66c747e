"""The test driver: it runs processors as workers do, with a bus in memory and a clock that the test controls.

driver = Driver(Scorer)
driver.send(flights, [first, Crash(before=Step.SAVE_POSITION), second])
assert driver.read(scored) == [...]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from datetime import timedelta
from math import ceil
from types import ModuleType
from typing import Any, TypeVar

import msgspec

from ...processors import DeclarationError, PenstockError, fits, start, with_article
from ...processors.apps import App, Loop, processors_in
from ...processors.declare import (
    AnyCategory,
    AnyRecord,
    Category,
    DeadLetter,
    Processor,
    Sink,
    SinkWriter,
    Tombstone,
    dead_letters_of,
    plan_of,
    split_messages,
)
from ...processors.lookups import LookupEnvironment, LookupJoin, LookupSource
from ...processors.models import decode_model, encode_model
from ...processors.operators import merge_of
from ...processors.shard import Gap, Step, steps_of
from ...processors.time import IdleTimeout
from ...state import MemoryStateFolder
from ...state.remote import StoreRetry
from ...state.sinks import MemoryRows, OwnedRows
from ...transport import (
    Bucket,
    CategorySpec,
    MessageCopy,
    Outgoing,
    connect_lookup,
    create_missing_categories,
    outgoing,
)
from ...transport.codecs import Codecs, decode_outputs, encoded_messages
from ...transport.memory import MemoryBus
from ...transport.tables import PROCESSORS, WATERMARKS
from ..shell import SteeredClock
from .loop import Worker, WorkerConfig
from .shards import Targets, changelog_of, ends_of
from .telemetry import Metrics

R = TypeVar("R", bound=AnyRecord)

_encode = msgspec.json.Encoder(enc_hook=encode_model).encode

YEAR_2100_MS = 4_102_444_800_000
MOST_TURNS = 10_000
"""The number of turns after which a loop is taken for endless."""
IDLE_REPORT_S = 5.0
"""The time within which an idle processor has reported that it is idle. It reports twice."""


@dataclass(frozen=True)
class Crash:
    """An input item: all workers crash in the checkpoint after the previous items, and restart.

    Args:
        before: the first step of the checkpoint that does not run; None to crash after the last step.
    """

    before: Step | None = None


class InlineExecutor(Executor):
    """Runs each call immediately in the caller's thread, so that tests are deterministic."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a call, and return a completed future."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except PenstockError as error:
            future.set_exception(error)
        return future


class Killed(PenstockError):
    """The simulated crash of a process. Raised at the crash, and caught by the driver."""


class EndlessLoop(PenstockError):
    """The processors of a loop return outputs for ever: fix the program."""


class Driver:
    """Runs one processor, or all processors of an app module, until they have processed their inputs.

    Args:
        subject: a processor class, several, or a module that declares them.
        start_ms: the start of the clock, in milliseconds since 1970, UTC. By default, it is later than all events.
        sources: lookup sources that replace the declared ones, by processor; `MemoryTable({...})` needs no service.
        sinks: sinks that are opened and written, such as one of your own. The driver keeps the rows of the others in memory.

    Raises:
        DeclarationError: a declaration is invalid, as in `penstock run`.
    """

    def __init__(
        self,
        subject: type[Processor] | Iterable[type[Processor]] | ModuleType,
        *,
        start_ms: int = YEAR_2100_MS,
        sources: Mapping[type[LookupJoin], LookupSource] | None = None,
        sinks: Iterable[Sink] = (),
    ) -> None:
        self.clock = SteeredClock(start_ms)
        self.bus = MemoryBus(self.clock.now_ms)
        self.app = _app_of(subject)
        self._codecs = Codecs(self.bus)
        self._processors = {processor: processor() for processor in self.app.processors}
        self._states = {kind: MemoryStateFolder(merge_of(processor)) for kind, processor in self._processors.items()}
        self._workers: dict[type[Processor], Worker] = {}
        self._rows = {sink.name: MemoryRows() for processor in self.app.processors for sink in plan_of(processor).sinks}
        self._opened = {sink.name for sink in sinks}
        self._crash_at: Gap | None = None
        self._create_categories()
        for processor in self._processors.values():
            if isinstance(processor, LookupJoin):
                processor.use_environment(LookupEnvironment(None, self.clock.monotonic_s, self.clock.advance))
                connect_lookup(processor, self.bus)
                if type(processor) in (sources or {}):
                    processor.use_source((sources or {})[type(processor)])
            start(processor)

    def _create_categories(self) -> None:
        for category in [*self.app.categories(), *map(dead_letters_of, self.app.processors)]:
            self.bus.create(CategorySpec.of(category))
        for category in [waiting for each in self.app.processors for waiting in plan_of(each).retry_categories]:
            self.bus.create(CategorySpec.of(category))
        create_missing_categories(self.bus, WATERMARKS, PROCESSORS)
        for changelog in filter(None, map(changelog_of, self.app.processors)):
            self.bus.create(changelog)

    def send(self, category: Category[R], items: Iterable[R | Tombstone | bytes | Crash]) -> None:
        """Write records, tombstones or raw bytes to a category, and run all processors until they have processed their inputs.

        A crash item crashes every processor, at the first checkpoint after the previous items.

        Raises:
            DeclarationError: an argument is neither of these, or a crash names a step that no checkpoint has.
        """
        _expect_category("send", category, ", […]")
        items = _expect_items(category, items)
        batch: list[R | Tombstone | bytes] = []
        for item in items:
            if isinstance(item, Crash):
                self._expect_step(item)
                self._write(category, batch)
                batch = []
                self._crash_at = Gap(item.before)
                self.run()
                self._crash_at = None
            else:
                batch.append(item)
        self._write(category, batch)
        self.run()

    def _expect_step(self, crash: Crash) -> None:
        steps = {step: None for processor in self.app.processors for step in steps_of(processor)}
        if crash.before is not None and crash.before not in steps:
            raise DeclarationError(
                f"No checkpoint has the step of {crash}, so it would never happen. With the declared semantics, choose from "
                f"{', '.join(f'Step.{step.name}' for step in steps)}."
            )

    def advance(self, seconds: float) -> None:
        """Advance the clock while the workers run.

        Workers detect an idle bucket only while they run. To advance the clock without them, as when a machine is suspended, call
        `clock.advance`, then `run`.

        Args:
            seconds: how long, in seconds.

        Raises:
            DeclarationError: it is no number.
        """
        _expect_seconds(seconds)
        steps = time_steps(seconds, self._idle_after_s, len(self._processors))
        if self._closes_after_silence:  # workers run all the time, since a silence has no gaps
            gap_s = IdleTimeout(min(self._idle_after_s)).gap_s / 2
            steps = (min(gap_s, seconds - at * gap_s) for at in range(ceil(seconds / gap_s)))
        for step_s in steps:
            self.clock.advance(step_s)
            self.run()

    @property
    def _idle_after_s(self) -> list[float]:
        return [each.idle_after.total_seconds() for each in self._processors.values() if each.idle_after is not None]

    @property
    def _closes_after_silence(self) -> bool:
        return any(each.close_after_silence is not None for each in self._processors.values())

    def run(self) -> None:
        """Run every processor, upstream ones first, until it has processed its inputs and saved a checkpoint; loops until nothing circulates.

        Raises:
            EndlessLoop: a loop does not end.
        """
        for _ in range(MOST_TURNS):
            for processor in self.app.processors:
                self._run_to_end(processor)
            self._crash_at = None  # each worker has crashed once
            if not any(self._circulates(loop) for loop in self.app.loops):
                return
        raise EndlessLoop(
            f"Events still circulate in {', '.join(map(str, self.app.loops))} after {MOST_TURNS:,} turns. Let a processor of the loop return no output for an "
            "event that changes nothing."
        )

    def _circulates(self, loop: Loop) -> bool:
        return any(
            not self._worker(member, _crash_once(None)).has_reached(self._ends(loop.inputs_of(member)))
            for member in loop.members
        )

    def rows(self, sink: Sink) -> list[Any]:
        """Return all rows and tombstones that were written to a sink, in order; none of a sink that the driver opens."""
        return list(self._rows[sink.name].rows)

    def _open_sink(self, sink: Sink) -> SinkWriter:
        if sink.name in self._opened:
            return sink.open()
        return OwnedRows(self._rows[sink.name], sink.name, StoreRetry())

    def read(self, category: Category[R]) -> list[R]:
        """Return all records and tombstones in a category, ordered by bucket and offset.

        The type for type checkers contains only the records, since few categories have tombstones.
        """
        _expect_category("read", category)
        ends = self.bus.describe(category.name).ends
        messages = [
            message for number, end in ends.items() for message in self.bus.slice(Bucket(category.name, number), 0, end)
        ]
        codec = self._codecs.of(category)
        return [output for _, output in decode_outputs(category, codec, split_messages(codec, messages))]

    def metrics(self, processor: type[Processor]) -> Metrics:
        """Return the metrics of a processor's worker since its last start; of an aggregator in two phases, those of the second."""
        _expect_processor("metrics", processor)
        return self._worker(self.app.processor(processor.name), _crash_once(None)).metrics

    def dead_letters(self, processor: type[Processor]) -> list[DeadLetter]:
        """Return a processor's dead letters, in order."""
        _expect_processor("dead_letters", processor)
        return self.read(dead_letters_of(processor))

    def _write(self, category: Category[R], items: Iterable[R | Tombstone | bytes]) -> None:
        writer = self.bus.writer()
        for item in items:
            if isinstance(item, bytes):
                keys = self._message_keys_of(category, item)
                messages = outgoing(category, keys, [item]) if keys else [Outgoing(None, item)]
                writer.send(category.name, messages)
            else:
                writer.send(category.name, encoded_messages(category, self._codecs.of(category), [item]))

    def _message_keys_of(self, category: Category[Any], value: bytes) -> list[bytes]:
        """Return the message key of an encoded record, or of the first of several; none if the bytes do not decode."""
        codec = self._codecs.of(category)
        [first, *_] = split_messages(codec, [MessageCopy(value)])
        return category.encode_keys(category.keys_of(codec.decode([first]).events))

    def _run_to_end(self, processor: type[Processor]) -> None:
        targets = ends_of(plan_of(processor).sources, self.bus)
        crash_at = self._crash_at
        while True:
            worker = self._worker(processor, _crash_once(crash_at))
            try:
                worker.run_once()  # also without input, because time may have passed
                while not (worker.has_reached(targets) and worker.awaits_retries(self._retry_ends(processor))):
                    worker.run_once()
                worker.save()
            except Killed:
                self._discard_worker(processor)
                crash_at = None
            except PenstockError:
                self._discard_worker(processor)
                raise
            else:
                return

    def _retry_ends(self, processor: type[Processor]) -> Targets:
        return self._ends([category.name for category in plan_of(processor).retry_categories])

    def _ends(self, names: Iterable[str]) -> Targets:
        return {
            Bucket(name, number): end for name in names for number, end in self.bus.catalog.stable_ends(name).items()
        }

    def _discard_worker(self, processor: type[Processor]) -> None:
        self.bus.kill_members(processor.name)
        del self._workers[processor]

    def _worker(self, processor: type[Processor], at_gap: Callable[[Gap], None]) -> Worker:
        if processor not in self._workers:
            config = WorkerConfig(
                self.bus,
                self._states[processor],
                "driver",
                open_sink=self._open_sink,
                loop=self.app.loop_of(processor),
            )
            self._workers[processor] = Worker(
                self._processors[processor], config, InlineExecutor(), InlineExecutor(), clock=self.clock
            )
        worker = self._workers[processor]
        worker.at_gap = at_gap
        return worker


def time_steps(seconds: float, idle_after_s: Sequence[float], processors: int) -> Iterator[float]:
    """Yield the steps in which time advances: short enough for the detection of idle buckets, and as few as possible.

    Of a long time, the first part is one step. The steps after it are long enough for every idle timeout.

    Args:
        seconds: the time to advance.
        idle_after_s: the idle timeouts of the processors.
        processors: the number of processors; each reports to the next.
    """
    if idle_after_s:
        longest = IdleTimeout(max(idle_after_s))
        shortest = IdleTimeout(min(idle_after_s))
        fine_s = (2 + processors) * IDLE_REPORT_S
        coarse_s = max(longest.idle_after_s - fine_s, 0.0) + longest.gap_s
        if seconds > fine_s + coarse_s:
            yield seconds - fine_s - coarse_s
            seconds = fine_s + coarse_s
        while seconds > fine_s:
            step_s = min(shortest.gap_s / 2, seconds - fine_s)
            yield step_s
            seconds -= step_s
        while seconds > shortest.ask_every_s:
            yield shortest.ask_every_s
            seconds -= shortest.ask_every_s
    if seconds > 0 or not idle_after_s:
        yield seconds


def _crash_once(crash_at: Gap | None) -> Callable[[Gap], None]:
    def at_gap(gap: Gap) -> None:
        if gap == crash_at:
            raise Killed(f"crashed {gap}")

    return at_gap


def _app_of(subject: Any) -> App:
    if isinstance(subject, ModuleType):
        return App.of(subject.__name__, processors_in(subject))
    subjects: list[Any] = (
        [subject] if isinstance(subject, (type, Processor, str)) or not isinstance(subject, Iterable) else [*subject]
    )
    for one in subjects:
        _expect_processor("Driver", one)
    return App.of(subject.__name__ if isinstance(subject, type) else "app", subjects)


def _expect_processor(method: str, candidate: object) -> None:
    """Raise DeclarationError for anything but the class of a processor."""
    if isinstance(candidate, type) and issubclass(candidate, Processor):
        return
    name = type(candidate).__name__ if isinstance(candidate, Processor) else "MyProcessor"
    found = f"an object of {name}" if isinstance(candidate, Processor) else repr(candidate)
    raise DeclarationError(
        f"`{method}` got {found:.200}, which is not the class of a processor. Call `{'' if method == 'Driver' else 'driver.'}{method}({name})`."
    )


def _expect_seconds(candidate: object) -> None:
    """Raise DeclarationError for anything but a number."""
    if not fits(candidate, float):
        given = candidate.total_seconds() if isinstance(candidate, timedelta) else 60
        raise DeclarationError(
            f"`advance` got {candidate!r}, which is no number of seconds. The clock was not moved. Call `driver.advance({given:g})`."
        )


def _expect_category(method: str, candidate: object, further: str = "") -> None:
    """Raise DeclarationError for anything but a category."""
    if not isinstance(candidate, Category):
        raise DeclarationError(
            f"`{method}` got {candidate!r:.200}, which is no category. Pass the object that the app declares: `driver.{method}(my_category{further})`, with "
            "`my_category = penstock.Category(…)`."
        )


def _expect_items(category: AnyCategory, items: Any) -> list[Any]:
    """Return the items to send to a category; raise DeclarationError if one of them is neither a record of it, a tombstone, bytes nor a crash."""
    sendable = (*category.record_types, Tombstone, bytes, Crash)
    if isinstance(items, (*sendable, str, Mapping)) or not isinstance(items, Iterable):
        raise DeclarationError(
            f"`send` got {with_article(type(items).__name__)} for {category.name} in place of a list. Nothing was sent. Call `driver.send({category.name}, [record])`."
        )
    listed = list(items)
    for item in listed:
        if not isinstance(item, sendable):
            raise DeclarationError(
                f"`send` got {with_article(type(item).__name__)} for {category.name}, {item!r:.200}. Nothing was sent. Send {category.record_name} records, "
                "penstock.Tombstone, penstock.testing.Crash, or the bytes of a message."
            )
    return listed


def json_of(record: Any) -> str:
    """Return a record with all its fields as JSON."""
    return _encode(record).decode()


def record_of(category: Category[R], line: str) -> R:
    """Return the record of a category that `json_of` returned as JSON.

    Raises:
        msgspec.DecodeError: the JSON does not fit the category's type.
    """
    decoder: msgspec.json.Decoder[R] = msgspec.json.Decoder(category.record, dec_hook=decode_model)
    return decoder.decode(line)
