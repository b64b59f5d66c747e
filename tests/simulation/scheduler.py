"""A deterministic scheduler: one task runs at a time, and a seed repeats the run.

Every task of the simulation has its own thread, and one of them runs. It runs until a point where faults may occur (`point`) or until it
waits (`wait`); then a random ready task continues. If no task is ready, time advances until one is.
Threads share nothing else, so nothing else decides the order.

    task --point, wait--> random choice --> another task, or the same task
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Lock, Thread, current_thread, local
from typing import Any

START_MS = 4_102_444_800_000
"""The start of the simulation: the year 2100, in milliseconds since 1970, UTC. No event is later."""
SWITCH_PROBABILITY = 0.15
"""The probability that another task continues at a point."""


class ProcessKilled(BaseException):
    """The process was killed. Raised in all its tasks, and again at each point that an unwinding task reaches."""


class Deadlock(AssertionError):
    """Every task waits for another."""


class ForeignThread(AssertionError):
    """A thread that is not the running task uses the simulation, so a seed would not repeat its run, and the run may stop for ever."""


@dataclass(eq=False)
class Process:
    """A process, whose tasks pause and end together.

    Args:
        name: the name in the history.
    """

    name: str
    is_dead: bool = False
    paused_until_ms: float = 0.0
    silent_since_ms: float = 0.0
    at_death: list[Callable[[], None]] = field(default_factory=list)

    def last_reports_ms(self, now_ms: float) -> float:
        """Return when the process last ran."""
        return self.silent_since_ms if self.is_dead or self.paused_until_ms > now_ms else now_ms


@dataclass(eq=False)
class Task:
    """A thread of a process.

    Args:
        process: the process of the task.
        name: the name in the history.
    """

    process: Process
    name: str
    gate: Lock = field(default_factory=Lock)
    until: Callable[[], bool] | None = None
    deadline_ms: float | None = None
    is_done: bool = False

    def is_ready(self, now_ms: float) -> bool:
        """Tell whether the task can continue now."""
        if self.process.is_dead:
            return True
        if self.process.paused_until_ms > now_ms:
            return False
        if self.until is None and self.deadline_ms is None:
            return True
        return (self.deadline_ms is not None and self.deadline_ms <= now_ms) or (
            self.until is not None and self.until()
        )

    def next_ms(self) -> float | None:
        """Return when time alone makes the task ready, or None for never."""
        wakes_ms = self.deadline_ms
        if self.until is None and wakes_ms is None:
            return self.process.paused_until_ms
        if self.until is not None and self.process.paused_until_ms > 0:
            # The task may be ready as soon as its process continues.
            wakes_ms = min(wakes_ms or self.process.paused_until_ms, self.process.paused_until_ms)
        return None if wakes_ms is None else max(wakes_ms, self.process.paused_until_ms)


_idle: list[SimpleQueue[Callable[[], None]]] = []
"""The queues of idle threads, since the start of a thread takes longer than most tasks. Only the running task accesses them."""


def _in_a_thread(call: Callable[[], None]) -> None:
    if _idle:
        _idle.pop().put(call)
        return
    calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
    calls.put(call)
    Thread(target=_serve, args=(calls,), daemon=True).start()


def _serve(calls: SimpleQueue[Callable[[], None]]) -> None:
    _this_thread.calls = calls
    while True:
        calls.get()()


class _ThisThread(local):
    calls: SimpleQueue[Callable[[], None]]
    task: Task | None = None
    """The task that the thread runs, or ran last."""


_this_thread = _ThisThread()


class Scheduler:
    """Runs tasks one at a time.

    Args:
        seed: decides the order and the duration of all tasks.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms: float = START_MS
        self.points = 0
        self.interfere: Callable[[Process, str], None] = lambda *_: None
        """Called at each point with the process and the point's name; may pause or kill the process."""
        self.pass_time: Callable[[], object] = lambda: None
        """Called when time has advanced without a task."""
        self.failures: list[BaseException] = []
        self._director = Task(Process("director"), "director")
        self._director.gate.acquire()
        self._tasks = [self._director]
        self.current = _this_thread.task = self._director

    def spawn(self, process: Process, name: str, call: Callable[[], None]) -> Task:
        """Add a task; it runs when the scheduler chooses it."""
        task = Task(process, name)
        task.gate.acquire()
        self._tasks.append(task)

        def run() -> None:
            _this_thread.task = task
            task.gate.acquire()
            try:
                if not process.is_dead:
                    call()
            except ProcessKilled:
                pass
            except BaseException as error:  # noqa: BLE001 - the director raises it
                self.failures.append(error)
            task.is_done = True
            self._tasks.remove(task)
            _idle.append(_this_thread.calls)
            self._choose().gate.release()

        _in_a_thread(run)
        return task

    def point(self, name: str) -> None:
        """Let faults take effect, and perhaps another task continue."""
        task = self._running()
        if task.process.is_dead:
            raise ProcessKilled
        self.points += 1
        self.now_ms += self.random.random()
        self.interfere(task.process, name)
        if task.process.is_dead:
            raise ProcessKilled
        if task.process.paused_until_ms > self.now_ms or self.random.random() < SWITCH_PROBABILITY:
            self._pass_on(task)

    def wait(self, until: Callable[[], bool] | None, timeout_s: float | None = None) -> bool:
        """Wait for a condition or a timeout while other tasks run; return whether the condition holds."""
        task = self._running()
        if task.process.is_dead:
            raise ProcessKilled
        self.points += 1
        task.until = until
        task.deadline_ms = None if timeout_s is None else self.now_ms + timeout_s * 1000
        self._pass_on(task)
        return until is None or until()

    def _running(self) -> Task:
        """Return the running task, whose thread calls.

        Raises:
            ForeignThread: another thread calls.
        """
        if _this_thread.task is not self.current:
            error = ForeignThread(
                f"The thread {current_thread().name} is no task of the simulation: replace its executor in `patches`."
            )
            self.failures.append(error)  # the library may catch it
            raise error
        return self.current

    def sleep(self, seconds: float) -> None:
        """Pause this task for a time."""
        self.wait(None, seconds)

    def _pass_on(self, task: Task) -> None:
        chosen = self._choose()
        if chosen is not task:
            chosen.gate.release()
            task.gate.acquire()
        task.until = task.deadline_ms = None
        if task.process.is_dead:
            raise ProcessKilled

    def _choose(self) -> Task:
        """Choose a random ready task; advance the time until one is ready."""
        while True:
            ready = [task for task in self._tasks if task.is_ready(self.now_ms)]
            if ready:
                self.current = ready[0] if len(ready) == 1 else self.random.choice(ready)
                return self.current
            wakes_ms = [at_ms for task in self._tasks if (at_ms := task.next_ms()) is not None and at_ms > self.now_ms]
            if not wakes_ms:
                self.failures.append(Deadlock(f"no task can continue: {[task.name for task in self._tasks]}"))
                self._director.until = self._director.deadline_ms = None
                continue
            self.now_ms = min(wakes_ms)
            self.pass_time()

    def kill(self, process: Process) -> None:
        """Kill a process: its tasks unwind without further effects."""
        if not process.is_dead:
            process.is_dead, process.silent_since_ms = True, self.now_ms
            for callback in process.at_death:
                callback()

    def pause(self, process: Process, seconds: float) -> None:
        """Pause a process for a while."""
        process.silent_since_ms = self.now_ms
        process.paused_until_ms = self.now_ms + seconds * 1000

    def kill_all(self) -> None:
        """Kill all other processes and wait for their tasks. The director calls it at the end."""
        for task in self._tasks:
            if task is not self._director:
                self.kill(task.process)
        self.wait(lambda: len(self._tasks) == 1)


class SimulatedClock:
    """The scheduler's time as a clock for workers."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def monotonic_s(self) -> float:
        """Return seconds since the start."""
        return (self._scheduler.now_ms - START_MS) / 1000

    def now_ms(self) -> int:
        """Return milliseconds since 1970, UTC."""
        return int(self._scheduler.now_ms)


class SimulatedFuture(Future[Any]):
    """A future; waiting for it lets other tasks run."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler = scheduler

    def result(self, timeout: float | None = None) -> Any:
        """Return the result."""
        if not self.done():
            self._scheduler.wait(self.done, timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the exception."""
        if not self.done():
            self._scheduler.wait(self.done, timeout)
        return super().exception(0)


class SimulatedExecutor(Executor):
    """Runs calls in tasks of a process; with one thread, one after the other.

    Args:
        scheduler: runs the tasks.
        process: the process.
        name: the name of its threads in the history.
        threads: one, or None for as many as needed.
    """

    def __init__(self, scheduler: Scheduler, process: Process, name: str, threads: int | None = None) -> None:
        self._scheduler = scheduler
        self._process = process
        self._name = name
        self._is_single = threads == 1
        self._last: Future[Any] | None = None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a call in a task."""
        future, previous = SimulatedFuture(self._scheduler), self._last if self._is_single else None
        self._last = future

        def work() -> None:
            if previous is not None and not previous.done():
                self._scheduler.wait(previous.done)
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except ProcessKilled:
                raise
            except BaseException as error:  # noqa: BLE001 - as executors do
                future.set_exception(error)
            else:
                future.set_result(result)

        self._scheduler.spawn(self._process, self._name, work)
        return future


class SimulatedLock:
    """A `threading.Lock` or `threading.Condition`; waiting for it lets other tasks run.

    Args:
        scheduler: runs other tasks.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_held = False
        self._notices = 0

    def __enter__(self) -> None:
        """Acquire the lock."""
        if self._is_held:
            self._scheduler.wait(lambda: not self._is_held)
        self._is_held = True

    def __exit__(self, *_: object) -> None:
        """Release the lock."""
        self._is_held = False

    def notify(self) -> None:
        """Wake the waiting threads."""
        self._notices += 1

    def wait(self, timeout: float) -> None:
        """Release the lock until a notice or a timeout, and acquire it again."""
        self._is_held, seen = False, self._notices
        self._scheduler.wait(lambda: self._notices != seen, timeout)
        self.__enter__()


def wait_for_all(futures: Any, *_: Any, **__: Any) -> None:
    """Wait for futures, as `concurrent.futures.wait` does."""
    for future in futures:
        future.exception()


@contextmanager
def running(scheduler: Scheduler) -> Iterator[None]:
    """Run the block as the director of a simulation, and end all tasks after it."""
    try:
        yield
    finally:
        scheduler.kill_all()
