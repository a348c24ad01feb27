"""A collector of traces, strict: it takes OTLP over HTTP as the protocol says, and can refuse, hang, or be away.

async with collecting() as collector:
    OTEL_EXPORTER_OTLP_ENDPOINT=collector.url …
    collector.spans
"""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass(frozen=True, slots=True)
class SeenSpan:
    """A span as it arrived."""

    name: str
    kind: str
    trace: str
    id: str
    parent: str
    links: tuple[str, ...]
    """Traces that it refers to."""
    is_error: bool
    attributes: dict[str, Any]
    resource: dict[str, Any]
    started: int
    ended: int


@dataclass
class OtlpCollector:
    """`POST /v1/traces`."""

    url: str
    spans: list[SeenSpan] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """What was wrong with a request."""
    is_hanging: bool = False
    status: int = 200
    requests: int = 0

    async def take(self, request: web.Request) -> web.Response:
        self.requests += 1
        body = await request.read()
        if self.is_hanging:
            await asyncio.Event().wait()
        if self.status != 200:
            return web.Response(status=self.status)
        if request.content_type != "application/x-protobuf":
            self.faults.append(f"content type {request.content_type}")
            return web.Response(status=415)
        asked = ExportTraceServiceRequest()
        asked.ParseFromString(gzip.decompress(body) if body.startswith(b"\x1f\x8b") else body)
        for resource in asked.resource_spans:
            about = values(resource.resource.attributes)
            for scope in resource.scope_spans:
                self.spans += [self.read(span, about) for span in scope.spans]
        return web.Response(body=ExportTraceServiceResponse().SerializeToString(), content_type="application/x-protobuf")

    def read(self, span: Span, resource: dict[str, Any]) -> SeenSpan:
        if len(span.trace_id) != 16 or len(span.span_id) != 8 or len(span.parent_span_id) not in {0, 8}:
            self.faults.append(f"{span.name}: an id has the wrong length")
        if not span.name or span.end_time_unix_nano < span.start_time_unix_nano:
            self.faults.append(f"{span.name}: no name, or it ends before it begins")
        if "service.name" not in resource:
            self.faults.append(f"{span.name}: no service.name")
        return SeenSpan(
            name=span.name,
            kind=Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
            trace=span.trace_id.hex(),
            id=span.span_id.hex(),
            parent=span.parent_span_id.hex(),
            links=tuple(link.trace_id.hex() for link in span.links),
            is_error=span.status.code == 2,
            attributes=values(span.attributes),
            resource=resource,
            started=span.start_time_unix_nano,
            ended=span.end_time_unix_nano,
        )


def values(attributes: Any) -> dict[str, Any]:
    pairs: list[KeyValue] = list(attributes)
    return {pair.key: value_of(pair.value) for pair in pairs}


def value_of(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [value_of(each) for each in value.array_value.values]
    return getattr(value, kind) if kind else None


@asynccontextmanager
async def collecting() -> AsyncIterator[OtlpCollector]:
    """Run a collector on a port of its own until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        collector = OtlpCollector(f"http://127.0.0.1:{listener.getsockname()[1]}")
        app = web.Application()
        app.router.add_post("/v1/traces", collector.take)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.05)
        await runner.setup()
        await web.SockSite(runner, listener).start()
        try:
            yield collector
        finally:
            await runner.cleanup()
