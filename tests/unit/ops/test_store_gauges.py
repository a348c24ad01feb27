"""The figures of the stores: read when they are needed, and a store that is away hides only its own."""

import asyncio
from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from hermes.ops.metrics import Metrics
from hermes.ops.store_gauges import STORE_GAUGES, StoreGauges
from hermes.ports.figures import StoreFigure


def value_of(gauges: StoreGauges, name: str, *labels: str) -> float | None:
    found = [
        sample.value
        for family in gauges.collect()
        for sample in family.samples
        if (sample.name, *sample.labels.values()) == (name, *labels)
    ]
    return found[0] if found else None


async def test_figures_are_read_when_a_page_is_asked_for_and_once_for_all_that_ask() -> None:
    looks = 0

    async def read() -> Sequence[StoreFigure]:
        nonlocal looks
        looks += 1
        return [StoreFigure("queue_length", ("inbox",), 3.0), StoreFigure("queue_length", ("turns",), looks)]

    metrics = Metrics(StoreGauges({"postgres": read}, fresh_s=60))
    assert looks == 0
    await asyncio.gather(*(metrics.exposition() for _ in range(10)))
    assert looks == 1
    assert [value_of(metrics.store, "hermes_queue_length", queue) for queue in ("inbox", "turns", "outbox")] == [3, 1, None]


@pytest.mark.parametrize("failure", ["raises", "hangs"])
async def test_figures_that_cannot_be_read_are_left_out_and_the_rest_is_shown(failure: str) -> None:
    is_down = False

    async def read_postgres() -> Sequence[StoreFigure]:
        if is_down and failure == "hangs":
            await asyncio.sleep(60)
        if is_down:
            raise ConnectionError("postgresql://user:password@host")
        return [StoreFigure("queue_length", ("inbox",), 3.0)]

    async def read_redis() -> Sequence[StoreFigure]:
        return [StoreFigure("spend", ("all",), 1.5)]

    metrics = Metrics(StoreGauges({"postgres": read_postgres, "redis": read_redis}, fresh_s=0, timeout_s=0.05))
    page, _ = await metrics.exposition()
    assert b'hermes_queue_length{queue="inbox"} 3.0' in page
    is_down = True
    with capture_logs() as logs:
        page, content_type = await metrics.exposition()
    assert (b'queue="inbox"' in page, b"hermes_loop_blocked_total 0.0" in page) == (False, True)
    assert b'hermes_spend_today_usd{scope="all"} 1.5' in page
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    error = "TimeoutError" if failure == "hangs" else "ConnectionError"
    assert logs == [{"event": "figures_unread", "log_level": "warning", "store": "postgres", "error": error}]


def test_every_gauge_has_a_name_of_its_own() -> None:
    names = [gauge.name for gauge in STORE_GAUGES.values()]
    assert len(set(names)) == len(names)
