"""Spans of events, as OpenTelemetry defines them: one for each sampled event that a worker processes, and one for timers that become due together.

headers of an event --parent--> span --context--> headers of its outputs

Names and attributes follow OpenTelemetry's semantic conventions for messaging, also those for Kafka (version 1.44).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import DEFAULT_OFF, ParentBased
from opentelemetry.trace import Span, SpanKind, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from .... import __version__
from ....processors.declare import MessageHeaders, Processor
from ....transport import RawBatch
from .trace_context import TRACE_PARENT, Contexts, ProcessedBatch, SpanMetrics, trace_context

_UNSAMPLED = re.compile(rb"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f][02468ace]")
"""A `traceparent` whose trace is not sampled."""
_PROPAGATOR = TraceContextTextMapPropagator()


class SpanTracer:
    """Creates a span for each sampled event, and gives the context of the span to the outputs of the event.

    All spans of a batch begin and end with the batch: the processor processes its events together. Events that the sampler cannot sample
    cost no more than a look at their headers.

    Args:
        processor: processes the events.
        provider: samples and receives the spans.
        metrics: the worker's spans, which the provider counts.
        now_ns: nanoseconds since 1970, UTC.
    """

    def __init__(
        self,
        processor: type[Processor],
        provider: TracerProvider,
        metrics: SpanMetrics,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._processor = processor.name
        self._forwards = processor.trace_context
        self._tracer = provider.get_tracer("penstock", __version__)
        self._samples_roots = provider.sampler is not DEFAULT_OFF
        self._samples_children_of_unsampled = not isinstance(provider.sampler, ParentBased)
        self._now_ns = now_ns
        self.metrics: SpanMetrics | None = metrics

    @contextmanager
    def batch(self, processed: ProcessedBatch) -> Iterator[Contexts]:
        """Create the spans of a batch. They end when its outputs were sent, or with the error if they were refused."""
        contexts = [trace_context(headers) for headers in processed.batch.headers()]
        candidates = [at for at in _processed_messages(processed) if self._may_be_sampled(contexts[at])]
        begin_ns = self._now_ns() - int(processed.took_s * 1e9)
        spans = self._replace_by_spans(contexts, candidates, processed, begin_ns) if candidates else []
        of_timers = self._span_of_timers(processed.batch.bucket.number, processed.timer_outputs, begin_ns)
        with self._ended([*spans, *of_timers]):
            yield processed.contexts_of_outputs(contexts, _headers_of(of_timers[0]) if of_timers else None)

    @contextmanager
    def timers(self, bucket: int, outputs: int) -> Iterator[Contexts]:
        """Create the span of timers, schedules and windows that became due together."""
        spans = self._span_of_timers(bucket, outputs, self._now_ns())
        with self._ended(spans):
            yield [_headers_of(spans[0])] * outputs if spans and self._forwards else None

    def _span_of_timers(self, bucket: int, outputs: int, begin_ns: int) -> list[Span]:
        """Return an open span that has no parent, if the sampler samples it."""
        if not (outputs and self._samples_roots):
            return []
        attributes: dict[str, str | int] = {
            "penstock.processor": self._processor,
            "penstock.bucket": bucket,
            "penstock.outputs": outputs,
        }
        span = self._tracer.start_span(
            f"timers {self._processor}", Context(), SpanKind.INTERNAL, attributes, start_time=begin_ns
        )
        return [span] if span.is_recording() else []

    @contextmanager
    def _ended(self, spans: Sequence[Span]) -> Iterator[None]:
        """End spans after a block, with its exception as their error."""
        try:
            yield
        except BaseException as error:
            for span in spans:
                _record_error(span, str(error), error, self._now_ns())
            raise
        finally:
            end_ns = self._now_ns()
            for span in spans:
                span.end(end_ns)

    def _may_be_sampled(self, context: MessageHeaders | None) -> bool:
        if context is None:
            return self._samples_roots
        return self._samples_children_of_unsampled or not _has_unsampled_parent(context)

    def _replace_by_spans(
        self, contexts: list[MessageHeaders | None], candidates: Sequence[int], processed: ProcessedBatch, begin_ns: int
    ) -> list[Span]:
        """Create the spans of messages that the sampler samples, and replace the trace contexts of these messages."""
        rejections, spans = {event.at: event for event in processed.rejected}, list[Span]()
        for at, span in self._spans(contexts, candidates, processed.batch, begin_ns):
            if at in rejections:
                _record_error(span, rejections[at].reason, rejections[at].cause, self._now_ns())
            spans.append(span)
            contexts[at] = _headers_of(span)
        return spans

    def _spans(
        self, contexts: Sequence[MessageHeaders | None], candidates: Sequence[int], batch: RawBatch, begin_ns: int
    ) -> Iterator[tuple[int, Span]]:
        """Yield the index of each message that the sampler samples, and its open span."""
        name, attributes, offsets = f"process {batch.bucket.category}", self._attributes(batch), batch.offsets()
        for at in candidates:
            span = self._tracer.start_span(
                name,
                _parent_of(contexts[at]),
                SpanKind.CONSUMER,
                {**attributes, "messaging.kafka.offset": offsets[at]},
                start_time=begin_ns,
            )
            if span.is_recording():
                yield at, span

    def _attributes(self, batch: RawBatch) -> dict[str, str | int]:
        return {
            "messaging.system": "kafka",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": batch.bucket.category,
            "messaging.destination.partition.id": str(batch.bucket.number),
            "messaging.consumer.group.name": self._processor,
            "penstock.processor": self._processor,
        }


def _processed_messages(processed: ProcessedBatch) -> range:
    """Return the indexes of the messages that were processed or rejected: all, or those up to the one that stops the worker."""
    rejected = processed.rejected
    return range(rejected[-1].at + 1 if rejected and rejected[-1].stops else len(processed.batch.messages))


def _has_unsampled_parent(context: MessageHeaders) -> bool:
    return any(name == TRACE_PARENT and _UNSAMPLED.fullmatch(value or b"") for name, value in context)


def _parent_of(context: MessageHeaders | None) -> Context:
    """Return the context of the span that a message names as its parent; an empty one without a valid parent."""
    fields: dict[str, list[str]] = {}
    for name, value in context or ():
        fields.setdefault(name, []).append((value or b"").decode("latin-1"))
    return _PROPAGATOR.extract(fields, Context())


def _headers_of(span: Span) -> MessageHeaders:
    fields: dict[str, str] = {}
    _PROPAGATOR.inject(fields, set_span_in_context(span, Context()))
    return [(name, value.encode()) for name, value in fields.items()]


def _record_error(span: Span, reason: str, cause: BaseException | None, at_ns: int) -> None:
    """Set the status of a span to the reason of an error, and add its exception."""
    span.set_status(StatusCode.ERROR, reason)
    if cause is None:
        span.set_attribute("error.type", "_OTHER")  # the value of the conventions for an error without a class
        return
    span.set_attribute("error.type", type(cause).__qualname__)
    span.record_exception(cause, timestamp=at_ns)
