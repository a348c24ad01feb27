"""The metrics of one process, for Prometheus, and its alerts for the operator, which are counted too. Each app has its own registry, so
that two apps in one process are not added up.

The page shows more than this process: its siblings (process_sockets.py) and what the stores hold (store_gauges.py)."""

from __future__ import annotations

import asyncio
import math
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics_core import Metric

from hermes.ops.alerts import AlertLog

# Every family of this module has bounded labels.
from hermes.ops.labels import BoundedCounter as Counter
from hermes.ops.labels import BoundedGauge as Gauge
from hermes.ops.labels import BoundedHistogram as Histogram
from hermes.ops.metrics_page import merge_processes, processes_up, write_page
from hermes.ops.process_sockets import Siblings, open_process_socket
from hermes.ops.store_gauges import StoreGauges
from hermes.ports.models import CallOutcome, ModelCall

log = structlog.get_logger()

LATENCY_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 45.0, 60.0)
"""Up to the longest wait for an answer; the deadline of a model call is 45 s."""

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
UNMATCHED = "unmatched"


class Metrics:
    """All metrics of one app."""

    def __init__(self, store: StoreGauges | None = None) -> None:
        """`store` has the gauges about all of Hermes; without it they have no values."""
        self.store = store or StoreGauges()
        self.siblings: Siblings | None = None
        """The other processes of this home; None: this process is alone, and its series name no process."""
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
        self.loop_lag = Gauge("hermes_loop_lag_seconds", "The longest delay of the event loop in the last minute.", registry=self.registry)
        self.loop_blocked = Counter("hermes_loop_blocked", "Times that the event loop was blocked.", registry=self.registry)
        self.alerts = Counter("hermes_alerts", "Alerts for the operator.", ["event"], registry=self.registry)
        self.llm_calls = Counter("hermes_llm_calls", "Model calls that were answered.", ["backend", "tier"], registry=self.registry)
        self.llm_tokens = Counter("hermes_llm_tokens", "Tokens, as vendors counted them.", ["backend", "direction"], registry=self.registry)
        self.llm_cache_hits = Counter("hermes_llm_cache_hits", "Answers from the cache.", ["backend", "tier"], registry=self.registry)
        self.llm_cache_saved = Counter(
            "hermes_llm_cache_saved_usd",
            "What answers from the cache would have cost, in dollars.",
            ["backend", "tier"],
            registry=self.registry,
        )
        self.llm_cost = Counter("hermes_llm_cost_usd", "What model calls cost, in dollars.", ["backend", "tier"], registry=self.registry)
        self.llm_attempts = Counter("hermes_llm_attempts", "Attempts to call a backend.", ["backend", "outcome"], registry=self.registry)
        self.llm_unanswered = Counter(
            "hermes_llm_unanswered", "Model calls that ended without a whole answer.", ["tier", "outcome"], registry=self.registry
        )
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
        self.home_free = Gauge("hermes_home_free_bytes", "Bytes free on the disk of HERMES_HOME.", registry=self.registry)
        self.home_size = Gauge("hermes_home_size_bytes", "Bytes of the disk of HERMES_HOME.", registry=self.registry)

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
        else:
            self.llm_unanswered.labels(call.tier, str(call.outcome)).inc()
        self.llm_tokens.labels(backend, "in").inc(call.usage.tokens_in)
        self.llm_tokens.labels(backend, "out").inc(call.usage.tokens_out)
        self.llm_cost.labels(backend, call.tier).inc(call.micro_usd / 1_000_000)

    def count_saved(self, call: ModelCall, micro_usd: int) -> None:
        """The port CallMeter."""
        self.llm_cache_saved.labels(call.backend or "none", call.tier).inc(micro_usd / 1_000_000)

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

    def families(self) -> list[Metric]:
        """The families of this process alone."""
        return list(self.registry.collect())

    async def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """Return the page for Prometheus and its content type: this process, its siblings, and the stores. What cannot be read in time is
        left out; it does not raise."""
        siblings = self.siblings
        found, _ = await asyncio.gather(siblings.read() if siblings else no_siblings(), self.store.refresh())
        own = siblings.own if siblings else ""
        pages = {own: self.families(), **{name: families for name, families in found.items() if families is not None}}
        states = {name: name in pages for name in (own, *found) if name}
        families = chain(merge_processes(pages), [processes_up(states)], self.store.collect())
        # In a thread, which also merges: with many processes the page is long, and messages wait for the loop.
        return await asyncio.to_thread(write_page, families, accept)

    async def own_exposition(self, accept: str = "") -> tuple[bytes, str]:
        """Return the page with the numbers of this process alone."""
        pages = {self.siblings.own if self.siblings else "": self.families()}
        return write_page(merge_processes(pages), accept)


def metric_families() -> list[Metric]:
    """Every family that a page can have, without samples: for the documentation and its tests."""
    metrics = Metrics()
    return [*metrics.families(), processes_up({}), *metrics.store.collect()]


@asynccontextmanager
async def join_siblings(metrics: Metrics, home: Path, role: str) -> AsyncIterator[None]:
    """Show the numbers of this process on the pages of its siblings, and theirs on its own, until the block ends."""
    metrics.home_free.set_function(lambda: disk_bytes(home)[0])
    metrics.home_size.set_function(lambda: disk_bytes(home)[1])
    async with open_process_socket(home, role, metrics.families) as siblings:
        metrics.siblings = siblings
        try:
            yield
        finally:
            metrics.siblings = None


async def no_siblings() -> dict[str, list[Metric] | None]:
    return {}


def disk_bytes(home: Path) -> tuple[float, float]:
    """The free bytes and all bytes of a folder's disk; no numbers if the folder is gone: an error would hide every other metric."""
    try:
        usage = shutil.disk_usage(home)
    except OSError:
        return math.nan, math.nan
    return usage.free, usage.total


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


class LogAlerts(AlertLog):
    """The port Alerts: a log line and a count. May be called from any thread."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def alert(self, event: str, **facts: object) -> None:
        self._metrics.alerts.labels(event).inc()
        super().alert(event, **facts)
