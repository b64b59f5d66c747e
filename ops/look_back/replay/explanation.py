"""The inputs of an output record: found by a replay, with the state before and after, and upstream through the processors of an app.

replay --call that returns the output--> its event, timer or window --processor that writes the event's category--> the same again
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from ....processors import ending
from ....processors.declare import Aggregator, Processor, Stateful, plan_of
from ....processors.pipes import Pipe
from ....processors.shard import SourceEvents
from ....transport import Bus
from ...kernel import open_processor
from .debugger import Call, hook_calls
from .errors import ReplayRefused
from .event_places import EventPlace, EventPlaces
from .event_source import EventSource, PastRange
from .initial_state import Start
from .outputs import Output, Outputs
from .past_watermarks import past_watermarks
from .replay import Replay, ReplayCallbacks, one_by_one
from .shard_replay import ReplayCounts, ReplayedBatch, ShardReplayer

REMEMBERED = 100
"""The number of a key's newest events that are remembered for the results of an aggregator."""


class Contribution(NamedTuple):
    """An event that led to an output.

    Args:
        place: its place; None for an event that was held back for long.
        event: the record.
    """

    place: EventPlace | None
    event: Any


@dataclass(frozen=True)
class Explanation:
    """What led to an output.

    Args:
        processor: the processor that wrote it.
        output: the output.
        method: the method that returned it.
        argument: the event or the timer; of an aggregator, the value.
        inputs: the event; of an aggregator, the key's newest events of the window, in the replayed range.
        before: the state before the call; None for a processor without states of its own.
        after: the state after it.
    """

    processor: type[Processor]
    output: Output
    method: str
    argument: Any
    inputs: Sequence[Contribution]
    before: Any = None
    after: Any = None


@dataclass(frozen=True)
class Question:
    """A question for the inputs of an output.

    Args:
        bus: the bus of the processors.
        source: returns the source of a processor's events.
        start: the states to begin with.
        span: the range of input events, by their arrival.
        report: receives the progress, as text.
    """

    bus: Bus
    source: Callable[[Processor], EventSource]
    start: Start
    span: PastRange
    report: Callable[[str], None] = lambda _: None

    def last_output(self, processor: type[Processor], is_wanted: Callable[[Output], bool]) -> Explanation | None:
        """Return what led to the last wanted output of a processor; None if it writes none in the range.

        Raises:
            ReplayRefused: calls of such a processor cannot be followed, or events have expired.
            ReplayStopped: a worker would stop at an event.
        """
        expect_explainable(processor)
        self.report(f"Replaying {processor.name} …")
        with (
            ending(open_processor(processor, self.bus)) as running,
            past_watermarks(running, self.bus) as watermarks,
        ):
            watch = _Watch(processor, is_wanted)
            hook_calls(running, watch.around)
            numbers = range(plan_of(processor).inputs[0].buckets)
            shards = Replay(running, self.source(running), self.span, self.start, numbers, watermarks).shards()
            callbacks, counts = ReplayCallbacks(watch=watch.record, playing=watch.follow), ReplayCounts()
            with closing(one_by_one(shards, lambda shard: shard.play(counts, callbacks))) as batches:
                for _ in batches:
                    pass  # the watch sees the outputs of each call
        return watch.found

    def upstream(self, explanation: Explanation, processors: Iterable[type[Processor]]) -> Iterator[Explanation]:
        """Yield what led to the input of an explanation, then to the input of that, up to the first processor of the app."""
        writers = list(processors)
        place, event = next(iter(explanation.inputs[-1:]), Contribution(None, None))
        while place is not None:
            writer = next((each for each in writers if _writes(each, place.category)), None)
            if writer is None:
                return
            until = datetime.fromtimestamp(place.arrived_ms / 1000, UTC) + timedelta(milliseconds=1)
            question = replace(self, span=PastRange(self.span.since, until))
            found = question.last_output(writer, lambda output, event=event: bool(output.record == event))  # type: ignore[misc]  # a default binds the loop's value
            if found is None:
                self.report(
                    f"{writer.name} did not write this event in the range; --from with an earlier time may find it."
                )
                return
            yield found
            place, event = next(iter(found.inputs[-1:]), Contribution(None, None))
            writers.remove(writer)  # a cycle ends


def expect_explainable(processor: type[Processor]) -> None:
    """Refuse a processor whose calls cannot be followed.

    Raises:
        ReplayRefused: it is such a processor.
    """
    if issubclass(processor, Pipe):
        raise ReplayRefused(
            f"{processor.__name__} cannot be explained: the outputs of a program do not name the lines that led to them. Nothing was read. "
            "`penstock replay` shows its outputs."
        )


def _writes(processor: type[Processor], category: str) -> bool:
    return any(output.name == category for output in plan_of(processor).outputs)


class _Watch:
    """Looks at the outputs of each call of the processor, and remembers the last wanted one."""

    def __init__(self, processor: type[Processor], is_wanted: Callable[[Output], bool]) -> None:
        self._processor = processor
        self._is_wanted = is_wanted
        self._outputs = Outputs(processor)
        self._places = EventPlaces()
        self._events: dict[str, deque[tuple[int, Contribution]]] = defaultdict(lambda: deque(maxlen=REMEMBERED))
        """The newest events of each key with their event times, for an aggregator."""
        self._playing: ShardReplayer | None = None
        self.found: Explanation | None = None

    def record(self, events: SourceEvents) -> None:
        """Remember the events that are processed next."""
        self._places.record(events)
        if not issubclass(self._processor, Aggregator) or not events.events:
            return
        category = events.category
        keys, times = category.keys_of(events.events), category.event_times_of(events.events)
        for at, (key, time) in enumerate(zip(keys, times, strict=True)):
            place = EventPlace(category.name, events.number, events.offsets[at], events.arrived_ms[at])
            self._events[key].append((time, Contribution(place, events.events[at])))

    def follow(self, shard: ShardReplayer) -> None:
        """Remember the current shard."""
        self._playing = shard

    def around(self, call: Call, make: Callable[[], Any]) -> Any:
        """Make a call, and look at its outputs."""
        result = make()
        if call.method == "observe":
            return result
        if call.method == "result":
            self._look(call, [] if result is None else [result])
            return result
        if issubclass(self._processor, Stateful):
            if isinstance(result, tuple) and len(result) == 2:
                result = result[0], list(result[1])
                self._look(call, result[1], before=call.arguments[1], after=result[0])
            return result
        result = list(result)
        self._look(call, result)
        return result

    def _look(self, call: Call, outputs: list[Any], *, before: Any = None, after: Any = None) -> None:
        if not outputs or self._playing is None or not self._playing.is_warm:
            return
        batch = ReplayedBatch(self._playing.number, 0, outputs, state_only=False)
        for output in self._outputs.of(batch):
            if self._is_wanted(output):
                argument = call.arguments[2] if call.method == "result" else call.arguments[0]
                self.found = Explanation(
                    self._processor, output, call.method, argument, self._inputs(call), before, after
                )

    def _inputs(self, call: Call) -> list[Contribution]:
        if call.method == "result":
            window = call.arguments[1]
            return [each for time, each in self._events[call.key] if window.start <= time < window.end]
        place = self._places.of(call.arguments[0])
        return [] if place is None else [Contribution(place, call.arguments[0])]
