"""Taking a snapshot: the coordinator's side of `transport/tables/snapshot_requests.py`."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing, suppress

import msgspec

from ...processors.declare.processor import Processor
from ...processors.retry import backoff
from ...processors.shard.checkpoints import is_remote
from ...state.errors import StateError
from ...state.files.file_store import FileStore
from ...transport.bus import Bus
from ...transport.internal_topics import create_missing_categories
from ...transport.tables.snapshot_requests import (
    SNAPSHOTS,
    Request,
    ShardCut,
    SnapshotAnswer,
    SnapshotChannel,
    SnapshotRequest,
    Stage,
)
from .snapshot import FORMAT, ProcessorCut, Snapshot, SnapshotError, SnapshotStore, new_id

RETRY_FOR_S = 90.0
"""How long a snapshot is tried again that a rebalance or a failure has ended. A killed worker's buckets move within its session's timeout."""
HOLD_LIMIT_S = 10.0
"""How long to wait for the checkpoints of all workers."""
STORE_LIMIT_S = 3_600.0
"""How long to wait for the copies of all states."""
RECEIVE_S = 0.05
PAUSES_S = 1.0, 5.0
"""The first and the longest pause between two attempts, in which outputs do not wait."""

Report = Callable[[str], None]
"""Receives one line about the progress."""


class _AttemptFailed(Exception):
    """An attempt has failed, and the next one may succeed.

    Args:
        reason: a sentence.
        silent: the processors of which no worker answered.
    """

    def __init__(self, reason: str, silent: Collection[str] = ()) -> None:
        super().__init__(reason)
        self.silent = frozenset(silent)


def take_snapshot(
    app: str, processors: Sequence[type[Processor]], bus: Bus, store: FileStore, report: Report = lambda _: None
) -> Snapshot:
    """Take a snapshot of a running app, and return it when everything is stored. The app continues.

    Args:
        app: its name.
        processors: all of its processors; workers of each run, with `store` as their backup store.
        bus: the bus of the app.
        store: the backup store.
        report: receives the progress.

    Raises:
        SnapshotError: there is no snapshot; the app is unaffected.
        BusError: the bus does not answer.
    """
    _expect_possible(processors)
    create_missing_categories(bus, SNAPSHOTS)
    with closing(SnapshotChannel(bus)) as channel:
        _await_ready(channel)
        deadline_s, pauses_s = time.monotonic() + RETRY_FOR_S, backoff(*PAUSES_S)
        ids: set[str] = set()
        silent: frozenset[str] = frozenset()
        while True:
            attempt = _Attempt(app, processors, bus, ids, store=SnapshotStore(store), channel=channel, report=report)
            try:
                return attempt.run()
            except _AttemptFailed as error:
                if time.monotonic() > deadline_s:
                    raise SnapshotError(
                        f"No snapshot of {app} was taken within {RETRY_FOR_S:.0f} s: {error} The app continues, and earlier snapshots are intact. "
                        "Check with `penstock status` that all processors run and that no worker joins or leaves, and try again."
                    ) from error
                if silent & error.silent:
                    raise _not_running(silent & error.silent) from error
                silent = error.silent
                report(f"No snapshot yet: {error} Trying again …")
                time.sleep(next(pauses_s))


def _not_running(silent: Collection[str]) -> SnapshotError:
    """Return the error about processors of which no worker has answered twice. A worker that was killed has been replaced by then."""
    names = ", ".join(sorted(silent))
    return SnapshotError(
        f"No worker of {names} answers: none runs, or none reaches Kafka. No snapshot was taken, and earlier ones are intact. A snapshot "
        "needs workers of all processors of the app; `penstock status` shows them. Start the missing ones with `penstock deploy` or "
        "`penstock run`, with the same --backup."
    )


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
        ids: set[str],
        *,
        store: SnapshotStore,
        channel: SnapshotChannel,
        report: Report,
    ) -> None:
        self.id = new_id()
        self._own_ids = ids
        self._own_ids.add(self.id)
        self._app = app
        self._processors = {processor.name: processor for processor in processors}
        self._bus = bus
        self._store = store
        self._channel = channel
        self._report = report
        self._answers: dict[tuple[str, str], SnapshotAnswer] = {}

    def run(self) -> Snapshot:
        """Take the snapshot; after a failure, workers continue and nothing remains."""
        began_s = time.monotonic()
        try:
            self._request(Request.HOLD)
            self._await(lambda: not self._missing(), HOLD_LIMIT_S, self._silence)
            taken_ms, ends = time.time_ns() // 1_000_000, self._ends()
            self._request(Request.RELEASE)
            self._await_stage({Stage.RELEASED, Stage.STORED}, HOLD_LIMIT_S)
            waited_s = time.monotonic() - began_s
            self._report(f"The cut is taken; outputs waited for at most {waited_s:.2f} s. Storing the states …")
            self._await_stage({Stage.STORED}, STORE_LIMIT_S)
            snapshot = Snapshot(
                FORMAT, self._app, self.id, taken_ms, waited_s, time.monotonic() - began_s, self._cuts(), ends
            )
            self._store.write(snapshot)
        except BaseException:
            self._give_up()
            raise
        self._unpin_leftovers()
        return snapshot

    def _request(self, request: Request) -> None:
        self._channel.send(SnapshotRequest(self._app, self.id, request, tuple(self._processors)))
        self._channel.flush()

    def _give_up(self) -> None:
        self._request(Request.ABORT)
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

    def _await_stage(self, stages: Collection[Stage], limit_s: float) -> None:
        def lagging() -> list[str]:
            return sorted(
                f"{processor}, worker {worker}"
                for (processor, worker), answer in self._answers.items()
                if answer.stage not in stages
            )

        self._await(
            lambda: not lagging(),
            limit_s,
            lambda: _AttemptFailed(f"Within {limit_s:.0f} s, {'; '.join(lagging())} did not answer."),
        )

    def _await(self, is_done: Callable[[], bool], limit_s: float, failure: Callable[[], _AttemptFailed]) -> None:
        deadline_s = time.monotonic() + limit_s
        while not is_done():
            if time.monotonic() > deadline_s:
                raise failure()
            self._receive()

    def _receive(self) -> None:
        for message in self._channel.receive(RECEIVE_S):
            if message.app != self._app:
                continue
            if isinstance(message, SnapshotAnswer) and message.snapshot == self.id:
                self._record(message)
            elif isinstance(message, SnapshotRequest) and message.snapshot not in self._own_ids:
                raise SnapshotError(
                    f"Another process takes snapshot {message.snapshot} of {self._app}, which has ended this one. The app is unaffected. Wait for "
                    "that snapshot, or try again."
                )

    def _record(self, answer: SnapshotAnswer) -> None:
        if answer.stage is Stage.FAILED:
            raise _AttemptFailed(f"{answer.processor}, worker {answer.worker}: {answer.reason.rstrip('.')}.")
        self._answers[answer.processor, answer.worker] = answer
        self._expect_distinct(answer.processor)

    def _expect_distinct(self, processor: str) -> None:
        numbers = [
            number for (name, _), answer in self._answers.items() if name == processor for number in answer.shards
        ]
        if len(numbers) != len(set(numbers)):
            raise _AttemptFailed(f"A bucket of {processor} has moved from one worker to another.")

    def _silence(self) -> _AttemptFailed:
        """Return the failure of an attempt in which shards did not answer."""
        answered = {name for name, _ in self._answers}
        silent = [name for name in self._processors if name not in answered]
        who = f"no worker of {', '.join(silent)} answered" if silent else f"{self._missing()} did not answer"
        return _AttemptFailed(f"Within {HOLD_LIMIT_S:.0f} s, {who}.", silent)

    def _missing(self) -> str:
        """Describe the shards without an answer; empty if each has one."""
        missing = []
        for name, processor in self._processors.items():
            numbers = set(range(processor.inputs()[0].buckets)) - self._shards_of(name).keys()
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
            category.name for processor in self._processors.values() for category in processor.written_categories()
        }
        read = {category.name for processor in self._processors.values() for category in processor.inputs()}
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
                tuple(category.name for category in processor.inputs()),
                tuple(category.name for category in processor.written_categories()),
                processor.state_shape(),
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
            for category in processor.inputs()
            if category.name not in shard.position.offsets
        }
        position = msgspec.structs.replace(shard.position, offsets={**starts, **shard.position.offsets})
        return msgspec.structs.replace(shard, position=position)
