"""Open traces: the standard OTEL_* variables say where they go, how many of them, and as which service.

Spans wait in memory, and a thread sends them; if the collector is away, slow or refuses them, they are dropped and nothing else happens.
At the end the rest is sent within a time limit."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from threading import Thread
from uuid import UUID

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter, SpanExportResult

from hermes.ops.traces import OtelTracer
from hermes.ports.errors import StartRefused
from hermes.ports.traces import NO_TRACER, Tracer

log = structlog.get_logger()

SERVICE = "hermes"
NOISY_LOGGERS = ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "opentelemetry.sdk._shared_internal")
"""They log every try of every batch. Hermes logs once that traces are lost, and once that they arrive again."""
FLUSH_S = 5.0
"""How long the end of a process may wait for its last spans. A turn's answer is sent long before, so nothing but a trace is lost."""


@asynccontextmanager
async def open_traces(process_id: UUID) -> AsyncIterator[Tracer]:
    """Trace for as long as the block lasts. Raises StartRefused for a variable that asks for what Hermes cannot send."""
    exporter = exporter_from(os.environ)
    if exporter is None:
        yield NO_TRACER
        return
    provider = TracerProvider(resource=resource_of(process_id), shutdown_on_exit=False)
    for name in NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    provider.add_span_processor(BatchSpanProcessor(ReportingExporter(exporter)))
    log.info("traces_opened", exporter=type(exporter).__name__)
    try:
        yield OtelTracer(provider)
    finally:
        await end_within(provider, FLUSH_S)


def exporter_from(variables: Mapping[str, str]) -> SpanExporter | None:
    """Return what sends the spans; None if the variables switch OpenTelemetry off."""
    if variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    chosen = variables.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    if chosen == "none":
        return None
    if chosen == "console":
        return ConsoleSpanExporter()
    protocol = variables.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or variables.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "http/protobuf"
    if chosen != "otlp" or protocol != "http/protobuf":
        raise StartRefused(f"traces are sent by OTLP over http/protobuf, not by {chosen} over {protocol}; see docs/operate/traces.md")
    return OTLPSpanExporter()


class ReportingExporter(SpanExporter):
    """Sends spans through another exporter, and logs when that begins to fail and when it works again. Called from one thread."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter, self._is_failing = exporter, False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # noqa: BLE001  # any fault of an exporter: the spans are lost, and nothing else
            result, reason = SpanExportResult.FAILURE, type(error).__name__
        else:
            reason = "the collector is away, slow, or refuses them"
        is_failing = result is not SpanExportResult.SUCCESS
        if is_failing and not self._is_failing:
            log.warning("traces_not_sent", spans=len(spans), reason=reason)
        elif self._is_failing and not is_failing:
            log.info("traces_sent_again")
        self._is_failing = is_failing
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


def resource_of(process_id: UUID) -> Resource:
    """Return what every span says about its process. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win over our own values."""
    own = Resource({"service.name": SERVICE, "service.version": version("hermes-graph"), "service.instance.id": str(process_id)})
    return Resource.create().merge(own).merge(OTELResourceDetector().detect())


async def end_within(provider: TracerProvider, limit_s: float) -> None:
    """Send what is left and end the provider, but wait no longer than the limit: a collector that hangs must not hold the process."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def end() -> None:
        provider.shutdown()
        with suppress(RuntimeError):  # the event loop is closed: it did not wait any longer
            loop.call_soon_threadsafe(ended.set)

    # A thread that the process does not wait for; the default executor would be joined at the end.
    Thread(target=end, name="hermes-traces-end", daemon=True).start()
    try:
        async with asyncio.timeout(limit_s):
            await ended.wait()
    except TimeoutError:
        log.warning("traces_not_flushed", waited_s=limit_s)
