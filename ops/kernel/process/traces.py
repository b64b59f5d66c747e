"""Spans of a run: their tracer, and the check of the packages that they need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ....processors import PenstockError
from ....processors.declare import Processor
from ..telemetry import CONTEXT_FORWARDER, EventTracer


class TracesUnavailable(PenstockError):
    """A package of OpenTelemetry is not installed."""


def expect_traces_installed(*, traces: bool) -> None:
    """Raise TracesUnavailable if a run with spans would lack a package."""
    if traces:
        expect_otel_installed("--traces")


def expect_otel_installed(option: str) -> None:
    """Raise TracesUnavailable if a package that an option needs is missing."""
    try:
        from ..telemetry import span_export  # noqa: F401, PLC0415 - an extra, which only workers with spans need
    except ModuleNotFoundError as error:
        raise TracesUnavailable(
            f"{option} needs the package {error.name}, which is not installed. Nothing was started. Install it with `pip install "
            f"'penstock[otel]'`, or leave {option} out."
        ) from error


@contextmanager
def event_tracer(processor: type[Processor], *, traces: bool) -> Iterator[EventTracer]:
    """Yield the tracer of a worker: with spans, which are exported until the context ends, or without."""
    if not traces:
        yield CONTEXT_FORWARDER
        return
    expect_traces_installed(traces=traces)
    from ..telemetry import exported_spans  # noqa: PLC0415 - as above

    with exported_spans(processor) as tracer:
        yield tracer
