"""The event loop of a processor whose methods are `async def`.

events of a batch --by key--> calls, up to a number at a time --> the outputs of each event, in the order of the events
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

from .errors import USER_CODE_ERRORS, ProcessorFailed, UserCodeError
from .user_code import is_user_file, record_awaited_line, user_line

CANCEL_LIMIT_S = 5.0
"""How long cancelled calls may take to end."""

T = TypeVar("T")
Outcome: TypeAlias = "list[Any] | UserCodeError | Any"
"""The outputs of an event, the exception that its processor raised, or a result that cannot be outputs."""


class CallCancelled(Exception):
    """User code cancelled its own call, or awaited a cancelled task."""


class EventLoop:
    """Runs the asynchronous methods of one processor. One thread at a time.

    It only runs during these calls: tasks that user code leaves behind pause between them.

    Args:
        owner: the name of the processor, for errors.
        own: returns what user code has yielded, as a value that it cannot change when it continues.
    """

    def __init__(self, owner: str, own: Callable[[Any], Any]) -> None:
        self._owner = owner
        self._own = own
        self._loop = asyncio.new_event_loop()
        self._calls: dict[int, Any] = {}
        """The unfinished calls of user code, in the order of their start."""
        self._is_cancelling = False

    def run(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call an asynchronous method, and return its result. An async generator returns a list."""
        return self._run_all(lambda: [self._completed(method(*arguments))])[0]

    def outcomes(
        self,
        process: Callable[[Any], Any],
        events: Sequence[Any],
        keys: Sequence[str],
        *,
        concurrency: int,
        stops: Callable[[UserCodeError], bool],
    ) -> list[Outcome]:
        """Process the events of a batch concurrently, and return after the last one. Events of one key run one after the other.

        Args:
            process: the asynchronous method.
            events: the events.
            keys: their keys.
            concurrency: the greatest number of concurrent calls.
            stops: whether an exception stops the processor. Later events are not started then, and have no outcome.

        Returns:
            The outcome of each event, up to the first one that stops the processor.
        """
        batch = _Batch(events, keys, stops)

        async def process_keys() -> None:
            for at in batch.remaining():
                batch.record(at, await self._outcome(process, events[at]))

        self._run_all(lambda: [process_keys() for _ in range(min(concurrency, batch.keys))])
        return batch.outcomes()

    async def _outcome(self, process: Callable[[Any], Any], event: Any) -> Outcome:
        try:
            produced = await self._completed(process(event))
            # The operator refuses any other result, like the results of synchronous methods.
            is_at_once = isinstance(produced, list | tuple) or not isinstance(produced, Iterable)
            return produced if is_at_once else list(map(self._own, produced))
        except USER_CODE_ERRORS as error:
            return error
        except asyncio.CancelledError as error:
            if self._is_cancelling:
                raise
            return CallCancelled("the call was cancelled").with_traceback(error.__traceback__)

    async def _completed(self, call: Any) -> Any:
        """Await a call of user code; read all values of an async generator."""
        self._calls[id(call)] = call
        try:
            return [self._own(value) async for value in call] if hasattr(call, "__aiter__") else await call
        finally:
            del self._calls[id(call)]

    def _run_all(self, begin: Callable[[], list[Coroutine[Any, Any, T]]]) -> list[T]:
        self._expect_no_other_loop()
        # First, the loop handles connections that servers have closed since the last batch, so that clients do not reuse them.
        self._loop.run_until_complete(asyncio.sleep(0))
        tasks = [self._loop.create_task(call) for call in begin()]
        if not tasks:
            return []
        with record_awaited_line(self._awaited_line):
            try:
                self._loop.run_until_complete(asyncio.wait(tasks))
            except BaseException as error:
                line = self._awaited_line()
                if isinstance(error, KeyboardInterrupt) and line and not error.args:
                    error.args = (f"{self._owner} awaited {line}.",)
                self._cancel(tasks)
                raise
        return [task.result() for task in tasks]

    def _expect_no_other_loop(self) -> None:
        if _is_in_a_loop():
            raise ProcessorFailed(
                f"{self._owner} has methods that are `async def`, and this thread already runs an event loop, such as the loop of a notebook or "
                "of an asynchronous test. No event was processed. Run Penstock in a thread: `await asyncio.to_thread(driver.send, …)`."
            )

    def _awaited_line(self) -> str | None:
        """Return the line of user code that the oldest call awaits, and the number of calls."""
        calls = list(self._calls.values())
        line = next(filter(None, map(_line_of, calls)), None)
        return f"{line} ({len(calls)} calls)" if line and len(calls) > 1 else line

    def _cancel(self, tasks: Sequence[asyncio.Task[Any]]) -> None:
        """Cancel tasks, and wait a limited time for their end."""
        self._is_cancelling = True
        try:
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.wait(tasks, timeout=CANCEL_LIMIT_S))
            for task in tasks:
                if task.done() and not task.cancelled():
                    task.exception()  # otherwise, asyncio logs that it was not retrieved
        finally:
            self._is_cancelling = False

    def close(self) -> None:
        """Cancel the tasks that user code has left behind, and close the loop. Repeatable."""
        if self._loop.is_closed() or self._loop.is_running():
            return
        try:
            if not _is_in_a_loop():
                tasks = list(asyncio.all_tasks(self._loop))
                if tasks:
                    self._cancel(tasks)
                self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()


class _Batch:
    """The events of a batch by key, and their outcomes."""

    def __init__(self, events: Sequence[Any], keys: Sequence[str], stops: Callable[[UserCodeError], bool]) -> None:
        by_key: dict[str, list[int]] = {}
        for at, key in enumerate(keys):
            by_key.setdefault(key, []).append(at)
        self.keys = len(by_key)
        self._groups = iter(by_key.values())
        self._stops = stops
        self._end = len(events)
        self._outcomes: list[Outcome] = [[]] * len(events)

    def remaining(self) -> Iterator[int]:
        """Yield the indexes of the events of one key after the other, without the keys of other iterators."""
        for positions in self._groups:
            for at in positions:
                if at < self._end:
                    yield at

    def record(self, at: int, outcome: Outcome) -> None:
        """Record the outcome of an event. If it stops the processor, no later event begins."""
        self._outcomes[at] = outcome
        if isinstance(outcome, USER_CODE_ERRORS) and self._stops(outcome):
            self._end = min(self._end, at + 1)

    def outcomes(self) -> list[Outcome]:
        """Return the outcomes, up to the first one that stops the processor."""
        return self._outcomes[: self._end]


def _line_of(call: Any) -> str | None:
    """Return the innermost line of user code that a call awaits; None if the call has not begun or has ended."""
    found = None
    while call is not None:
        frame = getattr(call, "cr_frame", None) or getattr(call, "ag_frame", None)
        if frame is not None and is_user_file(frame.f_code.co_filename):
            found = frame
        call = getattr(call, "cr_await", None) or getattr(call, "ag_await", None)
    return user_line(found)


def _is_in_a_loop() -> bool:
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        return True
    return False
