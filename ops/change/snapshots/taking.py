"""Taking a snapshot: the coordinator's side of `transport/tables/snapshot_requests.py`."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing, suppress

import msgspec

from ....processors import backoff
from ....processors.declare import Processor, plan_of
from ....processors.shard import is_remote
from ....state import StateError
from ....state.files import FileStore
from ....transport import Bus, create_missing_categories
from ....transport.tables import (
    SNAPSHOTS,
    ShardCut,
    SnapshotAnswer,
    SnapshotChannel,
    SnapshotOrder,
    SnapshotRequest,
    SnapshotStage,
)
from .snapshot import FORMAT, ProcessorCut, Snapshot, SnapshotError, SnapshotStore, new_id

RETRY_FOR_S = 90.0
"""How long a snapshot is tried again that a rebalance or a failure has ended. A killed worker's buckets move within its session's timeout."""
READY_LIMIT_S = 20.0
"""How long to wait until all shards are open, such as those of a worker that restarts. Nothing is held meanwhile."""
READY_FOR_S = 1.0
"""How long the answer of a worker that is ready counts."""
ASK_EVERY_S = 0.3
"""How often workers are asked again, because one that has started since has not seen the last request."""
HOLD_LIMIT_S = 10.0
"""How long to wait for the checkpoints of all workers."""
STORE_LIMIT_S = 3_600.0
"""How long to wait for the copies of all states."""
ALIVE_LIMIT_S = 30.0
"""How long a worker that stores its copies may give no answer. One that has died has lost them."""
RECEIVE_S = 0.05
PAUSES_S = 0.2, 5.0
"""The first and the longest pause between two attempts, in which outputs do not wait."""

Report = Callable[[str], None]
"""Receives one line about the progress."""


class _AttemptFailed(Exception):
    """An attempt has failed, and the next one may succeed. The reason is a sentence."""


def take_snapshot(
    app: str,
    processors: Sequence[type[Processor]],
    bus: Bus,
    store: FileStore,
    report: Report = lambda _: None,
    *,
    is_scheduled: bool = False,
) -> Snapshot:
    """Take a snapshot of a running app, and return it when everything is stored. The app continues.

    Args:
        app: its name.
        processors: all of its processors; workers of each run, with `store` as their backup store.
        bus: the bus of the app.
        store: the backup store.
        report: receives the progress.
        is_scheduled: whether a schedule takes it, and may delete it later.

    Raises:
        SnapshotError: there is no snapshot; the app is unaffected.
        BusError: the bus does not answer.
    """
    _expect_possible(processors)
    create_missing_categories(bus, SNAPSHOTS)
    with closing(SnapshotChannel(bus)) as channel:
        _await_ready(channel)
        deadline_s, pauses_s = time.monotonic() + RETRY_FOR_S, backoff(*PAUSES_S)
        while True:
            attempt = _Attempt(app, processors, bus, store=SnapshotStore(store), channel=channel, report=report)
            try:
                return attempt.run(is_scheduled=is_scheduled)
            except _AttemptFailed as error:
                if time.monotonic() > deadline_s:
                    raise SnapshotError(
                        f"No snapshot of {app} was taken within {RETRY_FOR_S:.0f} s: {error} The app continues, and earlier snapshots are intact. "
                        "Check with `penstock status` that all processors run and that no worker joins or leaves, and try again."
                    ) from error
                report(f"No snapshot yet: {error} Trying again …")
                time.sleep(next(pauses_s))


def _expect_possible(processors: Sequence[type[Processor]]) -> None:
    remote = [processor.__name__ for processor in processors if is_remote(processor)]
    if remote:
        raise SnapshotError(
            f"{', '.join(remote)} keeps its state in a remote store, which has no versions, so it cannot return to a snapshot. Nothing was "
            "changed. Take the snapshot of an app without it, or back the store up with its own tools."
        )


def _await_ready(channel: SnapshotChannel) -> None:
    deadline_s = time.monotonic() + HOLD_LIMIT_S
    while not channel.is_ready:
        channel.receive(RECEIVE_S)
        if time.monotonic() > deadline_s:
            raise SnapshotError(
                f"Category {SNAPSHOTS.name} was not read to its end in time. No snapshot was taken. Try again."
            )


class _Attempt:
    """One attempt, with an id of its own."""

    def __init__(
        self,
        app: str,
        processors: Sequence[type[Processor]],
        bus: Bus,
        *,
        store: SnapshotStore,
        channel: SnapshotChannel,
        report: Report,
    ) -> None:
        self.id = new_id()
        self._app = app
        self._processors = {processor.name: processor for processor in processors}
        self._bus = bus
        self._store = store
        self._channel = channel
        self._report = report
        self._answers: dict[tuple[str, str], SnapshotAnswer] = {}
        self._heard_s: dict[tuple[str, str], float] = {}

    def run(self, *, is_scheduled: bool) -> Snapshot:
        """Take the snapshot; after a failure, workers continue and nothing remains."""
        self._await_ready()
        began_s = time.monotonic()
        try:
            self._request(SnapshotOrder.HOLD)
            self._await(
                lambda: not self._missing(SnapshotStage.HELD),
                HOLD_LIMIT_S,
                lambda: self._silence(SnapshotStage.HELD, HOLD_LIMIT_S),
            )
            taken_ms, ends = time.time_ns() // 1_000_000, self._ends()
            self._request(SnapshotOrder.RELEASE)
            self._await_stage({SnapshotStage.RELEASED, SnapshotStage.STORED}, HOLD_LIMIT_S)
            waited_s = time.monotonic() - began_s
            self._report(f"The cut is taken; outputs waited for at most {waited_s:.2f} s. Storing the states …")
            self._await_stored()
            took_s = time.monotonic() - began_s
            snapshot = Snapshot(
                FORMAT, self._app, self.id, taken_ms, waited_s, took_s, self._cuts(), ends, is_scheduled
            )
            self._store.write(snapshot)
        except BaseException:
            self._give_up()
            raise
        self._unpin_leftovers()
        return snapshot

    def _request(self, request: SnapshotOrder) -> None:
        self._channel.send(SnapshotRequest(self._app, self.id, request, tuple(self._processors)))

    def _give_up(self) -> None:
        self._request(SnapshotOrder.ABORT)
        with suppress(StateError):  # otherwise the pins cost space until the next attempt's end
            self._store.unpin(self.id, {name: self._shards_of(name) for name in self._processors})

    def _unpin_leftovers(self) -> None:
        """Unpin what killed processes have left."""
        try:
            self._store.unpin_leftovers({name: self._shards_of(name) for name in self._processors})
        except StateError as error:
            self._report(
                f"The space of snapshots that have failed is not free yet; the next snapshot tries again. {error}"
            )

    def _await_ready(self) -> None:
        """Wait until a worker of each shard could take part, before any output waits."""
        deadline_s = time.monotonic() + READY_LIMIT_S
        while self._missing(SnapshotStage.READY):
            if time.monotonic() > deadline_s:
                self._expect_running()
                raise self._silence(SnapshotStage.READY, READY_LIMIT_S)
            self._forget_silent()
            self._request(SnapshotOrder.PREPARE)
            self._receive_until(lambda: not self._missing(SnapshotStage.READY), ASK_EVERY_S)
        self._answers.clear()

    def _forget_silent(self) -> None:
        """Forget workers that may have died since they answered."""
        now_s = time.monotonic()
        self._answers = {
            who: answer for who, answer in self._answers.items() if now_s - self._heard_s[who] < READY_FOR_S
        }

    def _expect_running(self) -> None:
        """Raise SnapshotError if no worker of a processor has answered. A supervised worker that was killed has restarted by then."""
        silent = self._processors.keys() - {name for name, _ in self._heard_s}
        if silent:
            raise SnapshotError(
                f"No worker of {', '.join(sorted(silent))} has answered within {READY_LIMIT_S:.0f} s: none runs, or none reaches Kafka. No snapshot was "
                "taken, and earlier ones are intact. A snapshot needs workers of all processors of the app; `penstock status` shows them. Start the "
                "missing ones with `penstock deploy` or `penstock run`, with the same --backup."
            )

    def _await_stored(self) -> None:
        """Wait for all copies. Workers that store theirs answer each CHECK."""
        deadline_s = time.monotonic() + STORE_LIMIT_S
        while lagging := self._lagging({SnapshotStage.STORED}):
            now_s = time.monotonic()
            lost = [worker for worker in lagging if now_s - self._heard_s[worker] > ALIVE_LIMIT_S]
            if lost or now_s > deadline_s:
                raise _AttemptFailed(f"{_workers(lost or lagging)} did not store the states, or died meanwhile.")
            self._request(SnapshotOrder.CHECK)
            self._receive_until(lambda: not self._lagging({SnapshotStage.STORED}), ASK_EVERY_S)

    def _lagging(self, stages: Collection[SnapshotStage]) -> list[tuple[str, str]]:
        """Return the workers with shards that have reached none of some stages, as processor and name."""
        return sorted(
            worker for worker, answer in self._answers.items() if answer.shards and answer.stage not in stages
        )

    def _await_stage(self, stages: Collection[SnapshotStage], limit_s: float) -> None:
        self._await(
            lambda: not self._lagging(stages),
            limit_s,
            lambda: _AttemptFailed(f"Within {limit_s:.0f} s, {_workers(self._lagging(stages))} did not answer."),
        )

    def _await(self, is_done: Callable[[], bool], limit_s: float, failure: Callable[[], _AttemptFailed]) -> None:
        """Wait for a condition while outputs wait. A worker that has started since ends the attempt at once, with its answer to CHECK."""
        deadline_s = time.monotonic() + limit_s
        while not self._receive_until(is_done, ASK_EVERY_S):
            if time.monotonic() > deadline_s:
                raise failure()
            self._request(SnapshotOrder.CHECK)

    def _receive_until(self, is_done: Callable[[], bool], limit_s: float) -> bool:
        """Receive answers until a condition holds; return whether it does within the limit."""
        deadline_s = time.monotonic() + limit_s
        while not is_done():
            if time.monotonic() > deadline_s:
                return False
            self._receive()
        return True

    def _receive(self) -> None:
        for message in self._channel.receive(RECEIVE_S):
            if message.app != self._app:
                continue
            if isinstance(message, SnapshotAnswer) and message.snapshot == self.id:
                self._record(message)
            elif isinstance(message, SnapshotRequest) and message.request is not SnapshotOrder.ABORT:
                self._yield_to(message)

    def _yield_to(self, other: SnapshotRequest) -> None:
        """End if a later coordinator takes a snapshot. The ids decide between two at once, so that one of them continues."""
        if other.snapshot > self.id:
            raise SnapshotError(
                f"Another process takes snapshot {other.snapshot} of {self._app}, which has ended this one. The app is unaffected. Wait for "
                "that snapshot, or try again."
            )
        if other.snapshot < self.id and other.request is SnapshotOrder.HOLD:
            raise _AttemptFailed(f"Another process has begun snapshot {other.snapshot} meanwhile.")

    def _record(self, answer: SnapshotAnswer) -> None:
        who = answer.processor, answer.worker
        if answer.stage is SnapshotStage.FAILED:
            if who in self._answers and self._answers[who].stage is SnapshotStage.STORED:
                return  # it has started again, and its copies are complete
            raise _AttemptFailed(f"{_worker(*who)}: {answer.reason.rstrip('.')}.")
        self._answers[who] = answer
        self._heard_s[who] = time.monotonic()
        self._expect_distinct(answer.processor)

    def _expect_distinct(self, processor: str) -> None:
        numbers = [
            number for (name, _), answer in self._answers.items() if name == processor for number in answer.shards
        ]
        if len(numbers) != len(set(numbers)):
            raise _AttemptFailed(f"A bucket of {processor} has moved from one worker to another.")

    def _silence(self, stage: SnapshotStage, limit_s: float) -> _AttemptFailed:
        """Return the failure of an attempt in which shards did not answer."""
        reasons = sorted(
            f" {_worker(*who)}: {answer.reason}." for who, answer in self._answers.items() if answer.reason
        )
        return _AttemptFailed(f"Within {limit_s:.0f} s, {self._missing(stage)} did not answer.{''.join(reasons)}")

    def _missing(self, stage: SnapshotStage) -> str:
        """Describe the shards that have not reached a stage; empty if all have."""
        missing = []
        for name, processor in self._processors.items():
            reached = {
                number
                for (of, _), answer in self._answers.items()
                if of == name and answer.stage is stage
                for number in answer.shards
            }
            numbers = set(range(plan_of(processor).inputs[0].buckets)) - reached
            if numbers:
                missing.append(f"{name}, bucket {', '.join(map(str, sorted(numbers)))}")
        return "; ".join(missing)

    def _shards_of(self, processor: str) -> dict[int, ShardCut]:
        return {
            number: shard
            for (name, _), answer in self._answers.items()
            if name == processor
            for number, shard in answer.shards.items()
        }

    def _ends(self) -> dict[str, dict[int, int]]:
        """Return the ends of all output categories while every worker holds its outputs.

        A committed transaction may not be visible in each bucket yet, so this waits until readers can read everything up to the ends.
        """
        names = {
            category.name
            for processor in self._processors.values()
            for category in plan_of(processor).written_categories
        }
        read = {category.name for processor in self._processors.values() for category in plan_of(processor).inputs}
        ends = {name: dict(self._bus.catalog.ends(name)) for name in sorted(names)}
        for name in sorted(names & read):
            self._await_stable(name, ends[name])
        return ends

    def _await_stable(self, name: str, ends: Mapping[int, int]) -> None:
        def is_stable() -> bool:
            stable = self._bus.catalog.stable_ends(name)
            return all(stable[number] >= end for number, end in ends.items())

        self._await(
            is_stable,
            HOLD_LIMIT_S,
            lambda: _AttemptFailed(f"Within {HOLD_LIMIT_S:.0f} s, a transaction in {name} did not end."),
        )

    def _cuts(self) -> dict[str, ProcessorCut]:
        return {
            name: ProcessorCut(
                tuple(category.name for category in plan_of(processor).inputs),
                tuple(category.name for category in plan_of(processor).written_categories),
                plan_of(processor).state_shape,
                {
                    number: self._with_starts(processor, number, shard)
                    for number, shard in sorted(self._shards_of(name).items())
                },
            )
            for name, processor in self._processors.items()
        }

    def _with_starts(self, processor: type[Processor], number: int, shard: ShardCut) -> ShardCut:
        """Return a shard's part with the first retained offset of each input that it has not read yet."""
        starts = {
            category.name: self._bus.catalog.describe(category.name).starts[number]
            for category in plan_of(processor).inputs
            if category.name not in shard.position.offsets
        }
        position = msgspec.structs.replace(shard.position, offsets={**starts, **shard.position.offsets})
        return msgspec.structs.replace(shard, position=position)


def _worker(processor: str, name: str) -> str:
    return f"{processor}, worker {name}"


def _workers(workers: Collection[tuple[str, str]]) -> str:
    return "; ".join(_worker(*one) for one in workers)
