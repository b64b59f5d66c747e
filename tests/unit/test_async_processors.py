"""Processors whose methods are `async def`. This file is the app of the replays and the backfill."""

from __future__ import annotations

import asyncio
import gc
import io
import signal
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.replays import ReplayRequest
from support.step_counts import counters

import penstock as ps
from penstock.backfill.archive import archive_schema
from penstock.backfill.spark import ShippedApp
from penstock.backfill.steps import BatchStep, mapper_step
from penstock.backfill.warehouse import MARKS, RecordColumns
from penstock.ops.kernel import Crash, Driver, open_processor
from penstock.ops.kernel.loop.batch_sizer import BatchSizer
from penstock.ops.look_back.replay.debugger import Debugger
from penstock.ops.shell import SteeredClock
from penstock.processors import DeclarationError, ProcessorFailed, ending, user_traceback
from penstock.processors.apps import AppName
from penstock.processors.declare import plan_of
from penstock.processors.keyed_state import EmptyState
from penstock.processors.lifecycle import end
from penstock.processors.operators import open_operator
from penstock.processors.shard import EventRejected
from penstock.processors.shard import Step as CheckpointStep
from penstock.transport.memory import MemoryBus


class Request(ps.Record, frozen=True):
    """A request to a service that answers after a number of turns of the event loop; a request for None fails."""

    user: str
    at: ps.EventTime
    number: int
    turns: int = 0
    fails: bool = False


class Answer(ps.Record, frozen=True):
    """An answer."""

    user: str
    at: ps.EventTime
    number: int
    part: int


requests = ps.Category("requests", Request, key="user", event_time="at", buckets=2)
answers = ps.Category("answers", Answer, key="user", event_time="at", buckets=2)


class Service:
    """A service; it records its calls."""

    def __init__(self) -> None:
        self.running: set[int] = set()
        self.most = 0
        self.by_user: defaultdict[str, list[str]] = defaultdict(list)
        self.called: list[int] = []
        self.loops: set[Any] = set()

    async def ask(self, request: Request) -> int:
        """Answer after some turns."""
        self.loops.add(asyncio.get_running_loop())
        self.called.append(request.number)
        self.by_user[request.user].append(f"begin {request.number}")
        self.running.add(request.number)
        self.most = max(self.most, len(self.running))
        for _ in range(request.turns):
            await asyncio.sleep(0)
        self.running.remove(request.number)
        self.by_user[request.user].append(f"end {request.number}")
        if request.fails:
            raise ValueError(f"no answer to {request.number}")
        return request.number


def parts(request: Request) -> list[Answer]:
    """Return the outputs of a request: none, one or two."""
    return [Answer(request.user, request.at, request.number, part) for part in range(request.number % 3)]


class Sync(ps.Stateless):
    """The synchronous twin."""

    name = "asked_at_once"
    reads, writes = requests, answers
    on_error = ps.ErrorPolicy.DEAD_LETTER
    dead_letter_limit = None

    def process(self, event: Request) -> Iterable[Answer]:
        """Ask, and write the parts of the answer."""
        if event.fails:
            raise ValueError(f"no answer to {event.number}")
        return parts(event)


class Async(ps.Stateless):
    """Asks a service."""

    name = "asked"
    reads, writes = requests, answers
    on_error = ps.ErrorPolicy.DEAD_LETTER
    dead_letter_limit = None
    service: ClassVar[Service] = Service()

    async def process(self, event: Request) -> Iterable[Answer]:
        """Ask, and write the parts of the answer."""
        await self.service.ask(event)
        return parts(event)


class AsyncGenerator(Async):
    """The same with `yield`; it fails after its first output."""

    name = "asked_by_generator"

    async def process(self, event: Request) -> AsyncIterator[Answer]:  # type: ignore[override]  # the base is only for its attributes
        """Ask, and write the parts of the answer."""
        for part in parts(event):
            yield part
        await self.service.ask(event)


class Stopping(Async):
    """Stops at an exception, and processes one event at a time."""

    on_error = ps.ErrorPolicy.STOP
    concurrency = 1


@pytest.fixture(autouse=True)
def service() -> Service:
    """A new service."""
    Async.service = Service()
    return Async.service


def sent(*users: str, turns: Sequence[int] = (), fails: Sequence[int] = ()) -> list[Request]:
    """Return numbered requests of users."""
    return [
        Request(user, 1_000 * number, number, turns[number] if turns else 0, number in fails)
        for number, user in enumerate(users)
    ]


def run(processor: type[ps.Processor], events: Sequence[Any]) -> Driver:
    """Process events with the worker."""
    driver = Driver(processor)
    driver.send(requests, events)
    return driver


REQUESTS = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.integers(0, 6), st.booleans().map(lambda fails: fails)), max_size=40
).map(lambda drawn: [Request(user, at, at, turns, fails) for at, (user, turns, fails) in enumerate(drawn)])


@given(
    events=REQUESTS,
    concurrency=st.integers(1, 8),
    kind=st.sampled_from([Async, AsyncGenerator]),
    crash=st.sampled_from([None, CheckpointStep.COMMIT_OFFSETS]),
)
@settings(max_examples=150, deadline=None)
def test_outputs_and_dead_letters_equal_those_of_the_synchronous_twin(
    events: list[Request], concurrency: int, kind: type[Async], crash: CheckpointStep | None
) -> None:
    """Latencies and a crash change neither outputs nor order. Calls of a key do not overlap, and the bound is kept."""
    kind.service = service = Service()
    processor = type(kind.__name__, (kind,), {"name": "asked", "concurrency": concurrency})
    half = len(events) // 2
    items = events if crash is None else [*events[:half], Crash(before=crash), *events[half:]]
    twin, driver = run(Sync, items), run(processor, items)

    assert driver.read(answers) == twin.read(answers)
    letters = [(letter.offset, letter.bucket, letter.value) for letter in driver.dead_letters(processor)]
    assert letters == [(letter.offset, letter.bucket, letter.value) for letter in twin.dead_letters(Sync)]
    assert service.most <= concurrency
    for calls in service.by_user.values():
        assert all(end == begin.replace("begin", "end") for begin, end in zip(calls[::2], calls[1::2], strict=True))


def fed(processor: ps.Stateless, events: Sequence[Request]) -> Any:
    """Process one batch with the operator."""
    return open_operator(processor, EmptyState()).feed(requests, events, stop_at_error=True)


@pytest.mark.parametrize(("concurrency", "users", "most"), [(3, "abcdef", 3), (100, "abcdef", 6), (100, "aabbaa", 2)])
def test_events_of_different_keys_run_concurrently_up_to_the_bound(
    service: Service, concurrency: int, users: str, most: int
) -> None:
    """The number of concurrent calls is the highest possible one."""
    processor = type("Bounded", (Async,), {"concurrency": concurrency})()
    result = fed(processor, sent(*users, turns=[5] * 6))

    assert service.most == most
    assert [output.number for output in result.outputs] == [1, 2, 2, 4, 5, 5]
    assert not service.running


def test_an_exception_rejects_only_its_event() -> None:
    """The dead letter begins with the user's code."""
    driver = run(Async, sent("a", "b", "a", "b", turns=[3, 2, 1, 0], fails=[1]))

    assert sorted({answer.number for answer in driver.read(answers)}) == [2]
    [letter] = driver.dead_letters(Async)
    assert "ValueError: no answer to 1" in letter.reason
    first, code, *_ = letter.traceback.splitlines()
    assert f'"{__file__}"' in first
    assert "in process" in first
    assert "await self.service.ask(event)" in code


def test_a_processor_that_stops_begins_no_later_event(service: Service) -> None:
    """The outputs before the event are written, and the error names its offset."""
    events = [Request("a", at, at, fails=at == 4) for at in range(8)]
    driver = Driver(Stopping)
    with pytest.raises(EventRejected, match=r"at offset 4: Stopping raised ValueError: no answer to 4") as raised:
        driver.send(requests, events)

    assert {answer.number for answer in driver.read(answers)} == {1, 2}
    assert service.called == [0, 1, 2, 3, 4]
    assert raised.value.__cause__ is not None
    assert "in process" in user_traceback(raised.value.__cause__).splitlines()[0]


def test_concurrent_events_before_a_stop_complete() -> None:
    """The first failing event of the batch stops the processor, although a later one fails earlier."""
    processor = type("Concurrent", (Async,), {"on_error": ps.ErrorPolicy.STOP})()
    result = fed(processor, sent(*"abcdef", turns=[9, 9, 9, 9, 9, 0], fails=[3, 5]))

    assert [rejected.at for rejected in result.rejected] == [3]
    assert [output.number for output in result.outputs] == [1, 2, 2]


class Client:
    """A client that works on one event loop only."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()

    async def ask(self) -> None:
        """Ask on the client's loop."""
        assert asyncio.get_running_loop() is self.loop
        assert threading.get_ident() == self.thread
        await asyncio.sleep(0)

    async def close(self) -> None:
        """Close the client on its loop."""
        await self.ask()


class WithClient(ps.Stateless):
    """Keeps a client."""

    reads, writes = requests, answers

    async def open(self) -> None:
        """Create the client, and a task that never ends."""
        self.client = Client()
        self.task = asyncio.create_task(asyncio.Event().wait())

    async def process(self, event: Request) -> list[Answer]:
        """Use it."""
        await self.client.ask()
        return parts(event)

    async def close(self) -> None:
        """Close the client."""
        await self.client.close()


def test_all_methods_and_shards_use_one_loop_which_is_closed_at_the_end() -> None:
    """A processor can therefore keep a client."""
    processor = open_processor(WithClient, MemoryBus())
    assert isinstance(processor, WithClient)
    with ending(processor):
        for _ in range(2):
            assert fed(processor, sent("a", "b", "c")).outputs
        assert not processor.client.loop.is_closed()

    assert processor.client.loop.is_closed()
    assert processor.task.cancelled()


def test_a_loop_is_closed_with_a_processor_that_is_not_ended() -> None:
    """Test drivers and Spark's workers end no processor."""
    driver = run(WithClient, sent("a", "b"))
    [processor] = driver._processors.values()
    loop = processor.client.loop  # type: ignore[attr-defined]  # the processor of this file
    assert not loop.is_closed()
    del processor, driver
    gc.collect()

    assert loop.is_closed()


def test_a_loop_is_closed_although_close_raises() -> None:
    """The exception is not hidden."""

    class Failing(WithClient):
        async def close(self) -> None:
            raise ValueError("still busy")

    processor = open_processor(Failing, MemoryBus())
    assert isinstance(processor, Failing)
    with pytest.raises(ValueError, match="still busy"):
        end(processor)

    assert processor.client.loop.is_closed()


def test_an_exception_in_an_asynchronous_open_is_explained() -> None:
    """A failing synchronous `open` has the same explanation."""

    class Failing(WithClient):
        async def open(self) -> None:
            raise ConnectionError("refused")

    with pytest.raises(ProcessorFailed, match="Failing could not be opened: ConnectionError: refused"):
        open_processor(Failing, MemoryBus())


class Interrupted(Async):
    """Is interrupted by Ctrl-C in its third call."""

    ended: ClassVar[list[int]] = []

    async def process(self, event: Request) -> list[Answer]:
        """Wait until the call is cancelled."""
        if event.number == 2:
            signal.raise_signal(signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.append(event.number)
        return []


def test_an_interrupt_cancels_the_calls_and_names_the_awaited_line(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The calls can release their resources, and the loop can be closed."""
    monkeypatch.setattr(Interrupted, "ended", [])
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background may ignore it
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    processor = Interrupted()
    with ending(processor), pytest.raises(KeyboardInterrupt) as raised:
        fed(processor, sent("a", "b", "c", "d"))

    assert Interrupted.ended[:2] == [0, 1]
    assert "Interrupted awaited process (test_async_processors.py, line" in str(raised.value)
    assert "await asyncio.Event().wait()" in str(raised.value)


@pytest.mark.parametrize("generator", [False, True])
def test_a_call_that_user_code_cancels_rejects_its_event(generator: bool) -> None:
    """It does not end the worker."""

    class Cancelling(Async):
        async def process(self, event: Request) -> list[Answer]:
            if event.number == 1:
                task = asyncio.create_task(asyncio.sleep(1_000))
                task.cancel()
                await task
            return parts(event)

    class CancellingGenerator(Async):
        async def process(self, event: Request) -> AsyncIterator[Answer]:  # type: ignore[override]  # see above
            for part in await Cancelling.process(self, event):  # type: ignore[arg-type]  # uses no attribute
                yield part

    result = fed((CancellingGenerator if generator else Cancelling)(), sent("a", "b", "a"))

    assert [(rejected.at, str(rejected.error)) for rejected in result.rejected] == [(1, "the call was cancelled")]
    assert [output.number for output in result.outputs] == [2, 2]


def test_sys_exit_rejects_its_event() -> None:
    """A synchronous processor does the same."""

    class Exiting(Async):
        async def process(self, event: Request) -> list[Answer]:
            await asyncio.sleep(0)
            raise SystemExit(3)

    assert [type(rejected.error) for rejected in fed(Exiting(), sent("a", "b")).rejected] == [SystemExit, SystemExit]


def test_a_driver_in_a_running_loop_is_explained() -> None:
    """Notebooks run one; a thread does not."""

    async def notebook() -> Driver:
        with pytest.raises(ProcessorFailed, match=r"Async has methods that are `async def`.*`await asyncio.to_thread"):
            run(Async, sent("a", "b"))
        return await asyncio.to_thread(run, Async, sent("a", "b"))

    assert asyncio.run(notebook()).read(answers)


def test_batches_do_not_become_smaller_than_the_concurrency() -> None:
    """A call of a second leaves no time for two; smaller batches would only be slower."""
    sizer = BatchSizer(10_000, plan_of(Async).min_batch)
    clock = SteeredClock()
    for _ in range(20):
        began_s = clock.monotonic_s()
        clock.advance(1.0 * -(-sizer.at_most // Async.concurrency))
        sizer.record(sizer.at_most, clock.monotonic_s() - began_s)

    assert sizer.at_most == Async.concurrency
    assert plan_of(Sync).min_batch == 1


def test_a_replay_has_the_same_outputs(service: Service) -> None:
    """The replay of one key has them, too. The debugger stops in an asynchronous method."""
    events = sent(*"abcabc", turns=[3, 1, 2, 0, 4, 1])
    driver = run(Async, events)
    service.called.clear()
    replayed = ReplayRequest(Async, driver.bus).run()
    assert sorted(record.number for record in replayed.records) == sorted(
        answer.number for answer in driver.read(answers)
    )
    one = ReplayRequest(Async, driver.bus, key="b").run()
    assert [record.number for record in one.records] == [1, 4]
    shown = io.StringIO()

    def prepare(running: ps.Processor) -> None:
        Debugger(
            running,
            ["b"],
            read=io.StringIO("p 'here', event.number\nn\nn\np 'there', event.number\nc\n" * 2),
            write=shown,
        )

    debugged = ReplayRequest(Async, driver.bus, prepare=prepare).run()

    assert debugged.lines == replayed.lines
    assert "('here', 1)" in shown.getvalue()
    assert "return parts(event)" in shown.getvalue()


def test_a_backfill_has_the_outputs_of_the_stream() -> None:
    """Spark's workers process batch by batch, and count rejected events."""
    events = sent(*"abcabcab", turns=[3, 1, 2, 0, 4, 1, 0, 5], fails=[4])
    driver = run(Async, events)
    step = BatchStep(ShippedApp(AppName(Path(__file__))), "asked_in_batch", "requests", counters())
    columns = RecordColumns(Request)

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, len(events), 3):
            part = events[start : start + 3]
            times = [event.at for event in part]
            keys, offsets = [event.user for event in part], range(start, start + len(part))
            marks: list[Sequence[Any]] = [[0] * len(part), list(offsets), keys, times, times]
            arrays = [pa.array(values, field.type) for values, field in zip(marks, MARKS, strict=True)]
            yield pa.RecordBatch.from_arrays([*columns.arrays(part), *arrays], schema=archive_schema(columns))

    rows = [row["_output_0"] for batch in mapper_step(step)(batches()) for row in batch.to_pylist()]
    assert sorted((row["number"], row["part"]) for row in rows) == sorted(
        (answer.number, answer.part) for answer in driver.read(answers)
    )
    assert [row["number"] for row in rows] == [1, 2, 2, 5, 5, 7]
    assert step.counters.rejected.value == 1


class AskedInBatch(Async):
    """The processor of the backfill. In batch, an event that fails does not wait: it is rejected and counted."""

    name = "asked_in_batch"
    on_error = ps.Retry()  # type: ignore[assignment]


@pytest.mark.parametrize("concurrency", [0, -1])
def test_an_impossible_bound_is_refused(concurrency: int) -> None:
    """The declaration is refused before the first event."""
    with pytest.raises(DeclarationError, match=rf"Few: `concurrency = {concurrency}` must be at least 1"):
        plan_of(cast("type[Async]", type("Few", (Async,), {"concurrency": concurrency}))).check()


def test_asynchronous_resources_of_other_kinds_are_refused() -> None:
    """Nothing would await them."""

    class Total(ps.Stateful):
        reads, state = requests, int

        async def open(self) -> None:
            """Do nothing."""

        def process(self, event: Request, state: int | None, context: ps.Context) -> tuple[int, list[Answer]]:
            return 1, []

    with pytest.raises(DeclarationError, match=r"Total.open is `async def`.* Write `def open\(self\):`"):
        plan_of(Total).check()
