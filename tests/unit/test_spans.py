"""Spans of processed events, their parents, and their export."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any, ClassVar

import pytest

import penstock as ps
from penstock.ops.deploy import DeploymentSettings, Version, run_arguments
from penstock.ops.deploy.environment import opentelemetry_variables
from penstock.ops.deploy.version import VersionShape
from penstock.ops.kernel import Driver, Worker, expect_traces_installed
from penstock.ops.kernel.checkpoint.output_writer import OutputRefused
from penstock.ops.kernel.loop import WorkerConfig
from penstock.ops.kernel.process.traces import TracesUnavailable
from penstock.ops.kernel.telemetry.exposition import WorkerCollector, exposition
from penstock.ops.kernel.telemetry.metrics import Metrics
from penstock.ops.kernel.telemetry.trace_context import SpanMetrics
from penstock.ops.kernel.testing import YEAR_2100_MS, InlineExecutor
from penstock.processors.declare import MessageHeaders
from penstock.processors.operators import merge_of
from penstock.state import MemoryStateFolder
from penstock.transport import Bucket, Outgoing

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs penstock[otel]")

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from penstock.ops.kernel.telemetry.span_export import CountingExporter, ExportLog, TracesMisconfigured, exported_spans

SAMPLED, UNSAMPLED = f"00-{7:032x}-{5:016x}-01", f"00-{8:032x}-{6:016x}-00"
NANOSECONDS = 1_000_000_000


class Order(ps.Record, frozen=True):
    """An order of a user."""

    user: str
    at: ps.EventTime


class Part(Order, frozen=True):
    """A part of an order."""


orders = ps.Category("orders", Order, key="user", event_time="at", buckets=2)
parts = ps.Category("parts", Part, key="user", event_time="at", buckets=2)
copies = ps.Category("copies", Order, key="user", event_time="at", buckets=2)


class Split(ps.Stateless[Order, Part]):
    """Writes two parts of an order; raises for negative times."""

    reads, writes, trace_context = orders, parts, True
    on_error = ps.ErrorPolicy.DEAD_LETTER

    def process(self, event: Order) -> Iterable[Part]:
        """Split an order."""
        if event.at < 0:
            raise ValueError("negative")
        return [Part(event.user, event.at), Part(event.user, event.at)]


class Count(ps.Stateful[Part, int, Order]):
    """Counts parts: the second processor of a chain."""

    reads, writes, state, trace_context = parts, copies, int, True

    def process(self, event: Part, state: int | None, context: ps.Context) -> tuple[int, list[Order]]:
        """Count a part."""
        return (state or 0) + 1, [Order(event.user, event.at)]


class Totals(ps.Aggregator):
    """Counts orders; its results have no single event."""

    reads, monoid = orders, ps.monoids.Count()

    def observe(self, event: Order) -> int:
        """Count an order."""
        return 1


class Collected(InMemorySpanExporter):
    """Keeps the spans of several workers, of which each shuts it down."""

    def shutdown(self) -> None:
        """Continue for the other workers."""


@contextmanager
def traced(
    *processors: type[ps.Processor], exporter: SpanExporter, flush_limit_s: float = 5.0
) -> Iterator[tuple[Driver, Callable[[], None]]]:
    """Yield a driver whose workers export spans, and a function that traces its restarted workers."""
    driver = Driver(processors)
    with ExitStack() as stack:
        tracers = {each: stack.enter_context(exported_spans(each, exporter, flush_limit_s)) for each in processors}

        def start() -> None:
            for each in processors:
                config = WorkerConfig(driver.bus, MemoryStateFolder(merge_of(each())), "driver", tracer=tracers[each])
                driver._workers[each] = Worker(
                    driver._processors[each], config, InlineExecutor(), InlineExecutor(), clock=driver.clock
                )

        start()
        yield driver, start


def send(driver: Driver, parents: Sequence[str | None], at: int = 1, value: bytes | None = None) -> None:
    """Write an order for each parent, and process them in one batch."""
    payload = json.dumps({"user": "ann", "at": at}).encode() if value is None else value
    for parent in parents:
        headers: MessageHeaders | None = None if parent is None else [("traceparent", parent.encode()), ("other", b"x")]
        driver.bus.writer().send("orders", [Outgoing(b"ann", payload, orders.bucket_of("ann"), headers)])
    driver.run()


def parents_in(driver: Driver, category: ps.Category[Any]) -> list[str | None]:
    """Return the `traceparent` of each message."""
    ends = driver.bus.describe(category.name).ends
    messages = [one for number, end in ends.items() for one in driver.bus.slice(Bucket(category.name, number), 0, end)]
    return [(dict(one.headers() or ()).get("traceparent") or b"").decode() or None for one in messages]


def traceparent(span: ReadableSpan) -> str:
    """Return the `traceparent` of a span. The flags of a root span also say that the id of its trace is random."""
    assert span.context is not None
    return f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-{span.context.trace_flags:02x}"


def parent_id(span: ReadableSpan) -> int | None:
    """Return the id of a span's parent."""
    return None if span.parent is None else span.parent.span_id


def span_id(span: ReadableSpan) -> int:
    """Return the id of a span."""
    assert span.context is not None
    found: int = span.context.span_id
    return found


def of_processor(exporter: Collected, processor: type[ps.Processor]) -> list[ReadableSpan]:
    """Return the exported spans of a processor."""
    spans = exporter.get_finished_spans()
    return [span for span in spans if (span.attributes or {})["penstock.processor"] == processor.name]


def test_spans_of_two_processors_form_one_trace() -> None:
    """The first processor's span is a child of the producer's span and the parent of the second one's. Outputs have the last context."""
    exporter = Collected()
    with traced(Split, Count, exporter=exporter) as (driver, _):
        send(driver, [SAMPLED])
    [split], counted = of_processor(exporter, Split), of_processor(exporter, Count)

    assert {span.context.trace_id for span in (split, *counted) if span.context} == {7}
    assert parent_id(split) == 5
    assert [parent_id(span) for span in counted] == [span_id(split)] * 2
    assert parents_in(driver, parts) == [traceparent(split)] * 2
    assert parents_in(driver, copies) == [traceparent(span) for span in counted]


def test_a_span_has_the_names_of_the_messaging_conventions() -> None:
    """Its kind, name and attributes are those that tools for Kafka expect; its service is the processor."""
    exporter = Collected()
    before_ns = time.time_ns()
    with traced(Split, exporter=exporter) as (driver, _):
        send(driver, [None, SAMPLED])
    [span] = exporter.get_finished_spans()

    assert (span.name, span.kind, span.status.status_code) == ("process orders", SpanKind.CONSUMER, StatusCode.UNSET)
    assert dict(span.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": str(orders.bucket_of("ann")),
        "messaging.consumer.group.name": "split",
        "messaging.kafka.offset": 1,
        "penstock.processor": "split",
    }
    assert span.resource.attributes["service.name"] == "split"
    assert span.start_time is not None
    assert span.end_time is not None
    assert before_ns <= span.end_time <= time.time_ns()
    assert 0 <= span.end_time - span.start_time < 60 * NANOSECONDS


def test_the_service_name_is_configurable(monkeypatch: pytest.MonkeyPatch) -> None:
    """OTEL_SERVICE_NAME takes precedence over the name of the processor."""
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
    exporter = Collected()
    with traced(Split, exporter=exporter) as (driver, _):
        send(driver, [SAMPLED])
    [span] = exporter.get_finished_spans()

    assert span.resource.attributes["service.name"] == "shop"


def test_the_state_of_a_trace_goes_on_with_the_span() -> None:
    """`tracestate` belongs to the vendors of a trace, so outputs have it beside the span."""
    exporter = Collected()
    with traced(Split, exporter=exporter) as (driver, _):
        headers: MessageHeaders = [("traceparent", SAMPLED.encode()), ("tracestate", b"vendor=1")]
        value = json.dumps({"user": "ann", "at": 1}).encode()
        driver.bus.writer().send("orders", [Outgoing(b"ann", value, orders.bucket_of("ann"), headers)])
        driver.run()
    [span] = exporter.get_finished_spans()
    [message, _] = driver.bus.slice(Bucket("parts", parts.bucket_of("ann")), 0, 2)

    assert message.headers() == [("traceparent", traceparent(span).encode()), ("tracestate", b"vendor=1")]


@pytest.mark.parametrize(
    ("sampler", "sampled"),
    [
        (None, [SAMPLED]),
        ("parentbased_always_off", [SAMPLED]),
        ("parentbased_always_on", [SAMPLED, None, "broken"]),
        ("always_on", [SAMPLED, UNSAMPLED, None, "broken"]),
        ("always_off", []),
    ],
)
def test_the_configured_sampler_decides(
    monkeypatch: pytest.MonkeyPatch, sampler: str | None, sampled: list[str | None]
) -> None:
    """By default, only events with a sampled parent have spans. The contexts of other events are forwarded unchanged."""
    monkeypatch.delenv("OTEL_TRACES_SAMPLER", raising=False)
    if sampler is not None:
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    parents = [SAMPLED, UNSAMPLED, None, "broken"]
    exporter = Collected()
    with traced(Split, exporter=exporter) as (driver, _):
        send(driver, parents)
    spans = {int((span.attributes or {})["messaging.kafka.offset"]): span for span in exporter.get_finished_spans()}  # type: ignore[arg-type]  # an integer

    assert [parents[at] for at in sorted(spans)] == sampled
    expected = [traceparent(spans[at]) if at in spans else parent for at, parent in enumerate(parents)]
    assert parents_in(driver, parts) == [context for context in expected for _ in range(2)]
    assert all(parent_id(spans[at]) == (None if at > 1 else 5 + at) for at in spans)


def test_a_processor_without_trace_context_has_spans_but_writes_no_context() -> None:
    """The trace ends in it."""
    exporter = Collected()
    plain = type("Split", (Split,), {"trace_context": False})
    with traced(plain, exporter=exporter) as (driver, _):
        send(driver, [SAMPLED])

    assert [parent_id(span) for span in exporter.get_finished_spans()] == [5]
    assert parents_in(driver, parts) == [None, None]


def test_an_aggregator_has_spans() -> None:
    """Its events end their traces."""
    exporter = Collected()
    with traced(Totals, exporter=exporter) as (driver, _):
        send(driver, [SAMPLED, None, SAMPLED])

    assert [parent_id(span) for span in exporter.get_finished_spans()] == [5, 5]


def test_the_span_of_a_dead_letter_has_the_error() -> None:
    """It is the exception of the processor, or the reason that a message does not decode. Spans of other events have no error."""
    exporter = Collected()
    with traced(Split, exporter=exporter) as (driver, _):
        send(driver, [SAMPLED], at=-1)
        send(driver, [SAMPLED], value=b"no JSON")
        send(driver, [SAMPLED])
    raised, undecodable, fine = exporter.get_finished_spans()

    assert len(driver.dead_letters(Split)) == 2
    assert raised.status.status_code is StatusCode.ERROR
    assert "negative" in str(raised.status.description)
    [event] = raised.events
    assert (event.name, (event.attributes or {})["exception.message"]) == ("exception", "negative")
    assert (raised.attributes or {})["error.type"] == "ValueError"
    assert undecodable.status.status_code is StatusCode.ERROR
    assert "does not decode" in str(undecodable.status.description)
    assert (fine.status.status_code, fine.events) == (StatusCode.UNSET, ())


def test_events_after_the_one_that_stops_the_worker_have_no_span() -> None:
    """They were not processed. The event itself has a span with the error."""
    exporter = Collected()
    stopping = type("Split", (Split,), {"on_error": ps.ErrorPolicy.STOP})
    with traced(stopping, exporter=exporter) as (driver, _):
        for at in (1, -1, 2):
            value = json.dumps({"user": "ann", "at": at}).encode()
            parent: MessageHeaders = [("traceparent", SAMPLED.encode())]
            driver.bus.writer().send("orders", [Outgoing(b"ann", value, orders.bucket_of("ann"), parent)])
        with pytest.raises(ps.errors.PenstockError, match="negative"):
            driver.run()

    assert [span.status.status_code for span in exporter.get_finished_spans()] == [StatusCode.UNSET, StatusCode.ERROR]


@pytest.mark.parametrize("semantics", [ps.Semantics.AT_LEAST_ONCE, ps.Semantics.EXACTLY_ONCE])
def test_an_event_that_is_processed_again_has_a_second_span_of_the_same_parent(semantics: ps.Semantics) -> None:
    """After a crash before the checkpoint, both attempts are in the trace; each output names its own attempt."""
    exporter = Collected()
    subject = type("Split", (Split,), {"output_semantics": semantics})
    with traced(subject, exporter=exporter) as (driver, restart):
        value = json.dumps({"user": "ann", "at": 1}).encode()
        parent: MessageHeaders = [("traceparent", SAMPLED.encode())]
        driver.bus.writer().send("orders", [Outgoing(b"ann", value, orders.bucket_of("ann"), parent)])
        while not driver.metrics(subject).events_in:
            driver._workers[subject].run_once()
        driver._discard_worker(subject)
        restart()
        driver.run()
    first, second = exporter.get_finished_spans()
    attempts = [second] if semantics is ps.Semantics.EXACTLY_ONCE else [first, second]

    assert (parent_id(first), parent_id(second)) == (5, 5)
    assert span_id(first) != span_id(second)
    assert parents_in(driver, parts) == [traceparent(attempt) for attempt in attempts for _ in range(2)]


def test_events_that_only_rebuild_a_state_have_no_second_span() -> None:
    """Their outputs are on the bus already, with the context of the first span."""
    exporter = Collected()
    with traced(Split, Count, exporter=exporter) as (driver, restart_without_state):
        send(driver, [SAMPLED])
        driver._discard_worker(Count)
        restart_without_state()
        driver.run()

    assert driver.metrics(Count).events_in == 2
    assert len(driver.read(copies)) == len(of_processor(exporter, Count)) == 2


class Refusing(SpanExporter):
    """Refuses all spans; may wait before."""

    def __init__(self, until: Event | None = None) -> None:
        self._until = until

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self._until is not None:
            self._until.wait(60)
        logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter").error("code: 401, reason: who?")
        return SpanExportResult.FAILURE

    def shutdown(self) -> None:
        if self._until is not None:
            self._until.set()


def metrics_of(driver: Driver, processor: type[ps.Processor]) -> dict[str, int]:
    """Return the counts of a worker's spans."""
    spans = driver.metrics(processor).spans
    assert spans is not None
    return {name: getattr(spans, name) for name in ("ended", "exported", "failed", "dropped")}


def test_failed_exports_are_counted_and_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker processes all events as usual. The line contains the reason, and the SDK logs nothing itself."""
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "10")
    with caplog.at_level(logging.INFO), traced(Split, exporter=Refusing()) as (driver, _):
        send(driver, [SAMPLED] * 35)

    assert metrics_of(driver, Split) == {"ended": 35, "exported": 0, "failed": 35, "dropped": 0}
    assert len(driver.read(parts)) == 70
    refused = [line for line in caplog.messages if "code: 401" in line]
    assert len(refused) == 1
    assert "http://localhost:4318: code: 401, reason: who?. Events are processed as usual." in refused[0]
    assert "Did not export 35 of 35 spans." in caplog.messages


def test_exported_spans_are_counted() -> None:
    """The worker's metrics for Prometheus and its summary contain the number."""
    with traced(Split, exporter=Collected()) as (driver, _):
        send(driver, [SAMPLED] * 3)
    metrics = driver.metrics(Split)

    assert metrics_of(driver, Split) == {"ended": 3, "exported": 3, "failed": 0, "dropped": 0}
    text = exposition(WorkerCollector(lambda: ("split", metrics))).text.decode()
    assert 'penstock_worker_spans_exported_total{processor="split"} 3.0' in text
    assert str(metrics).endswith("; 3 spans, 0 not exported")
    assert "spans" not in exposition(WorkerCollector(lambda: ("split", Metrics()))).text.decode()


def test_spans_beyond_the_queue_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow receiver costs bounded memory."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "20")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "5")
    with traced(Split, exporter=Refusing(until := Event())) as (driver, _):
        send(driver, [SAMPLED] * 50)
        assert metrics_of(driver, Split)["dropped"] == 30
        until.set()

    assert metrics_of(driver, Split) == {"ended": 50, "exported": 0, "failed": 20, "dropped": 30}


def test_the_end_of_a_worker_does_not_wait_for_a_hanging_receiver(caplog: pytest.LogCaptureFixture) -> None:
    """Its last spans are dropped after the limit, counted and reported."""
    with traced(Split, exporter=Refusing(Event()), flush_limit_s=0.2) as (driver, _):
        send(driver, [SAMPLED] * 3)

    # The receiver would refuse them after a minute.
    assert metrics_of(driver, Split) == {"ended": 3, "exported": 0, "failed": 0, "dropped": 3}
    assert any("http://localhost:4318: it did not answer." in line for line in caplog.messages)


def test_an_export_that_ends_after_the_worker_is_not_counted_again() -> None:
    """Its spans count as dropped already."""
    metrics = SpanMetrics(ended=1)
    exporter = CountingExporter(Refusing(), metrics, ExportLog())
    exporter.shutdown()
    exporter.export([ReadableSpan("process orders")])

    assert (metrics.failed, metrics.pending) == (0, 1)


def test_an_invalid_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused before anything is read."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "many")

    with pytest.raises(TracesMisconfigured, match=r"many.*Nothing was read"), exported_spans(Split):
        pass


def test_a_run_without_traces_loads_no_package_of_opentelemetry() -> None:
    """Workers that export no spans start as fast as before."""
    program = "import sys, penstock.ops.kernel.process.command, penstock.ops.deploy.commands.deploy; print([name for name in sys.modules if 'opentelemetry' in name])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error contains the command that installs it. Without --traces, no package is missing."""
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    for name in ("span_export", "span_tracer"):
        monkeypatch.delitem(sys.modules, f"penstock.ops.kernel.telemetry.{name}", raising=False)
    monkeypatch.delattr("penstock.ops.kernel.telemetry.span_export", raising=False)
    expect_traces_installed(traces=False)

    with pytest.raises(TracesUnavailable, match=r"opentelemetry\.sdk\.trace.*pip install 'penstock\[otel\]'"):
        expect_traces_installed(traces=True)


@pytest.mark.parametrize("traces", [True, False])
def test_deployed_workers_get_the_flag(tmp_path: Path, traces: bool) -> None:
    """Only the version that was deployed with the flag gets it."""
    settings = DeploymentSettings("kafka:9092", str(tmp_path), str(tmp_path), traces=traces)
    version = Version(1, "split", "app.py", "app.py", "Split", "digest", settings, VersionShape.of(Split), 0, "ann")

    assert ("--traces" in run_arguments(version, tmp_path, "8080")) == traces


def test_deployed_workers_get_the_variables_of_opentelemetry() -> None:
    """The workers get all that are set, since the key of a receiver may be among them."""
    environment = {"OTEL_EXPORTER_OTLP_HEADERS": "key=1", "OTEL_SERVICE_NAME": "", "PATH": "/bin"}

    assert opentelemetry_variables(environment) == {"OTEL_EXPORTER_OTLP_HEADERS"}


class Reminder(ps.Stateful[Order, int, Order]):
    """Writes a copy of an order a second after it, by the wall clock or by event time."""

    reads, writes, state, trace_context = orders, copies, int, True
    deterministic = False
    watermark = ps.watermarks.BoundedOutOfOrderness(timedelta())
    clock: ClassVar[ps.Clock] = ps.Clock.WALL

    def process(self, event: Order, state: int | None, context: ps.Context) -> tuple[int, list[Order]]:
        """Set the timer."""
        context.timer(YEAR_2100_MS + 1_000 if self.clock is ps.Clock.WALL else event.at + 1, clock=self.clock)
        return event.at, []

    def on_timer(self, timer: ps.Timer, state: int, context: ps.Context) -> tuple[None, list[Order]]:
        """Write the copy."""
        return None, [Order(context.key, state)]


class EventReminder(Reminder):
    """The same in event time: the next order fires the timer."""

    clock = ps.Clock.EVENT


@pytest.mark.parametrize("processor", [Reminder, EventReminder])
@pytest.mark.parametrize("sampler", ["parentbased_always_on", None])
def test_timers_that_become_due_together_have_a_span_if_the_sampler_begins_traces(
    processor: type[Reminder], sampler: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may become due between two events. Their outputs have its context, and outputs of events have the context of their event."""
    if sampler is not None:
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    exporter = Collected()
    with traced(processor, exporter=exporter) as (driver, _):
        send(driver, [UNSAMPLED], at=1)
        if processor is Reminder:
            driver.advance(2)
        else:
            send(driver, [UNSAMPLED], at=5)
        found = parents_in(driver, copies)
    spans = [span for span in exporter.get_finished_spans() if span.name.startswith("timers")]

    if sampler is None:
        assert (spans, found) == ([], [None])
    else:
        [span] = spans
        assert (span.name, span.kind, span.parent) == (f"timers {processor.name}", SpanKind.INTERNAL, None)
        assert span.attributes == {
            "penstock.processor": processor.name,
            "penstock.bucket": orders.bucket_of("ann"),
            "penstock.outputs": 1,
        }
        assert found == [traceparent(span)]


class Unfit(Split):
    """Returns records that no category accepts."""

    on_error = ps.ErrorPolicy.STOP

    def process(self, event: Order) -> Iterable[Any]:
        """Return the order itself."""
        return [event]


def test_refused_outputs_are_the_error_of_the_spans_of_their_batch() -> None:
    """No event of the batch took effect."""
    exporter = Collected()
    with traced(Unfit, exporter=exporter) as (driver, _), pytest.raises(OutputRefused):
        send(driver, [SAMPLED, SAMPLED])
    spans = of_processor(exporter, Unfit)

    assert len(spans) == 2
    for span in spans:
        assert span.status.status_code is StatusCode.ERROR
        assert "Order" in str(span.status.description)
        assert span.attributes is not None
        assert span.attributes["error.type"] == "OutputRefused"
