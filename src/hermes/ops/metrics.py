"""The metrics of one process, for Prometheus, and its alerts for the operator, which are counted too. Each app has its own registry, so
that two apps in one process are not added up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import choose_encoder

from hermes.ports.models import CallOutcome, ModelCall

log = structlog.get_logger()

QueueLengths = Callable[[], Awaitable[Mapping[str, int]]]
"""Returns the length of each queue by name: inbox, outbox, failed_sends, dead_letters, turns, deliveries."""

LATENCY_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 45.0, 60.0)
"""Up to the longest wait for an answer; the deadline of a model call is 45 s."""

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
UNMATCHED = "unmatched"


@dataclass(slots=True)
class QueueReader:
    """When the queues were last read. Several Prometheus servers may scrape at once; the queues are counted once for all of them."""

    lengths: QueueLengths
    fresh_s: float
    timeout_s: float
    read_at: float = float("-inf")
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Metrics:
    """All metrics of one app."""

    def __init__(self, queue_lengths: QueueLengths | None = None, *, fresh_s: float = 2.0, timeout_s: float = 1.0) -> None:
        """`queue_lengths` is called on a scrape, at most every `fresh_s`; it may fail, and it is cancelled after `timeout_s`."""
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.requests = Counter("hermes_request_count", "Requests answered.", ["method", "route", "status"], registry=self.registry)
        self.errors = Counter(
            "hermes_request_errors", "Requests that Hermes failed to answer (5xx).", ["method", "route"], registry=self.registry
        )
        self.latency = Histogram(
            "hermes_request_latency_seconds",
            "From a request's first byte to its answer's last; a stream counts when it ends.",
            ["method", "route"],
            registry=self.registry,
            buckets=LATENCY_BUCKETS_S,
        )
        self.queue_length = Gauge(
            "hermes_queue_length", "Entries in a queue; absent while the database cannot be read.", ["queue"], registry=self.registry
        )
        self.loop_lag = Gauge("hermes_loop_lag_seconds", "The longest delay of the event loop in the last minute.", registry=self.registry)
        self.loop_blocked = Counter("hermes_loop_blocked", "Times that the event loop was blocked.", registry=self.registry)
        self.alerts = Counter("hermes_alerts", "Alerts for the operator.", ["event"], registry=self.registry)
        self.llm_calls = Counter("hermes_llm_calls", "Model calls that were answered.", ["backend", "tier"], registry=self.registry)
        self.llm_tokens = Counter("hermes_llm_tokens", "Tokens, as vendors counted them.", ["backend", "direction"], registry=self.registry)
        self.llm_cache_hits = Counter("hermes_llm_cache_hits", "Answers from the cache.", ["backend", "tier"], registry=self.registry)
        self.llm_cost = Counter("hermes_llm_cost_usd", "What model calls cost, in dollars.", ["backend", "tier"], registry=self.registry)
        self.llm_attempts = Counter("hermes_llm_attempts", "Attempts to call a backend.", ["backend", "outcome"], registry=self.registry)
        self.llm_slots_used = Gauge("hermes_llm_slots_used", "Model calls under way.", registry=self.registry)
        self.llm_slots_waiting = Gauge("hermes_llm_slots_waiting", "Model calls that wait for a slot.", registry=self.registry)
        self.steps = Histogram(
            "hermes_step_seconds", "How long each step of a turn took.", ["step"], registry=self.registry, buckets=LATENCY_BUCKETS_S
        )
        self.turns = Counter("hermes_turns", "Turns that ended, by outcome.", ["outcome"], registry=self.registry)
        self.intents = Counter("hermes_intents", "Turns that ended, by the user's intent.", ["kind"], registry=self.registry)
        self.recall_skipped = Counter(
            "hermes_semantic_recall_skipped_trivial",
            "Messages that were too trivial to recall facts for.",
            registry=self.registry,
        )
        self.sends = Counter("hermes_sends", "Tries to send a message to a platform.", ["platform", "outcome"], registry=self.registry)
        self.webhooks_ignored = Counter(
            "hermes_webhooks_ignored",
            "Inbound events that Hermes ignored; `other_account`: the event is for an account that is not set up.",
            ["platform", "reason"],
            registry=self.registry,
        )
        self.breaker_open = Gauge(
            "hermes_breaker_open",
            "1 while this process knows that the breaker of a channel account is open.",
            ["platform", "account"],
            registry=self.registry,
        )
        self._queues = QueueReader(queue_lengths, fresh_s, timeout_s) if queue_lengths else None

    def count(self, call: ModelCall) -> None:
        """The port CallMeter."""
        for attempt in call.attempts:
            self.llm_attempts.labels(attempt.backend, attempt.outcome.partition(":")[0]).inc()
        backend = call.backend or "none"
        if call.cache_hit:
            self.llm_cache_hits.labels(backend, call.tier).inc()
            return
        if call.outcome is CallOutcome.ANSWERED:
            self.llm_calls.labels(backend, call.tier).inc()
        self.llm_tokens.labels(backend, "in").inc(call.usage.tokens_in)
        self.llm_tokens.labels(backend, "out").inc(call.usage.tokens_out)
        self.llm_cost.labels(backend, call.tier).inc(call.micro_usd / 1_000_000)

    def count_step(self, step: str, seconds: float) -> None:
        """The port TurnMeter."""
        self.steps.labels(step).observe(seconds)

    def count_turn(self, outcome: str, intent: str) -> None:
        """The port TurnMeter."""
        self.turns.labels(outcome).inc()
        self.intents.labels(intent).inc()

    def count_send(self, platform: str, outcome: str) -> None:
        """The port PlatformMeter."""
        self.sends.labels(platform, outcome).inc()

    def count_ignored(self, platform: str, reason: str) -> None:
        """The port PlatformMeter."""
        self.webhooks_ignored.labels(platform, reason).inc()

    def show_breaker(self, platform: str, account: str, open_s: float) -> None:
        """The port PlatformMeter. The gauge goes back to 0 by itself, because another process may close the breaker."""
        until = time.monotonic() + open_s
        self.breaker_open.labels(platform, account).set_function(lambda: float(time.monotonic() < until))

    def watch_slots(self, used: Callable[[], int], waiting: Callable[[], int]) -> None:
        """Show how many model calls run and wait at the time of each scrape."""
        self.llm_slots_used.set_function(used)
        self.llm_slots_waiting.set_function(waiting)

    async def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """Return the page for Prometheus and its content type. If the queues cannot be read, it leaves their lengths out and does not
        raise."""
        if self._queues is not None:
            await self._read(self._queues)
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    async def _read(self, queues: QueueReader) -> None:
        async with queues.lock:
            if time.monotonic() - queues.read_at < queues.fresh_s:
                return
            lengths: dict[str, int] = {}
            try:
                async with asyncio.timeout(queues.timeout_s):
                    lengths = dict(await queues.lengths())
            except Exception as error:  # noqa: BLE001  # when the queues cannot be read, the operator needs the other metrics most
                log.warning("queue_lengths_unread", error=type(error).__name__)
            queues.read_at = time.monotonic()
            # An old length would look like a healthy queue, so a length that could not be read is not shown.
            self.queue_length.clear()
            for queue, length in lengths.items():
                self.queue_length.labels(queue).set(length)


AsgiScope = MutableMapping[str, Any]
AsgiMessage = MutableMapping[str, Any]
AsgiReceive = Callable[[], Awaitable[AsgiMessage]]
AsgiSend = Callable[[AsgiMessage], Awaitable[None]]
AsgiApp = Callable[[AsgiScope, AsgiReceive, AsgiSend], Awaitable[None]]


class RequestCounter:
    """ASGI middleware that counts and times requests by method and route template, so that an id in a path makes no series of its own.

    It passes each message on at once, so a stream stays a stream."""

    def __init__(self, app: AsgiApp, metrics: Metrics, uncounted: frozenset[str] = frozenset({"/metrics"})) -> None:
        self._app, self._metrics, self._uncounted = app, metrics, uncounted

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        if scope["type"] != "http" or scope["path"] in self._uncounted:
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500  # if the app raises, an outer middleware answers with 500

        async def send_and_note_status(message: AsgiMessage) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_and_note_status)
        finally:
            method = scope["method"] if scope["method"] in METHODS else "other"
            route = route_template(scope)
            self._metrics.requests.labels(method, route, str(status)).inc()
            self._metrics.latency.labels(method, route).observe(time.perf_counter() - began)
            if status >= 500:
                self._metrics.errors.labels(method, route).inc()


def route_template(scope: AsgiScope) -> str:
    """The template of the route that served a request: `/v1/messages/{turn_id}`. The web framework has put it into the scope."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else UNMATCHED


class LogAlerts:
    """The port Alerts. May be called from any thread."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def alert(self, event: str, **facts: object) -> None:
        self._metrics.alerts.labels(event).inc()
        log.warning(event, **{**facts, "alert": True})

    def end(self, event: str, **facts: object) -> None:
        log.info("alert_ended", **{**facts, "of": event})
