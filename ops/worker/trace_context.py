"""The trace context of outputs: the headers of W3C Trace Context, forwarded unchanged from the event that caused an output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ...processors.declare.codecs import Headers
from ...processors.operators.base import NO_EVENT
from ...processors.shard.batches import AcceptedBatch
from ...transport.messages import Outgoing, RawBatch

TRACE_PARENT = "traceparent"
TRACE_HEADERS = frozenset({TRACE_PARENT, "tracestate"})


def trace_contexts(
    batch: RawBatch, accepted: AcceptedBatch, causes: Sequence[int] | None
) -> Sequence[Headers | None] | None:
    """Return the trace context of each output.

    Args:
        batch: the messages.
        accepted: the events of the batch.
        causes: for each output, the index of its event or `NO_EVENT`; None if the processor declares no `trace_context`.

    Returns:
        The trace headers of each output's event, None for an output without a trace context; or None if no output has one.
    """
    if not causes:
        return None
    contexts = [_trace_context(headers) for headers in batch.headers()]
    if not any(contexts):
        return None
    return [None if cause == NO_EVENT else contexts[accepted.at[cause]] for cause in causes]


def with_trace_contexts(messages: Iterable[Outgoing], contexts: Iterable[Headers | None]) -> Iterator[Outgoing]:
    """Add a trace context to each message, except where the record itself has one."""
    for message, context in zip(messages, contexts, strict=True):
        own = message.headers or ()
        if context is None or any(name in TRACE_HEADERS for name, _ in own):
            yield message
        else:
            yield message._replace(headers=[*own, *context])


def _trace_context(headers: Headers | None) -> Headers | None:
    """Return the trace headers of a message; None without a `traceparent`, since a `tracestate` alone has no meaning."""
    found = [header for header in headers or () if header[0] in TRACE_HEADERS]
    return found if any(name == TRACE_PARENT for name, _ in found) else None
