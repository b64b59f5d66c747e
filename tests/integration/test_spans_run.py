"""Spans of real workers on Kafka, as a receiver of OTLP over HTTP gets them; and of deployed workers."""

from __future__ import annotations

from collections import Counter

import pytest
from confluent_kafka import Producer
from support.cli import Cli

from penstock.ops.shell import free_port

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs penstock[otel]")

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from support.otlp_receiver import OtlpReceiver, otlp_receiver

APP = """
import penstock as ps

class Click(ps.Record, frozen=True):
    user: str
    at: ps.EventTime

clicks, copies, counts = (ps.Category("{prefix}." + name, Click, key="user", event_time="at", buckets=1) for name in ("clicks", "copies", "counts"))

class Copies(ps.Stateless):
    name, reads, writes, trace_context = "{prefix}.copies", clicks, copies, True

    def process(self, event):
        return [event]

class Counts(ps.Stateful):
    name, reads, writes, state, trace_context = "{prefix}.counts", copies, counts, int, True
    output_semantics = ps.Semantics.EXACTLY_ONCE
    on_error = ps.ErrorPolicy.DEAD_LETTER

    def process(self, event, state, context):
        if event.at % 10 == 0:
            raise ValueError("ten")
        return (state or 0) + 1, [event]
"""

EVENTS, BEGIN_MS = 30, 1_700_000_000_000


def test_the_spans_of_a_producer_and_two_processors_form_one_trace(cli: Cli, kafka: str, prefix: str) -> None:
    """Each sampled event has one, and other events have no spans. The processes of an app export their own spans before they end."""
    with otlp_receiver() as receiver:
        produce(kafka, prefix, cli, receiver)
        done = cli("run", "app.py", "--until-end", "--traces", OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint)
        assert done.returncode == 0, done.stderr
    sent, copied, counted = (receiver.spans[name] for name in ("shop", f"{prefix}.copies", f"{prefix}.counts"))

    assert (len(sent), len(copied), len(counted)) == (EVENTS // 2, EVENTS // 2, EVENTS // 2)
    assert links(sent, copied) == links(copied, counted) == Counter({True: EVENTS // 2})
    assert len({span.trace_id for span in counted}) == EVENTS // 2
    assert {span.name for span in counted} == {f"process {prefix}.copies"}
    assert {span.kind for span in counted} == {Span.SPAN_KIND_CONSUMER}
    failed = [span for span in counted if span.status.code == Status.STATUS_CODE_ERROR]
    assert [span.events[0].name for span in failed] == ["exception"] * 3


def test_a_worker_without_a_receiver_processes_its_events(cli: Cli, kafka: str, prefix: str) -> None:
    """It reports the failure once, ends in time, and says how many spans were not exported."""
    with otlp_receiver() as receiver:
        produce(kafka, prefix, cli, receiver)
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    done = cli("run", "app.py:Copies", "--until-end", "--traces", OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)

    assert done.returncode == 0, done.stderr
    assert f"{EVENTS} events in, {EVENTS} out" in done.stderr
    assert f"{EVENTS // 2} spans, {EVENTS // 2} not exported" in done.stderr
    assert done.stderr.count(f"Spans cannot be exported to {endpoint}: Transient error") == 1
    assert done.stderr.count("Transient error") == 1
    assert f"Did not export {EVENTS // 2} of {EVENTS // 2} spans." in done.stderr


def test_a_deployment_passes_its_variables_and_the_flag_on(cli: Cli, prefix: str) -> None:
    """The flag may be a variable, too. Values of variables, which may be keys, are not shown."""
    (cli.folder / "app.py").write_text(APP.replace("{prefix}", prefix))
    cli.ok("category", "create", "app.py")
    variables = {"PENSTOCK_TRACES": "1", "OTEL_EXPORTER_OTLP_HEADERS": "key=secret"}
    done = cli("deploy", "app.py:Copies", "--dry-run", **variables)

    assert done.returncode == 0, done.stderr
    assert "--traces" in done.stdout
    assert "with the value of OTEL_EXPORTER_OTLP_HEADERS" in done.stdout
    assert "secret" not in done.stdout + done.stderr
    assert "OTEL" not in cli.ok("deploy", "app.py:Copies", "--dry-run")


def produce(kafka: str, prefix: str, cli: Cli, receiver: OtlpReceiver) -> None:
    """Create the app and its categories, and write clicks. Every second one has a sampled span of the service `shop`."""
    (cli.folder / "app.py").write_text(APP.replace("{prefix}", prefix))
    cli.ok("category", "create", "app.py")
    provider = TracerProvider(resource=Resource({"service.name": "shop"}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{receiver.endpoint}/v1/traces")))
    producer = Producer({"bootstrap.servers": kafka})
    for at in range(EVENTS):
        value = f'{{"user": "u{at % 4}", "at": {BEGIN_MS + at}}}'
        fields: dict[str, str] = {}
        if at % 2 == 0:
            with provider.get_tracer("shop").start_as_current_span(f"send {prefix}.clicks", kind=SpanKind.PRODUCER):
                TraceContextTextMapPropagator().inject(fields)
        headers: list[tuple[str, str | bytes | None]] = [(name, text.encode()) for name, text in fields.items()]
        producer.produce(f"{prefix}.clicks", value, f"u{at % 4}", headers=headers)
    assert producer.flush(30) == 0
    provider.shutdown()


def links(parents: list[Span], children: list[Span]) -> Counter[bool]:
    """Count the children that have a parent of their own among the parents, in the same trace."""
    by_id = {span.span_id: span.trace_id for span in parents}
    taken = Counter(span.parent_span_id for span in children)
    return Counter(
        by_id.get(span.parent_span_id) == span.trace_id and taken[span.parent_span_id] == 1 for span in children
    )
