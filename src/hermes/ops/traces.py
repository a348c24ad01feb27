"""Traces on OpenTelemetry: the port Tracer, and every name that Hermes gives a span or an attribute.

Model calls, tools, searches and turns go through OpenTelemetry's own `opentelemetry-util-genai`, which follows the conventions for
generative AI while they still change; the other spans are made here. `openinference.span.kind` and `session.id` are what Phoenix and
Langfuse read to draw a trace.

Only commands that answer messages import this module, and only if the settings switch traces on. `trace_export.py` opens it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from hashlib import sha256
from types import TracebackType
from typing import ParamSpec, Self, TypeVar
from uuid import UUID

import structlog
from opentelemetry._logs import NoOpLoggerProvider
from opentelemetry.context import Context, attach, detach
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TracerProvider, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.genai.handler import TelemetryHandler
from opentelemetry.util.genai.invocation import (
    ContextToken,
    Error,
    GenAIInvocation,
    InferenceInvocation,
    RetrievalInvocation,
    ToolInvocation,
    WorkflowInvocation,
)

from hermes.ops.trace_content import answer_message, question_messages, system_parts, text_message, tool_definitions
from hermes.ports.backends import Completion, ModelRequest, Usage
from hermes.ports.inbox import Claim
from hermes.ports.models import Caller
from hermes.ports.outbox import OutboxMessage
from hermes.ports.tools import ToolCall, ToolResult
from hermes.ports.traces import NO_SPAN, SpanFact
from hermes.turn import Envelope

log = structlog.get_logger()
P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F")

SCOPE = "hermes"
WORKFLOW = "handle_message"
"""The name of a turn: its span is `invoke_workflow handle_message`."""
KIND = "openinference.span.kind"
CHAIN, LLM, TOOL, RETRIEVER = "CHAIN", "LLM", "TOOL", "RETRIEVER"
INPUT, OUTPUT = "input.value", "output.value"
"""What Phoenix shows of a span that is no model call."""
COST = "gen_ai.usage.cost"
ERROR_TYPE = "error.type"
PREFIX = "hermes."
"""Of every attribute that no convention names: the fact `attempt` is `hermes.attempt`."""
ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "agent": ("gen_ai.agent.name",),
    "session_id": ("session.id", "gen_ai.conversation.id"),
    "user_id": ("user.id",),
    "turn_id": ("hermes.turn.id",),
    "conversation_id": ("hermes.conversation.id",),
}
"""The attributes of the facts whose names a convention decides, or that are ids."""
MICRO = 1_000_000


def fail_open(fallback: F) -> Callable[[Callable[P, T]], Callable[P, T | F]]:
    """Make a function return `fallback` where it would raise: no fault of telemetry may change a turn."""

    def decorate(function: Callable[P, T]) -> Callable[P, T | F]:
        @wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> T | F:
            try:
                return function(*args, **kwargs)
            except Exception as error:  # noqa: BLE001  # any fault of the libraries, or of what we read for them: it is logged, and that is all
                log.warning("trace_failed", at=function.__name__, error=type(error).__name__)
                return fallback

        return guarded

    return decorate


class OtelSpan:
    """A span of OpenTelemetry. `invocation` is the object of util-genai around it, if it has one; then that ends the span."""

    __slots__ = ("_failed", "_invocation", "_is_shown", "_span", "_token")

    def __init__(
        self, span: Span, *, invocation: GenAIInvocation | None = None, token: ContextToken | None = None, is_shown: bool = False
    ) -> None:
        self._span, self._invocation, self._token, self._is_shown = span, invocation, token, is_shown
        self._failed: str | None = None

    @property
    def traceparent(self) -> str | None:
        """The span's context. It is also given for a span that no sampler chose, so that all processes keep to that choice."""
        context = self._span.get_span_context()
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}" if context.is_valid else None

    @fail_open(None)
    def note(self, **facts: SpanFact) -> None:
        for name, value in facts.items():
            if value is not None:
                shown = short_digest(value) if name == "user_id" else str(value) if isinstance(value, UUID) else value
                for attribute in ATTRIBUTES.get(name, (f"{PREFIX}{name}",)):
                    self._span.set_attribute(attribute, shown)

    def fail(self, error: BaseException) -> None:
        self._failed = type(error).__name__

    @fail_open(None)
    def link(self, traceparent: str | None) -> None:
        if traceparent is not None:
            self._span.add_link(span_context(traceparent))

    def set_input(self, text: str) -> None:
        """Show the text with which a trace begins: tools list traces and sessions by it."""
        self._span.set_attribute(INPUT, text)

    @fail_open(None)
    def show_texts(self, *, question: str, answer: str) -> None:
        if self._is_shown and isinstance(self._invocation, WorkflowInvocation):
            self._invocation.input_messages = [text_message("user", question)]
            self._invocation.output_messages = [answer_message({"role": "assistant", "content": answer})]
            self._span.set_attributes({INPUT: question, OUTPUT: answer})

    @fail_open(None)
    def note_answer(self, completion: Completion, price: Callable[[Usage], int]) -> None:
        invocation, usage = self._invocation, completion.usage
        if not isinstance(invocation, InferenceInvocation):
            return
        invocation.response_model_name = completion.model
        invocation.finish_reasons = [completion.finish_reason]
        invocation.input_tokens, invocation.output_tokens = usage.tokens_in, usage.tokens_out
        invocation.cache_read_input_tokens = usage.cache_read
        invocation.cache_write_input_tokens = usage.cache_write + usage.cache_write_1h
        self._span.set_attribute(COST, price(usage) / MICRO)
        if self._is_shown:
            invocation.output_messages = [answer_message(completion.message)]

    @fail_open(None)
    def note_result(self, result: ToolResult) -> None:
        if not isinstance(self._invocation, ToolInvocation):
            return
        if result.is_error:
            # The conventions know no result that is an error of the tool: the model is told, and the call itself went well.
            self._span.set_attribute(ERROR_TYPE, "tool_error")
        if self._is_shown:
            self._invocation.tool_result = result.text

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._end(self._failed if kind is None else kind.__name__)

    @fail_open(None)
    def _end(self, error: str | None) -> None:
        # An error is given by its name only: its text may hold what a user wrote.
        if self._invocation is not None:
            if error is None:
                self._invocation.stop()
            else:
                self._invocation.fail(Error(message=None, type=error))
            return
        if error is not None:
            self._span.set_status(Status(StatusCode.ERROR))
            self._span.set_attribute(ERROR_TYPE, error)
        if self._token is not None:
            detach(self._token)
        self._span.end()


class OtelTracer:
    """The port Tracer. Its spans go to the provider's processors, which send them from a thread of their own."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer(SCOPE)
        # Hermes has metrics of its own (/metrics), and content goes into spans alone.
        self._handler = TelemetryHandler(
            tracer_provider=provider,
            meter_provider=NoOpMeterProvider(),
            logger_provider=NoOpLoggerProvider(),
            instrumentation_scope_name=SCOPE,
        )
        self._is_shown = self._handler.should_capture_content()

    @fail_open(NO_SPAN)
    def accept(self, envelope: Envelope) -> OtelSpan:
        platform = str(envelope.event.platform)
        facts: Mapping[str, SpanFact] = {"platform": platform, "account": envelope.account}
        span = self._begin(f"accept {platform}", SpanKind.SERVER, facts, context=Context())
        if self._is_shown:
            span.set_input(envelope.event.text)
        return span

    @fail_open(NO_SPAN)
    def turn(self, claim: Claim) -> OtelSpan:
        invocation = self._handler.workflow(WORKFLOW, context=context_of(claim.traceparent))
        span = self._wrap(invocation, CHAIN)
        span.note(turn_id=claim.turn_id, conversation_id=claim.conversation_id, user_id=claim.user_id, attempt=claim.attempt)
        span.note(platform=str(claim.envelope.event.platform), account=claim.envelope.account, waited_s=round(claim.age_s, 3))
        return span

    @fail_open(NO_SPAN)
    def step(self, name: str) -> OtelSpan:
        return self._begin(name, SpanKind.INTERNAL, {})

    @fail_open(NO_SPAN)
    def request(self, caller: Caller) -> OtelSpan:
        facts: Mapping[str, SpanFact] = {"platform": str(caller.source), "account": caller.account, "tier": caller.tier}
        span = self._begin(f"accept {caller.source}", SpanKind.SERVER, facts, context=Context(), is_attached=False)
        span.note(user_id=caller.user_id)
        return span

    @fail_open(NO_SPAN)
    def chat(self, backend: str, model: str, request: ModelRequest, caller: Caller) -> OtelSpan:
        invocation = self._handler.inference(backend, request_model=model, context=context_of(caller.traceparent))
        invocation.suspend()  # never a parent, so that a generator may hold it while its reader does other things
        invocation.max_tokens = request.max_tokens
        if self._is_shown:
            invocation.system_instruction = system_parts(request.messages)
            invocation.input_messages = question_messages(request.messages)
            invocation.tool_definitions = tool_definitions(request.tools)
        span = self._wrap(invocation, LLM)
        span.note(user_id=caller.user_id, session_id=caller.session_id, agent=caller.agent, tier=caller.tier, source=str(caller.source))
        return span

    @fail_open(NO_SPAN)
    def tool(self, call: ToolCall) -> OtelSpan:
        invocation = self._handler.tool(call.name, tool_type="function")
        invocation.tool_call_id = call.id
        if self._is_shown:
            invocation.arguments = call.arguments
        return self._wrap(invocation, TOOL)

    @fail_open(NO_SPAN)
    def retrieval(self, source: str, query: str) -> OtelSpan:
        invocation: RetrievalInvocation = self._handler.retrieval(data_source_id=source)
        if self._is_shown:
            invocation.query_text = query
        return self._wrap(invocation, RETRIEVER)

    @fail_open(NO_SPAN)
    def delivery(self, message: OutboxMessage) -> OtelSpan:
        platform = str(message.platform)
        facts: Mapping[str, SpanFact] = {"platform": platform, "account": message.account, "part": message.part, "tries": message.tries}
        links = [Link(span_context(message.traceparent))] if message.news and message.traceparent else []
        context = Context() if message.news else context_of(message.traceparent)
        span = self._begin(f"deliver {platform}", SpanKind.CLIENT, facts, context=context, links=links)
        span.note(turn_id=message.turn_id, conversation_id=message.conversation_id)
        return span

    @fail_open(NO_SPAN)
    def job(self, name: str, turn_id: UUID, traceparent: str | None) -> OtelSpan:
        links = [Link(span_context(traceparent))] if traceparent else []
        return self._begin(name, SpanKind.INTERNAL, {"turn_id": turn_id}, context=Context(), links=links)

    def _begin(
        self,
        name: str,
        kind: SpanKind,
        facts: Mapping[str, SpanFact],
        *,
        context: Context | None = None,
        links: Sequence[Link] = (),
        is_attached: bool = True,
    ) -> OtelSpan:
        """Begin a span that util-genai has no method for. Without a context it is a child of the current span."""
        span = self._tracer.start_span(name, context=context, kind=kind, attributes={KIND: CHAIN}, links=links)
        begun = OtelSpan(span, token=attach(set_span_in_context(span, context)) if is_attached else None)
        begun.note(**facts)
        return begun

    def _wrap(self, invocation: GenAIInvocation, kind: str) -> OtelSpan:
        invocation.span.set_attribute(KIND, kind)
        return OtelSpan(invocation.span, invocation=invocation, is_shown=self._is_shown)


def short_digest(user_id: SpanFact) -> str:
    """Return a user's id as a digest: it tells users apart, and only an operator with the database finds the user."""
    return sha256(str(user_id).encode()).hexdigest()[:16]


PROPAGATOR = TraceContextTextMapPropagator()


def context_of(traceparent: str | None) -> Context | None:
    """Return the context of a stored parent; None, which stands for the current span, if there is none."""
    return None if traceparent is None else PROPAGATOR.extract({"traceparent": traceparent}, context=Context())


def span_context(traceparent: str) -> SpanContext:
    return get_current_span(context_of(traceparent)).get_span_context()
