"""The trace context of outputs: the headers of W3C Trace Context, from the event that caused an output.

processed batch --EventTracer--> a trace context for each output --with_trace_contexts--> messages
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ....processors.declare import MessageHeaders
from ....processors.operators import NO_EVENT
from ....processors.shard import AcceptedBatch, RejectedEvent
from ....transport import Outgoing, RawBatch

TRACE_PARENT = "traceparent"
TRACE_HEADERS = frozenset({TRACE_PARENT, "tracestate"})


class ProcessedBatch(NamedTuple):
    """A batch that a processor has just processed.

    Args:
        batch: the messages.
        accepted: the events of the batch.
        rejected: the rejected events in order; if the worker stops at one, it is the last, and later events were not processed.
        causes: for each output, the index of its event or `NO_EVENT`; None if the processor declares no `trace_context`.
        took_s: the duration of the processing.
    """

    batch: RawBatch
    accepted: AcceptedBatch
    rejected: Sequence[RejectedEvent]
    causes: Sequence[int] | None
    took_s: float

    @property
    def timer_outputs(self) -> int:
        """The number of outputs of timers between the events."""
        return sum(cause == NO_EVENT for cause in self.causes or ())

    def contexts_of_outputs(
        self, contexts: Sequence[MessageHeaders | None], of_timers: MessageHeaders | None = None
    ) -> Sequence[MessageHeaders | None] | None:
        """Return the trace context of each output, from those of the messages and of timers; None if no output has one."""
        if not self.causes or not (any(contexts) or of_timers):
            return None
        at = self.accepted.at
        return [of_timers if cause == NO_EVENT else contexts[at[cause]] for cause in self.causes]


@dataclass
class SpanMetrics:
    """The spans of a worker since its start. Each count has a single writing thread.

    Args:
        ended: spans of processed events, and of timers.
        exported: spans that the receiver has accepted.
        failed: spans whose export failed.
        dropped: spans without a place in the queue; at the end of the worker, also spans that were still in it.
    """

    ended: int = 0
    exported: int = 0
    failed: int = 0
    dropped: int = 0

    @property
    def lost(self) -> int:
        """The number of spans that no receiver has."""
        return self.failed + self.dropped

    @property
    def pending(self) -> int:
        """The number of spans in the queue."""
        return self.ended - self.exported - self.lost


Contexts = Sequence["MessageHeaders | None"] | None
"""The trace context of each output; None if no output has one."""
_NO_CONTEXTS: AbstractContextManager[Contexts] = nullcontext(None)


class EventTracer(Protocol):
    """Traces the events and timers of one worker. Called for each batch or firing whose outputs count, in one thread.

    A block contains the sending of the outputs, and gets the trace context of each output, None for an output without one; or None if no output
    has one. An exception in the block means that the outputs were refused.
    """

    @property
    def metrics(self) -> SpanMetrics | None:
        """The worker's spans; None for a tracer without spans."""
        ...

    def batch(self, processed: ProcessedBatch) -> AbstractContextManager[Contexts]:
        """Trace a processed batch."""
        ...

    def timers(self, bucket: int, outputs: int) -> AbstractContextManager[Contexts]:
        """Trace timers, schedules and windows of a bucket that became due together, by the number of their outputs."""
        ...


class ContextForwarder:
    """Forwards the trace headers of an event unchanged to its outputs, and creates no spans."""

    metrics: SpanMetrics | None = None

    def batch(self, processed: ProcessedBatch) -> AbstractContextManager[Contexts]:
        """Forward the trace headers of each output's event."""
        if not processed.causes:
            return _NO_CONTEXTS
        return nullcontext(
            processed.contexts_of_outputs([trace_context(headers) for headers in processed.batch.headers()])
        )

    def timers(self, bucket: int, outputs: int) -> AbstractContextManager[Contexts]:  # noqa: ARG002 - the protocol
        """Forward nothing: no event caused these outputs."""
        return _NO_CONTEXTS


CONTEXT_FORWARDER = ContextForwarder()
"""The tracer of workers without spans."""


def with_trace_contexts(messages: Iterable[Outgoing], contexts: Iterable[MessageHeaders | None]) -> Iterator[Outgoing]:
    """Add a trace context to each message, except where the record itself has one."""
    for message, context in zip(messages, contexts, strict=True):
        own = message.headers or ()
        if context is None or any(name in TRACE_HEADERS for name, _ in own):
            yield message
        else:
            yield message._replace(headers=[*own, *context])


def trace_context(headers: MessageHeaders | None) -> MessageHeaders | None:
    """Return the trace headers of a message; None without a `traceparent`, since a `tracestate` alone has no meaning."""
    found = [header for header in headers or () if header[0] in TRACE_HEADERS]
    return found if any(name == TRACE_PARENT for name, _ in found) else None
