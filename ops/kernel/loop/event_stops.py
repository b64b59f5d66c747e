"""Stops of a worker at an event, with what they mean for the events around it."""

from __future__ import annotations

from ....processors import PenstockError
from ....processors.declare import Processor, dead_letters_of, plan_of
from ....processors.operators import NO_EVENT, StepResult
from ....processors.shard import AcceptedBatch, EventRejected, RejectedEvent
from ....transport import RawBatch
from ..checkpoint import OutputTooLarge
from ..shards import OpenShard


class StopAtEvent(PenstockError):
    """A shard stops at an event or after a batch: save the processed events, then stop the worker.

    Args:
        shard: the shard.
        at: the offset and the reason.
        consequence: the result for the other events; contains `{before}` where it depends on whether they could be saved.
        saves: whether the processed events can be saved. They cannot if the event's message contains some of them.
    """

    def __init__(self, shard: OpenShard, at: str, consequence: str, *, saves: bool = True) -> None:
        super().__init__(at)
        self.shard = shard
        self.saves = saves
        self._at = at
        self._consequence = consequence

    def rejection(self) -> EventRejected:
        """Return the error that stops the worker, after it tried to save."""
        is_saved = self.saves and self.shard.saved_position == self.shard.position
        reason = "they could not be saved just now" if self.saves else "some are in the same message"
        before = "are saved" if is_saved else f"since the last checkpoint will be read again, since {reason},"
        return EventRejected(f"{self._at} {self._consequence.replace('{before}', before)}".rstrip())


def stop_at_event(shard: OpenShard, batch: RawBatch, event: RejectedEvent, *, saves: bool) -> StopAtEvent:
    """Return the stop at a rejected event, and move the position to it.

    Args:
        shard: the shard.
        batch: the batch of the event.
        event: the event.
        saves: whether the events before it can be saved.
    """
    processor = type(shard.processor)
    suspects = (
        processor.__name__ if event.cause is not None else f"{processor.__name__} or the producer of these events"
    )
    remedy = event.remedy or (
        f"Fix {suspects}, or send such events to {dead_letters_of(processor).name} (`{event.setting}`)."
    )
    return stop_at(shard, batch, event.at, f"{event.reason}.", remedy, saves=saves)


def stop_at(
    shard: OpenShard, batch: RawBatch, at: int, reason: str, remedy: str = "", *, saves: bool = True
) -> StopAtEvent:
    """Return the stop at a message of a batch, by index, and move the position to it."""
    offset = batch.messages[at].offset()
    shard.position[batch.bucket.category] = offset
    return StopAtEvent(
        shard,
        f"{batch.bucket} at offset {offset}: {reason}",
        "All earlier events {before} and nothing was skipped. The worker stops here, and reads this event again after a restart. "
        f"{remedy}",
        saves=saves,
    )


def stop_at_output(
    shard: OpenShard, batch: RawBatch, accepted: AcceptedBatch, result: StepResult, error: OutputTooLarge
) -> StopAtEvent:
    """Return the stop at an event whose output is too large."""
    processor: type[Processor] = type(shard.processor)
    return StopAtEvent(
        shard,
        f"{place_of(error.at, batch, accepted, result)}: {error}",
        "The events since the last checkpoint are read again after a restart, and nothing was skipped. Or send such events to "
        f"{dead_letters_of(processor).name} (`{plan_of(processor).dead_letter_setting}`).",
        saves=False,
    )


def stop_after(shard: OpenShard, batch: RawBatch, event: RejectedEvent) -> StopAtEvent:
    """Return the stop after a batch in which an event exceeded the limit of dead letters."""
    return StopAtEvent(
        shard,
        f"{batch.bucket} at offset {batch.messages[event.at].offset()}: {event.reason}.",
        f"The events up to offset {batch.next_offset - 1} are processed or in the dead letters, and nothing was skipped. The worker stops here, "
        f"and continues after them when you start it again. {event.remedy}",
    )


def place_of(output: int | None, batch: RawBatch, accepted: AcceptedBatch, result: StepResult) -> str:
    """Return the event that returned an output, for errors; the batch if that is unknown."""
    cause, offsets = NO_EVENT if result.causes is None or output is None else result.causes[output], batch.offsets()
    if cause == NO_EVENT:
        return f"{batch.bucket}, a timer or an event from offset {offsets[0]} to {offsets[-1]}"
    return f"{batch.bucket} at offset {offsets[accepted.at[cause]]}"
