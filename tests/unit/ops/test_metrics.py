"""What is counted, under which names, and that a failing queue does not hide the other numbers."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from hermes.ops.metrics import AsgiMessage, AsgiScope, LogAlerts, Metrics, RequestCounter


def sample(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


async def ask(app: RequestCounter, method: str = "GET", path: str = "/") -> list[AsgiMessage]:
    sent: list[AsgiMessage] = []

    async def receive() -> AsgiMessage:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: AsgiMessage) -> None:
        sent.append(message)

    await app({"type": "http", "method": method, "path": path}, receive, send)
    return sent


def answering(status: int, route: str | None = "/v1/messages/{turn_id}") -> Any:
    async def app(scope: AsgiScope, receive: Any, send: Any) -> None:
        if route is not None:
            scope["route"] = SimpleNamespace(path=route)
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"hi", "more_body": False})

    return app


async def test_a_request_is_counted_by_method_route_template_and_status() -> None:
    metrics = Metrics()
    for path in ("/v1/messages/1", "/v1/messages/2"):
        await ask(RequestCounter(answering(200), metrics), path=path)
    assert sample(metrics, "hermes_request_count_total", method="GET", route="/v1/messages/{turn_id}", status="200") == 2
    assert sample(metrics, "hermes_request_latency_seconds_count", method="GET", route="/v1/messages/{turn_id}") == 2
    assert sample(metrics, "hermes_request_errors_total", method="GET", route="/v1/messages/{turn_id}") is None


@pytest.mark.parametrize(("status", "errors"), [(499, None), (500, 1), (503, 1)])
async def test_only_our_own_failures_are_errors(status: int, errors: int | None) -> None:
    metrics = Metrics()
    await ask(RequestCounter(answering(status), metrics))
    assert sample(metrics, "hermes_request_errors_total", method="GET", route="/v1/messages/{turn_id}") == errors


async def test_an_exception_counts_as_500_and_goes_on() -> None:
    async def broken(scope: AsgiScope, receive: Any, send: Any) -> None:
        raise RuntimeError("broken")

    metrics = Metrics()
    with pytest.raises(RuntimeError, match="broken"):
        await ask(RequestCounter(broken, metrics))
    assert sample(metrics, "hermes_request_count_total", method="GET", route="unmatched", status="500") == 1
    assert sample(metrics, "hermes_request_errors_total", method="GET", route="unmatched") == 1


async def test_paths_and_methods_of_strangers_make_no_series_of_their_own() -> None:
    metrics = Metrics()
    for number in range(5):
        await ask(RequestCounter(answering(404, route=None), metrics), method=f"PROBE{number}", path=f"/wp-admin/{number}")
    assert sample(metrics, "hermes_request_count_total", method="other", route="unmatched", status="404") == 5


async def test_scraping_is_not_counted() -> None:
    metrics = Metrics()
    await ask(RequestCounter(answering(200, "/metrics"), metrics), path="/metrics")
    assert [s for family in metrics.registry.collect() for s in family.samples if s.name.startswith("hermes_request_")] == []


async def test_a_stream_passes_chunk_by_chunk_and_counts_when_it_ends() -> None:
    metrics, go_on = Metrics(), asyncio.Event()

    async def stream(scope: AsgiScope, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await go_on.wait()
        await send({"type": "http.response.body", "body": b"two", "more_body": False})

    asked = asyncio.create_task(ask(RequestCounter(stream, metrics)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert sample(metrics, "hermes_request_count_total", method="GET", route="unmatched", status="200") is None
    go_on.set()
    assert [message.get("body") for message in await asked] == [None, b"one", b"two"]
    assert sample(metrics, "hermes_request_count_total", method="GET", route="unmatched", status="200") == 1


async def test_prometheus_gets_the_format_that_it_asks_for() -> None:
    page, content_type = await Metrics().exposition("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert page.endswith(b"# EOF\n")


def test_two_apps_in_one_process_do_not_add_up() -> None:
    one, other = Metrics(), Metrics()
    one.loop_blocked.inc()
    assert (sample(one, "hermes_loop_blocked_total"), sample(other, "hermes_loop_blocked_total")) == (1, 0)


def test_sends_are_counted_by_platform_and_outcome() -> None:
    metrics = Metrics()
    for outcome in ("sent", "sent", "ambiguous"):
        metrics.count_send("telegram", outcome)
    assert sample(metrics, "hermes_sends_total", platform="telegram", outcome="sent") == 2
    assert sample(metrics, "hermes_sends_total", platform="telegram", outcome="ambiguous") == 1


def test_a_breaker_is_shown_as_open_until_its_time_is_over_or_it_is_closed() -> None:
    metrics, line = Metrics(), {"platform": "telegram", "account": "bali"}
    assert sample(metrics, "hermes_breaker_open", **line) is None
    metrics.show_breaker("telegram", "bali", 0.2)
    assert sample(metrics, "hermes_breaker_open", **line) == 1
    time.sleep(0.2)
    assert sample(metrics, "hermes_breaker_open", **line) == 0
    metrics.show_breaker("telegram", "bali", 120.0)
    metrics.show_breaker("telegram", "bali", 0.0)
    assert sample(metrics, "hermes_breaker_open", **line) == 0


# --- alerts


def test_an_alert_is_a_warning_with_its_facts_and_is_counted_by_event() -> None:
    metrics = Metrics()
    alerts = LogAlerts(metrics)
    with capture_logs() as logs:
        alerts.alert("message_buried", turn_id="7e1d", attempt=6)
        alerts.alert("message_buried", turn_id="7e1e", attempt=6)
        alerts.alert("kill_switch_set")
    assert logs == [
        {"event": "message_buried", "log_level": "warning", "alert": True, "turn_id": "7e1d", "attempt": 6},
        {"event": "message_buried", "log_level": "warning", "alert": True, "turn_id": "7e1e", "attempt": 6},
        {"event": "kill_switch_set", "log_level": "warning", "alert": True},
    ]
    counts = [metrics.registry.get_sample_value("hermes_alerts_total", {"event": event}) for event in ("message_buried", "kill_switch_set")]
    assert counts == [2, 1]
