"""Traces without a collector: which variables do what, and that no fault of telemetry reaches a caller."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest
import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from hermes.ops.trace_content import parts_of, question_messages, system_parts, tool_definitions
from hermes.ops.trace_export import ReportingExporter, exporter_from, open_traces, resource_of
from hermes.ops.traces import OtelTracer
from hermes.ports.backends import Completion, ModelRequest, Usage
from hermes.ports.errors import StartRefused
from hermes.ports.models import Caller, CallSource
from hermes.ports.tools import ToolCall, ToolResult
from hermes.ports.traces import NO_SPAN, NO_TRACER, Tracer
from hermes.turn import Envelope, MessageEvent, Platform

SAID = Envelope(
    event=MessageEvent(platform=Platform.TELEGRAM, sender_id="7", text="hello"), account="bali", channel_id="7", event_key="update:1"
)
CALLER = Caller(user_id=UUID(int=1), account="bali", tier="free", source=CallSource.ROUTER)
ASK = ModelRequest(messages=({"role": "user", "content": "hello"},), max_tokens=10)
ANSWER = Completion(
    message={"role": "assistant", "content": "hi"},
    finish_reason="stop",
    usage=Usage(tokens_in=3, tokens_out=1),
    model="small-1",
    request_digest="",
)


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture(params=["otel", "none"])
def tracer(request: pytest.FixtureRequest, spans: InMemorySpanExporter) -> Iterator[Tracer]:
    if request.param == "none":
        yield NO_TRACER
        return
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    yield OtelTracer(provider)
    provider.shutdown()


# --- the port, on both tracers


def test_an_error_leaves_the_block_as_it_is(tracer: Tracer) -> None:
    error = ValueError("what a user wrote")
    for begin in (lambda: tracer.step("record"), lambda: tracer.tool(ToolCall("c1", "venue_search", "{}")), lambda: tracer.accept(SAID)):
        with pytest.raises(ValueError, match="what a user wrote") as raised, begin():
            raise error
        assert raised.value is error


def test_every_span_takes_all_that_the_port_offers(tracer: Tracer) -> None:
    with tracer.accept(SAID) as accept:
        accept.note(turn_id=uuid4(), is_new=True, nothing=None)
        accept.link(accept.traceparent)
        accept.show_texts(question="q", answer="a")
        with tracer.chat("own", "small-1", ASK, CALLER) as chat:
            chat.note_answer(ANSWER, lambda usage: usage.tokens_in)
        with tracer.tool(ToolCall("c1", "venue_search", "{}")) as tool:
            tool.note_result(ToolResult("c1", "venue_search", "found", is_error=True, ms=3))
        with tracer.retrieval("user_memory", "q") as search:
            search.fail(TimeoutError())
    with tracer.job("remember", uuid4(), None) as job:
        assert job.traceparent is None or job.traceparent[:36] != (accept.traceparent or "")[:36], "a trace of its own"


def test_errors_are_given_by_name_and_users_by_a_digest(spans: InMemorySpanExporter) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    tracer = OtelTracer(provider)
    with pytest.raises(ValueError, match="secret"), tracer.step("record"):
        raise ValueError("secret")
    with pytest.raises(ValueError, match="secret"), tracer.chat("own", "small-1", ASK, CALLER):
        raise ValueError("secret")
    step, chat = spans.get_finished_spans()
    for span in (step, chat):
        assert (span.attributes or {})["error.type"] == "ValueError"
        assert "secret" not in span.to_json()
    user = str((chat.attributes or {})["user.id"])
    assert (len(user), str(CALLER.user_id) in chat.to_json()) == (16, False)


def test_a_library_that_raises_costs_a_span_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    tracer = OtelTracer(TracerProvider(shutdown_on_exit=False))

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug of the library")

    monkeypatch.setattr(tracer._handler, "inference", broken)
    monkeypatch.setattr(tracer._tracer, "start_span", broken)
    with structlog.testing.capture_logs() as logs, tracer.accept(SAID) as accept, tracer.chat("own", "small-1", ASK, CALLER) as chat:
        chat.note_answer(ANSWER, broken)
    assert accept is chat is NO_SPAN
    assert [(each["event"], each["at"]) for each in logs] == [("trace_failed", "accept"), ("trace_failed", "chat")]


def test_a_price_that_cannot_be_found_costs_the_attribute_alone(spans: InMemorySpanExporter) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))

    def unknown(_: Usage) -> int:
        raise LookupError

    with OtelTracer(provider).chat("own", "small-1", ASK, CALLER) as chat:
        chat.note_answer(ANSWER, unknown)
    [span] = spans.get_finished_spans()
    attributes = span.attributes or {}
    assert (attributes["gen_ai.usage.input_tokens"], "gen_ai.usage.cost" in attributes) == (3, False)


# --- the variables


@pytest.mark.parametrize(
    ("variables", "exporter"),
    [
        ({}, OTLPSpanExporter),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, OTLPSpanExporter),
        ({"OTEL_TRACES_EXPORTER": "console"}, ConsoleSpanExporter),
        ({"OTEL_TRACES_EXPORTER": "none"}, type(None)),
        ({"OTEL_SDK_DISABLED": "True"}, type(None)),
    ],
)
def test_the_variables_choose_the_exporter(variables: Mapping[str, str], exporter: type[Any]) -> None:
    assert type(exporter_from(variables)) is exporter


@pytest.mark.parametrize("variables", [{"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, {"OTEL_TRACES_EXPORTER": "zipkin"}])
def test_what_hermes_cannot_send_is_refused_at_the_start(variables: Mapping[str, str]) -> None:
    with pytest.raises(StartRefused, match=r"OTLP over http/protobuf, not by (otlp over grpc|zipkin)"):
        exporter_from(variables)


async def test_switched_off_by_its_variable_it_traces_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    async with open_traces(uuid4()) as tracer:
        assert tracer is NO_TRACER


def test_the_operators_names_win(monkeypatch: pytest.MonkeyPatch) -> None:
    process_id = uuid4()
    monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=staging")
    found = resource_of(process_id).attributes
    named = [found[name] for name in ("service.name", "service.instance.id", "deployment.environment")]
    assert named == ["hermes", str(process_id), "staging"]
    monkeypatch.setenv("OTEL_SERVICE_NAME", "bali")
    assert resource_of(process_id).attributes["service.name"] == "bali"


# --- sending


class Flaky(SpanExporter):
    """Sends as it is told: well, badly, or with an error."""

    def __init__(self, *results: SpanExportResult | Exception) -> None:
        self.results = list(results)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


def test_lost_traces_are_reported_once_and_so_is_that_they_arrive_again() -> None:
    good, bad = SpanExportResult.SUCCESS, SpanExportResult.FAILURE
    exporter = ReportingExporter(Flaky(good, bad, bad, OSError("gone"), good, good, OSError("gone")))
    with structlog.testing.capture_logs() as logs:
        results = [exporter.export([]) for _ in range(7)]
    assert results == [good, bad, bad, bad, good, good, bad]
    assert [each["event"] for each in logs] == ["traces_not_sent", "traces_sent_again", "traces_not_sent"]


# --- texts


def test_messages_are_written_as_the_conventions_have_them() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "venue_search", "arguments": "{}"}}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "what is this?"}, image]},
        {"role": "assistant", "content": None, "reasoning": "a bar", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "Salt & Ember"},
    ]
    assert [part.content for part in system_parts(messages) if part.type == "text"] == ["Be kind."]
    asked = question_messages(messages)
    assert [(message.role, [part.type for part in message.parts]) for message in asked] == [
        ("user", ["text"]),
        ("assistant", ["reasoning", "tool_call"]),
        ("tool", ["tool_call_response"]),
    ]
    assert "AAAA" not in str(asked), "images stay out"
    assert parts_of({"role": "assistant", "content": ""}) == []
    [tool] = tool_definitions([{"type": "function", "function": {"name": "venue_search", "description": "Finds places."}}])
    assert tool.name == "venue_search"
