"""The watermark of a loop: no event that is earlier circulates in it, or will be sent into it.

An ordinary watermark of a feedback input would wait for itself: it follows from the watermark of its writer, which follows from the feedback
input. So the shards of all members agree in rounds. In a round, each shard publishes the minimum of

- the watermarks of its inputs from outside of the loop, as of its last checkpoint, and
- the event times of all messages that it has sent into the loop since its statement of the previous round.

A shard enters the next round when it has read the statements of the previous round of all shards, and has processed and saved everything up
to the end offsets in them. So every message that was sent before its sender's previous statement has been processed; every later one counts in
the sender's minimum. The minimum over all shards of one round is the watermark. What is sent later has a cause that is not earlier, and no
output is earlier than its cause.

The first statement of a shard's new owner has no minimum, because no worker knows what its predecessor has sent since the last one. It skips a
round, so that a late statement of the predecessor is recognised.

Source: Mattern, "Efficient Algorithms for Distributed Snapshots and Global Virtual Time Approximation", 1993. Offsets replace its message counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ....processors.apps import Loop
from ....processors.declare import Processor, plan_of
from ....processors.shard import Offsets
from ....processors.time import FOREVER_MS, NEVER_MS
from ....transport import Bucket
from ....transport.tables import NO_ROUND, LoopRound, WatermarkOwner, WatermarkStatement
from .upstream_shards import IsFresh
from .watermark_subscriber import InputWatermark

NEW_OWNER_SKIPS = 2
"""How many rounds the first statement of a new owner is after the newest one. Its predecessor may still publish the next one."""


class LoopCut(NamedTuple):
    """What a shard has processed and saved; everything that it has sent because of that is on the bus.

    Args:
        position: next unread offset by input.
        external_ms: the lowest watermark of its inputs from outside of the loop; `FOREVER_MS` if it has none, or all are idle.
    """

    position: Offsets
    external_ms: int


@dataclass
class _OwnShard:
    """A shard of this worker.

    Args:
        round: the newest round that it has published.
        cut: what it has saved; None before the first.
        saving: what the checkpoint in progress saves.
        unsaved_ms: the earliest event time that it has sent into the loop since the checkpoint in progress began.
        saving_ms: the earliest one of that checkpoint.
        since_ms: the earliest one of the complete checkpoints since the newest round.
    """

    round: LoopRound = NO_ROUND
    cut: LoopCut | None = None
    saving: LoopCut | None = None
    unsaved_ms: int = FOREVER_MS
    saving_ms: int = FOREVER_MS
    since_ms: int = FOREVER_MS


class _Statements:
    """The statements of one shard of the loop: the newest, and the end offsets in the first one of its round."""

    def __init__(self, first: WatermarkStatement) -> None:
        self.newest = self._first_of_round = first

    @property
    def number(self) -> int:
        """The number of its round."""
        return self.newest.round.number

    @property
    def cut_ms(self) -> int:
        """Its minimum in that round."""
        return self.newest.round.cut_ms

    def add(self, statement: WatermarkStatement) -> None:
        """Add the next statement. One of a former owner, in an earlier round, is ignored."""
        if statement.round.number > self.number:
            self._first_of_round = statement
        if statement.round.number >= self.number:
            self.newest = statement

    def end_of(self, bucket: Bucket) -> int:
        """Return the offset below which are all messages to a bucket that it had sent before this round."""
        return self._first_of_round.ends.get(bucket.category, {}).get(bucket.number, 0)


class LoopWatermark:
    """Takes part in the rounds of a loop, for the shards of one worker. One thread.

    Args:
        loop: the loop.
        member: the worker's processor.
    """

    def __init__(self, loop: Loop, member: type[Processor]) -> None:
        self.categories = loop.categories
        self.external = [category.name for category in plan_of(member).sources if category.name not in loop.categories]
        """The inputs from outside of the loop."""
        self._name = member.name
        self._inputs = loop.inputs_of(member)
        self._owners = frozenset(loop.shards)
        self._statements: dict[WatermarkOwner, _Statements] = {}
        self._rounds: Counter[int] = Counter()
        """How many shards have published each round as their newest."""
        self._known_watermark: InputWatermark | None = None
        """The watermark until the next statement: each shard of the worker asks for it in each turn."""
        self._shards: dict[int, _OwnShard] = {}
        self._watermark_ms = NEVER_MS

    def record(self, owner: WatermarkOwner, statement: WatermarkStatement | None) -> None:
        """Record the next statement of any shard, in the order of the bus; None if it was deleted."""
        if owner not in self._owners:
            return
        before, self._known_watermark = self._round(owner), None
        if statement is None:  # of a restore: earlier events circulate again
            self._statements.pop(owner, None)
            self._watermark_ms = NEVER_MS
        elif owner in self._statements:
            self._statements[owner].add(statement)
        else:
            self._statements[owner] = _Statements(statement)
        after = self._round(owner)
        if after == before:
            return  # the minimum of a round is fixed
        self._rounds = self._rounds + after - before
        if self._is_complete:
            earliest_ms = min(shard.cut_ms for shard in self._statements.values())
            if earliest_ms < FOREVER_MS:
                self._watermark_ms = max(self._watermark_ms, earliest_ms)

    @property
    def _is_complete(self) -> bool:
        """Whether all shards have published the same round."""
        return len(self._statements) == len(self._owners) and len(self._rounds) == 1

    def _round(self, owner: WatermarkOwner) -> Counter[int]:
        """Return the number of a shard's round, for `_rounds`; empty without a statement."""
        return Counter([self._statements[owner].number] if owner in self._statements else [])

    @property
    def watermark(self) -> InputWatermark:
        """The watermark of the loop, and the shard that limits it."""
        if self._known_watermark is None:
            self._known_watermark = self._find_watermark()
        return self._known_watermark

    def _find_watermark(self) -> InputWatermark:
        missing = sorted(self._owners - self._statements.keys())
        if missing:
            name, number = missing[0]
            return InputWatermark(
                self._watermark_ms, f"the loop waits for {name}/{number}, which has published nothing yet"
            )
        name, number = min(self._statements, key=lambda owner: (self._statements[owner].cut_ms, owner))
        return InputWatermark(self._watermark_ms, f"the loop, in which {name}/{number} may send the earliest events")

    @property
    def has_quiet(self) -> bool:
        """Whether a shard can send nothing more by itself, so that it matters whether it is alive."""
        return any(shard.cut_ms == FOREVER_MS for shard in self._statements.values())

    def is_drained(self, is_fresh: IsFresh) -> bool:
        """Return whether nothing circulates, and no shard can send anything before an idle input wakes up.

        Args:
            is_fresh: returns whether a shard was alive a moment ago, by its newest statement.
        """
        return self._is_complete and all(
            shard.cut_ms == FOREVER_MS and is_fresh(shard.newest) for shard in self._statements.values()
        )

    @property
    def idle_as_of(self) -> int:
        """When all shards were idle: an offset of the statements; 0 while one is not."""
        newest = [shard.newest for shard in self._statements.values()]
        return min((statement.idle_as_of if statement.idle else 0 for statement in newest), default=0)

    def begin(self, number: int) -> None:
        """Follow an opened shard."""
        self._shards[number] = _OwnShard()

    def drop(self, numbers: Collection[int]) -> None:
        """Stop following shards."""
        for number in numbers:
            self._shards.pop(number, None)

    def record_sent(self, number: int, earliest_ms: int) -> None:
        """Record messages that a shard sends into the loop, by the earliest of their event times."""
        shard = self._shards[number]
        shard.unsaved_ms = min(shard.unsaved_ms, earliest_ms)

    def checkpoint_begun(self, cuts: Mapping[int, LoopCut]) -> None:
        """Record the begin of a checkpoint, which contains everything that was processed and sent until now."""
        for number, cut in cuts.items():
            shard = self._shards[number]
            shard.saving, shard.saving_ms, shard.unsaved_ms = cut, shard.unsaved_ms, FOREVER_MS

    def checkpoint_rolled_back(self) -> None:
        """Record that the checkpoint failed; the next one contains its messages."""
        for shard in self._shards.values():
            shard.unsaved_ms = min(shard.unsaved_ms, shard.saving_ms)
            shard.saving, shard.saving_ms = None, FOREVER_MS

    def checkpoint_complete(self) -> None:
        """Record that the checkpoint is complete: its messages are on the bus."""
        for shard in self._shards.values():
            if shard.saving is not None:
                shard.cut, shard.saving = shard.saving, None
                shard.since_ms = min(shard.since_ms, shard.saving_ms)
                shard.saving_ms = FOREVER_MS

    def record_saved(self, number: int, cut: LoopCut) -> None:
        """Record the progress of a shard that has nothing to save or send."""
        self._shards[number].cut = cut

    def round_of(self, number: int, *, is_read: bool) -> LoopRound:
        """Return the round to publish with the next statement of a shard: the next one if the shard may and should enter it.

        Args:
            number: the shard.
            is_read: whether all statements from before the worker's start are read.
        """
        shard = self._shards.get(number)
        if shard is None or shard.cut is None or not is_read:
            return NO_ROUND if shard is None else shard.round
        newest = max(self._rounds, default=0)
        number_, cut_ms = shard.round.number, shard.round.cut_ms
        if not number_:
            number_, shard.since_ms = newest + NEW_OWNER_SKIPS, FOREVER_MS
        elif self._may_enter_next(number, number_, shard.cut):
            next_ms, has_sent = min(shard.cut.external_ms, shard.since_ms), shard.since_ms < FOREVER_MS
            if has_sent or next_ms != cut_ms or newest > number_:
                number_, cut_ms, shard.since_ms = number_ + 1, next_ms, FOREVER_MS
        shard.round = LoopRound(number_, cut_ms)
        return shard.round

    def _may_enter_next(self, number: int, round_: int, cut: LoopCut) -> bool:
        is_behind = len(self._statements) < len(self._owners) or min(self._rounds) < round_
        if is_behind or self._statements[self._name, number].number != round_:
            return False
        ends = {
            name: max(each.end_of(Bucket(name, number)) for each in self._statements.values()) for name in self._inputs
        }
        return all(cut.position.get(name, 0) >= end for name, end in ends.items())
