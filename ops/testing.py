"""The test driver: processors run as they do on Kafka, on a bus in memory and in steered time.

driver = Driver(Scorer)
driver.send(flights, [first, Crash(before=Step.SAVE_POSITION), second])
assert driver.read(scored) == [...]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

from ..processors.declare.apps import App, processors_in
from ..processors.declare.categories import Category
from ..processors.declare.dead_letters import DeadLetter, dead_letters_of
from ..processors.declare.processor import Processor
from ..processors.declare.records import Record
from ..processors.errors import DeclarationError, PenstockError
from ..processors.lookups import LookupEnvironment, LookupJoin, LookupSource
from ..processors.operators import merge_of
from ..processors.shard.checkpoints import Gap, Step, steps_of
from ..processors.time.idleness import IdleTimeout
from ..state.protocols import MemoryStateFolder
from ..transport.category_spec import CategorySpec
from ..transport.codecs.by_category import Codecs
from ..transport.internal_topics import create_missing_categories
from ..transport.memory import MemoryBus
from ..transport.messages import Bucket, Outgoing
from ..transport.tables.registrations import PROCESSORS
from ..transport.tables.upstream_watermarks import WATERMARKS
from .clock import SteeredClock
from .worker.changelog_replay import changelog_of
from .worker.metrics import Metrics
from .worker.preflight import ends_of
from .worker.worker import Worker, WorkerConfig

R = TypeVar("R", bound=Record)

YEAR_2100_MS = 4_102_444_800_000
TELLING_S = 5.0
"""By when a processor that is idle has told so, and is believed: it says so twice."""


@dataclass(frozen=True)
class Crash:
    """An item of the input: the processes die in the checkpoint that follows the items before it, and start again.

    Args:
        before: the step of the checkpoint that is not reached; None to die after the last one.
    """

    before: Step | None = None


class Inline(Executor):
    """Does what it is given at once, in the caller's thread, so that a test is the same each time."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Do it, and return what came of it."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except PenstockError as error:
            future.set_exception(error)
        return future


class Killed(PenstockError):
    """The process died, as the test asked; raised where it happens and caught by the driver."""


class Driver:
    """Runs one processor, or the processors of an app module, to the end of their input, again and again.

    Args:
        subject: a processor class, several, or a module that declares them.
        start_ms: what the clock shows at first, in milliseconds since 1970, UTC; by default so late that no event is ahead of it.
        sources: by processor, where it looks rows up instead of where it declares; `MemoryTable({...})` needs no service.

    Raises:
        DeclarationError: what `penstock run` would refuse.
    """

    def __init__(
        self,
        subject: type[Processor] | Iterable[type[Processor]] | ModuleType,
        *,
        start_ms: int = YEAR_2100_MS,
        sources: Mapping[type[LookupJoin], LookupSource] | None = None,
    ) -> None:
        self.clock = SteeredClock(start_ms)
        self.bus = MemoryBus(self.clock.now_ms)
        self.app = _app_of(subject)
        self._codecs = Codecs(self.bus)
        self._processors = {processor: processor() for processor in self.app.processors}
        self._states = {kind: MemoryStateFolder(merge_of(processor)) for kind, processor in self._processors.items()}
        self._workers: dict[type[Processor], Worker] = {}
        self._armed: Gap | None = None
        for category in [*self.app.categories(), *map(dead_letters_of, self.app.processors)]:
            self.bus.create(CategorySpec.of(category))
        create_missing_categories(self.bus, WATERMARKS, PROCESSORS)
        for changelog in filter(None, map(changelog_of, self.app.processors)):
            self.bus.create(changelog)
        for processor in self._processors.values():
            if isinstance(processor, LookupJoin):
                source = (sources or {}).get(type(processor))
                processor.use_environment(LookupEnvironment(source, self.clock.monotonic_s, self.clock.advance))
            processor.open()

    def send(self, category: Category[R], items: Iterable[R | bytes | Crash]) -> None:
        """Write records, or raw bytes, to a category and run everything to its end.

        A crash among them happens in every processor, at the first checkpoint after the items before it.
        """
        waiting: list[R | bytes] = []
        for item in items:
            if isinstance(item, Crash):
                self._expect_step(item)
                self._write(category, waiting)
                waiting = []
                self._armed = Gap(item.before)
                self.run()
                self._armed = None
            else:
                waiting.append(item)
        self._write(category, waiting)
        self.run()

    def _expect_step(self, crash: Crash) -> None:
        steps = {step: None for processor in self.app.processors for step in steps_of(processor)}
        if crash.before is not None and crash.before not in steps:
            raise DeclarationError(
                f"{crash} would never happen: no checkpoint here has that step. With the semantics that are declared there are: "
                f"{', '.join(f'Step.{step.name}' for step in steps)}."
            )

    def advance(self, seconds: float) -> None:
        """Let time pass while the workers run, and run everything to its end.

        That they run meanwhile makes a difference: a bucket is idle when it has been silent for long while they looked. To have them
        stand still, as when a machine sleeps, call `clock.advance` and then `run`.
        """
        for step_s in steps_of_time(seconds, self._idle_after_s, len(self._processors)):
            self.clock.advance(step_s)
            self.run()

    @property
    def _idle_after_s(self) -> list[float]:
        return [one.idle_after.total_seconds() for one in self._processors.values() if one.idle_after is not None]

    def run(self) -> None:
        """Run every processor, upstream ones first, until it has read its input and saved a checkpoint."""
        for processor in self.app.processors:
            self._run_to_end(processor)

    def read(self, category: Category[R]) -> list[R]:
        """Return all records that are in a category, bucket by bucket, in order."""
        ends = self.bus.describe(category.name).ends
        values = [
            m.value() for number, end in ends.items() for m in self.bus.slice(Bucket(category.name, number), 0, end)
        ]
        return self._codecs.of(category).decode(values).events

    def metrics(self, processor: type[Processor]) -> Metrics:
        """Return what a processor's worker has counted since it last died."""
        return self._worker(processor, _once(None)).metrics

    def dead_letters(self, processor: type[Processor]) -> list[DeadLetter]:
        """Return a processor's dead letters, in order."""
        return self.read(dead_letters_of(processor))

    def _write(self, category: Category[R], items: Iterable[R | bytes]) -> None:
        writer = self.bus.writer()
        for item in items:
            if isinstance(item, bytes):
                writer.send(category.name, [Outgoing(self._key_of(category, item), item)])
            else:
                [key], [value] = category.keys_of([item]), self._codecs.of(category).encode([item])
                writer.send(category.name, [Outgoing(key.encode(), value)])

    def _key_of(self, category: Category[Any], value: bytes) -> bytes | None:
        """Return the key of raw bytes, as their writer would give it; None where they do not decode."""
        for key in category.keys_of(self._codecs.of(category).decode([value]).events):
            return key.encode()
        return None

    def _run_to_end(self, processor: type[Processor]) -> None:
        targets = ends_of(processor.inputs(), self.bus)
        armed = self._armed
        while True:
            worker = self._worker(processor, _once(armed))
            try:
                worker.run_once()  # also without input: time may have passed
                while not worker.has_reached(targets):
                    worker.run_once()
                worker.save()
            except Killed:
                self._bury(processor)
                armed = None
            except PenstockError:
                self._bury(processor)
                raise
            else:
                return

    def _bury(self, processor: type[Processor]) -> None:
        self.bus.kill_members(processor.name)
        del self._workers[processor]

    def _worker(self, processor: type[Processor], at_gap: Callable[[Gap], None]) -> Worker:
        if processor not in self._workers:
            place = WorkerConfig(self.bus, self._states[processor], "driver")
            self._workers[processor] = Worker(self._processors[processor], place, Inline(), Inline(), clock=self.clock)
        worker = self._workers[processor]
        worker.at_gap = at_gap
        return worker


def steps_of_time(seconds: float, idle_after_s: Sequence[float], processors: int) -> Iterator[float]:
    """Cut time that passes into steps, as short as what depends on silence asks for, and no more of them than that takes.

    Of a long time all but the last is one step, after which silence begins anew and becomes as long as it can matter.

    Args:
        seconds: how much time passes.
        idle_after_s: after how much silence the processors' buckets are idle.
        processors: how many there are: each tells the next.
    """
    if idle_after_s:
        longest = IdleTimeout(max(idle_after_s))
        shortest = IdleTimeout(min(idle_after_s))
        fine_s = (2 + processors) * TELLING_S
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


def _once(armed: Gap | None) -> Callable[[Gap], None]:
    def at_gap(gap: Gap) -> None:
        if gap == armed:
            raise Killed(f"died {gap}")

    return at_gap


def _app_of(subject: Any) -> App:
    if isinstance(subject, ModuleType):
        return App.of(subject.__name__, processors_in(subject))
    if isinstance(subject, type):
        return App.of(subject.__name__, [subject])
    return App.of("app", subject)
